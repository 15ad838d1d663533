"""The nas-rlm command: each verb is a typed function whose docstring is its help."""

from __future__ import annotations

import os
import select
import sys
import warnings
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any, TextIO

from cyclopts import CycloptsError

from nas_rlm.cli import (  # each module adds its verbs to the application
    bench,
    compare,
    data,
    devices,
    evaluate,
    export,
    export_model,
    export_text,
    finetune,
    fit,
    inspect,
    measure,
    plot,
    predict,
    profile,
    propose,
    rank,
    report,
    retrain,
    search,
    snas,
    spaces,
    tokenizer,
    train,
)
from nas_rlm.cli.app import app
from nas_rlm.utils.progress import set_mode

__all__ = [
    "bench",
    "compare",
    "data",
    "devices",
    "evaluate",
    "export",
    "export_model",
    "export_text",
    "finetune",
    "fit",
    "inspect",
    "main",
    "measure",
    "plot",
    "predict",
    "profile",
    "propose",
    "rank",
    "report",
    "retrain",
    "search",
    "snas",
    "spaces",
    "tokenizer",
    "train",
]

MAX_ERROR_LENGTH = 1000  # characters
OUTPUT_CLOSED = 141  # the exit code of a program that is ended by a closed pipe
ERROR_TAIL_LENGTH = 300  # characters of the end of a longer error

# Verbs in the order of the help.
VERBS = (
    *("spaces", "devices", "export", "inspect", "compare", "predict", "rank", "export-text"),
    *("search", "propose", "plot", "report", "retrain"),
    *("fit", "finetune", "evaluate", "train", "tokenizer", "export-model"),
    *("profile", "data", "measure", "snas", "bench"),
)
BENCHMARKS = (
    *("few-shot", "new-spaces", "given", "search", "propose", "devices", "measure", "networks", "accuracy"),
    *(
        "programs",
        "fit",
        "in-context",
        "reliability",
        "ablation",
        "speed",
        "text",
        "reading",
        "fuzz",
        "foreign",
    ),
    "references",
)
for _parent, _names in ((app, VERBS), (app["bench"], BENCHMARKS)):
    for _position, _name in enumerate(_names):
        _parent[_name].sort_key = _position


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Examples:
        >>> main(["export", "--space", "nasbench201", "--sample", "1", "--out", "runs/one"])
        1 architecture in runs/one
        0

    Args:
        arguments: the arguments without the program's name; None for those of the process.

    Returns:
        The exit code: 0, or 2 after one line on stderr if the input was bad, or 130 if interrupted, or 141 if
        the reader of the output, such as `head`, closed it.
    """
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "passive"
    )  # threads that wait actively slow down other processes
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages for large tensors avoid page faults
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be Unicode
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warning_printer()
            app.meta(arguments, exit_on_error=False, print_error=False, result_action="return_none")
        sys.stdout.flush()
    except BrokenPipeError as error:
        if _has_no_reader(sys.stdout):
            _discard(sys.stdout)
            return OUTPUT_CLOSED
        print(f"nas-rlm: error: {_reason(error)}", file=sys.stderr)
        return 2
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
        print(
            "nas-rlm: interrupted; search and train continue with --resume, and measure, profile and snas"
            " with the same command; others wrote no result",
            file=sys.stderr,
        )
        return 130
    finally:
        set_mode("auto")
    return 0


def _has_no_reader(stream: TextIO) -> bool:
    """Return whether a stream is a pipe whose reader closed it."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream in memory
        return False
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported without being asked for
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard(stream: TextIO) -> None:
    """Discard what is left of a stream; else Python reports once more, when it exits, that it is closed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _warning_printer() -> Callable[..., None]:
    """Return a function that prints a warning in one line, and each warning once."""
    printed: set[str] = set()

    def print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            print(f"nas-rlm: warning: {' '.join(str(message).split())}", file=sys.stderr)

    return print_warning


def _rejected_value(error: Exception) -> str:
    """Return one line on a value that pydantic rejected, or an empty text for another error."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return ""
    from nas_rlm.utils.schema import message

    return message(error)


def _reason(error: Exception) -> str:
    """Return the message of an error in one line of limited length."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    reason = " ".join((_rejected_value(error) or str(error)).split())
    if len(reason) <= MAX_ERROR_LENGTH:
        return reason
    head_length = MAX_ERROR_LENGTH - ERROR_TAIL_LENGTH
    return f"{reason[:head_length]} … {reason[-ERROR_TAIL_LENGTH:]}"
