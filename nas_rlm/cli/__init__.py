"""The nas-rlm command: each verb is a typed function whose docstring is its help."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from cyclopts import CycloptsError

# each adds its verbs to the application
from nas_rlm.cli import (
    bench,
    bench_devices,
    bench_programs,
    bench_speed,
    data,
    measure,
    plot,
    predict,
    profile,
    propose,
    report,
    search,
    train,
)
from nas_rlm.cli.app import app

__all__ = [
    "bench",
    "bench_devices",
    "bench_programs",
    "bench_speed",
    "data",
    "main",
    "measure",
    "plot",
    "predict",
    "profile",
    "propose",
    "report",
    "search",
    "train",
]

LONGEST = 1000  # characters of an error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    >>> main(["export", "--space", "nasbench201", "--sample", "1", "--out", "runs/one"])
    0

    Args:
        arguments: without the program's name; None for those of the process.

    Returns:
        0, or 2 after one line on stderr if the input was bad.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # busily waiting threads crawl beside other work
    os.environ.setdefault(
        "THP_MEM_ALLOC_ENABLE", "1"
    )  # torch's large tensors come in large pages: no slow faults
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be Unicode
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(arguments, exit_on_error=False, print_error=False, result_action="return_none")
    except (CycloptsError, ValueError, OSError, OverflowError) as error:
        print(f"nas-rlm: error: {_reason(error)}", file=sys.stderr)
        return 2
    except RecursionError:
        print("nas-rlm: error: a file or an argument is nested too deeply to be read", file=sys.stderr)
        return 2
    except MemoryError as error:
        reason = _reason(error) or "there is not enough memory for that"
        print(f"nas-rlm: error: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nas-rlm: interrupted; search and train go on with --resume", file=sys.stderr)
        return 130
    return 0


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"nas-rlm: warning: {message}", file=sys.stderr)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    reason = " ".join(str(error).split())
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 300]} … {reason[-300:]}"
