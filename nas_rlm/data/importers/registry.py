"""Registry of the benchmarks' file formats, and the function that reads a file of any of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas_rlm.data import snas, tables
from nas_rlm.data.importers import (
    codenet,
    csv_files,
    hw_gpt_bench,
    hw_nas_bench,
    nas_bench_101,
    nas_bench_201,
    nats_bench,
    nds,
    nn_meter,
    onnx_files,
    program_files,
    timm_results,
)
from nas_rlm.data.importers import help as help_benchmark
from nas_rlm.data.omissions import READ_ERRORS, Omissions, describe_error
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from nas_rlm.utils.extras import require
from nas_rlm.utils.validation import suggest

MAX_FILE_BYTES = 16 * 1024**3


@dataclass(frozen=True)
class Format:
    """A file format of a benchmark.

    Args:
        read_rows: reads a file or directory into rows, and counts the entries that it leaves out in the
            `Omissions` that are its second argument; `onnx` and `timm` have further ones.
        description: name of the published file, for error messages.
        is_pickle: whether the file is a Python pickle, which can run any code while it is read.
        extra: optional dependencies that the import needs; empty for none.
    """

    read_rows: Callable[..., list[Row]]
    description: str
    is_pickle: bool = False
    extra: str = ""


FORMATS = {
    "nasbench201": Format(
        nas_bench_201.read_rows,
        "NAS-Bench-201-v1_1-096897.pth, NATS-tss-v1_0-3ffb9.pickle.pbz2 or the directory"
        " NATS-tss-v1_0-3ffb9-simple",
        is_pickle=True,
    ),
    "nats_size": Format(
        nats_bench.read_rows,
        "NATS-sss-v1_0-50262.pickle.pbz2 or the directory NATS-sss-v1_0-50262-simple",
        is_pickle=True,
    ),
    "nasbench101": Format(nas_bench_101.read_rows, "nasbench_only108.tfrecord"),
    "hw_nas_bench": Format(hw_nas_bench.read_rows, "HW-NAS-Bench-v1_0.pickle", is_pickle=True),
    "hw_gpt_bench": Format(
        hw_gpt_bench.read_rows,
        "a directory of HW-GPT-Bench, with raw_results_hw/latency_DEVICE and arch_ppl_bench_SCALE",
        is_pickle=True,
    ),
    "help": Format(help_benchmark.read_rows, "a data directory of HELP, with latency/DEVICE.pt"),
    "nds": Format(nds.read_rows, "a JSON file of the nds repository, such as DARTS.json"),
    "snas": Format(snas.read_rows, "a file that nas-rlm snas generate writes"),
    "codenet": Format(codenet.read_rows, "the directory Project_CodeNet, with metadata and data"),
    "nn_meter": Format(
        nn_meter.read_rows, "a file of nn-Meter's dataset, such as alexnets.jsonl, or the directory of all"
    ),
    "timm": Format(
        timm_results.read_rows,
        "a result table of timm, such as results-imagenet.csv or benchmark-infer-*.csv",
        extra="timm",
    ),
    "onnx": Format(
        lambda path, omissions, shapes: (
            onnx_files.read_onnx_csv(path, shapes=shapes, omissions=omissions).rows
        ),
        "a CSV file with the column file, of ONNX files, and objectives",
    ),
    "csv": Format(
        lambda path, omissions: csv_files.read_csv(path).rows,
        "a CSV file with the columns space, architecture and objectives",
    ),
    "programs": Format(
        lambda path, omissions: program_files.read_program_csv(path).rows,
        "a CSV file with the columns program, language and objectives",
    ),
    "parquet": Format(
        lambda path, omissions: tables.read(path, omissions).rows,
        "a parquet file of GraphArch-Regression or Code-Regression",
    ),
}


def import_benchmark(
    name: str,
    path: str | os.PathLike[str],
    allow_pickle: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    device: str = "",
    models: Sequence[str] = (),
) -> list[Row]:
    """Read a benchmark's published file into rows of the public schema.

    Entries that are not valid are left out: a number is missing in its row, and an entry without a valid
    architecture has no row. A warning for each kind reports their number and the reason of the first one.

    Examples:
        >>> rows = import_benchmark("nds", "nds_data/DARTS.json")  # doctest: +SKIP

    Args:
        name: one of `FORMATS`.
        path: the file, or the directory for `help`, `hw_gpt_bench` and `codenet`; for `nasbench201`,
            `nats_size` and `nn_meter` either.
        allow_pickle: read Python pickles, which can run any code; only for files that you trust.
        shapes: shapes of inputs that have open sizes in the ONNX files, by name; for `onnx` only.
        device: name of the device of a table of speeds; for `timm` only.
        models: patterns such as resnet* of the architectures to build; for `timm` only.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: the format is unknown, a package that it needs is not installed, the file is a pickle and
            `allow_pickle` is not set, the file is damaged or of another format, or no entry is valid.
    """
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}; {suggest(name, FORMATS)}")
    file_format, source = FORMATS[name], Path(path)
    if not source.exists():
        raise FileNotFoundError(f"nothing at {str(path)!r}: expected {file_format.description}")
    if source.is_file() and source.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{str(path)!r} is larger than the limit of {MAX_FILE_BYTES:,} bytes")
    if shapes and name != "onnx":
        raise ValueError(f"shapes of inputs are given for {name}: they are for ONNX files")
    if (device or models) and name != "timm":
        raise ValueError(f"a device or models are given for {name}: they are for timm")
    if file_format.extra:
        require(file_format.extra, f"the format {name}")
    if file_format.is_pickle:
        if not allow_pickle:
            raise ValueError(
                f"{name} files are Python pickles, which can run any code when they are read:"
                f" use --allow-pickle to read {str(path)!r} if you trust its origin"
            )
        warnings.warn(f"{str(path)!r} is read as a pickle: it can run any code", stacklevel=2)
    omissions = Omissions()
    options: dict[str, dict[str, Any]] = {
        "onnx": {"shapes": shapes},
        "timm": {"device": device, "models": models},
    }
    try:
        rows = file_format.read_rows(source, omissions, **options.get(name, {}))
    except READ_ERRORS as error:
        raise ValueError(f"{str(path)!r} is not {file_format.description}: {describe_error(error)}") from None
    except MemoryError:  # the file may be too large, or have a damaged length
        raise ValueError(
            f"{str(path)!r} is damaged or does not fit into memory: expected {file_format.description}"
        ) from None
    if not rows or (omissions and not any(row.targets.keys() - set(EXACT_OBJECTIVES) for row in rows)):
        reason = f" ({omissions.first_reason})" if omissions else ""
        raise ValueError(f"{str(path)!r} has no measurements{reason}: expected {file_format.description}")
    omissions.warn()
    return rows
