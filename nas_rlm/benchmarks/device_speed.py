"""Seconds that the command which learns a new device takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.benchmarks.baselines.cost import flops
from nas_rlm.benchmarks.timing import Cases, Work, time_cases
from nas_rlm.data.tables import Row, write
from nas_rlm.text import from_architectures

SPACE = "nasbench201"
MIXED_SPACES = ("fbnet", "ofa_mbv3")  # whose networks count as networks of no space
NUM_MEASURED = (20, 200)  # networks on a new device
NOISE = 0.05  # of their latencies, which are otherwise proportional to multiply-accumulates
OBJECTIVE = "latency/new-device"

Sample = Callable[..., list[Any]]  # from a space and the `count` of architectures to random ones


def time_new_device(model: str, runs: int, sample: Sample, seed: int = 0) -> Cases:
    """Time the command from start to end, for cells of a space and for mixed networks.

    Args:
        model: name or directory of the model.
        runs: number of timed runs.
        sample: draws architectures.
        seed: seed of the noise.
    """
    with TemporaryDirectory() as directory:
        cases: dict[str, Work] = {}
        for count in NUM_MEASURED:
            cells, mixed = (_measured_rows(names, count, sample, seed) for names in ([SPACE], MIXED_SPACES))
            without_space = [replace(row, space="", arch_str="") for row in mixed]
            for name, rows in ((SPACE, cells), ("mixed networks", without_space)):
                data = Path(directory) / f"{count}-{name.split()[0]}.parquet"
                write(data, rows)
                cases[f"{count} labels, {name}"] = partial(_learn_device, data, model, count)
        yield from time_cases(cases, runs, warm_up=False)


def _measured_rows(spaces: Sequence[str], count: int, sample: Sample, seed: int) -> list[Row]:
    """Return random networks of some spaces, with latencies that are proportional to multiply-accumulates."""
    rows = []
    for space in map(search_spaces.get, spaces):
        architectures = sample(space, count=count // len(spaces))
        texts = from_architectures(space, architectures)
        rows += [Row(space.name, str(a), {}, text) for a, text in zip(architectures, texts, strict=True)]
    noise = np.random.default_rng(seed).lognormal(0, NOISE, len(rows))
    latencies = (noise * (1 + flops(rows) / 1e8)).tolist()
    return [replace(row, targets={OBJECTIVE: value}) for row, value in zip(rows, latencies, strict=True)]


def _learn_device(data: Path, model: str, count: int, run: int) -> int:
    """Learn a device from a table by the command, and return the number of its networks."""
    command = [sys.executable, "-m", "nas_rlm", "--quiet", "finetune", "--data", str(data), "--model", model]
    options = ["--new-objective", OBJECTIVE, "--out", str(data.with_suffix(f".{run}"))]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return count
