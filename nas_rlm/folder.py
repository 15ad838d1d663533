"""The folder of a search: settings.json, log.jsonl, front.csv, front/, samples.json and pareto.png."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from nas_rlm.files import write_text
from nas_rlm.search import QUANTILES, Predictor, Result, Settings
from search_spaces import SearchSpace

DRAWS = 256  # joint draws of each highlighted architecture, enough for a smooth contour


class Sampler(Predictor, Protocol):
    """A predictor that can also draw from its joint distribution; `nas_rlm.RLM` is one."""

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int,
        seed: int,
    ) -> np.ndarray:
        """Joint draws: float64 [N, num_samples, K]."""


class SearchLog:
    """log.jsonl: a line per evaluated architecture, in order, written a generation at a time.

    A generation that was only partly written is evaluated again, whole, so that its predictions come from
    the same batch and the file ends up the same as without the interruption.
    """

    def __init__(self, path: Path, objectives: Sequence[str]) -> None:
        self.path, self.objectives = path, objectives
        content = path.read_bytes() if path.exists() else b""
        self.lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        self.position = self.offset = self.generation = 0

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """What the log holds of a generation: [N, K, Q]; None, and the rest of the log is dropped, if not all of it.

        Raises:
            ValueError: the log holds other architectures, or lines that no search wrote.
        """
        lines = self.lines[self.position : self.position + len(architectures)]
        if len(lines) < len(architectures):
            self.lines = self.lines[: self.position]
            if self.path.exists():
                os.truncate(self.path, self.offset)
            return None
        values = []
        for number, (line, architecture) in enumerate(zip(lines, architectures, strict=True), self.position + 1):
            found, predicted = self.parse(line, number)
            if found != architecture:
                raise ValueError(
                    f"{self.path} line {number} holds {found} where this search evaluates {architecture}:"
                    " it was written by another search or another version"
                )
            values.append(predicted)
        self._advance(lines)
        return np.array(values)

    def append(self, architectures: Sequence[str], values: np.ndarray) -> None:
        """Write a generation and wait until it is on disk."""
        rows = [
            {
                "generation": self.generation,
                "arch": architecture,
                "predicted": dict(zip(self.objectives, predicted.tolist(), strict=True)),
            }
            for architecture, predicted in zip(architectures, values, strict=True)
        ]
        lines = [json.dumps(row).encode() + b"\n" for row in rows]
        with open(self.path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self.lines += lines
        self._advance(lines)

    def parse(self, line: bytes, number: int) -> tuple[str, list[list[float]]]:
        """The architecture of a line and its predictions [K][Q]."""
        try:
            row = json.loads(line)
            predicted = [[float(v) for v in row["predicted"][o]] for o in self.objectives]
            if any(len(quantiles) != len(QUANTILES) for quantiles in predicted):
                raise ValueError
            return str(row["arch"]), predicted
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.path} line {number} is not an evaluation: {line[:80]!r}") from None

    def _advance(self, lines: list[bytes]) -> None:
        self.position += len(lines)
        self.offset += sum(map(len, lines))
        self.generation += 1


def open_log(folder: Path, settings: Settings, resume: bool) -> SearchLog:
    """The log of a folder, which is made if it is not there.

    Args:
        folder: of one search.
        settings: of that search; a resumed one may ask for more generations.
        resume: continue what the folder holds, from the start if that is nothing.

    Raises:
        ValueError: the folder holds something else, another search, or this one without `resume`.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: --out needs a folder")
    path = folder / "settings.json"
    if path.exists():
        held = read_settings(folder)
        if not resume:
            raise ValueError(f"{folder} already holds a search: --resume continues it, or choose another --out")
        for name in (f.name for f in fields(Settings) if f.name != "generations"):
            if getattr(held, name) != getattr(settings, name):
                raise ValueError(
                    f"{folder} holds another search, with {name} {getattr(held, name)!r} where"
                    f" {getattr(settings, name)!r} is asked for: choose another --out"
                )
        if held.generations > settings.generations:
            raise ValueError(
                f"{folder} holds a search of {held.generations} generations: --generations"
                f" {settings.generations} would shorten it"
            )
    elif folder.exists() and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no search: choose another --out")
    write_text(path, json.dumps(asdict(settings), indent=2) + "\n")
    return SearchLog(folder / "log.jsonl", settings.predicted)


def read_settings(folder: Path) -> Settings:
    """The settings of a folder's search."""
    path = folder / "settings.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no search: there is no settings.json")
    try:
        return Settings(**{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(path.read_text()).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what nas-rlm search writes: {error}") from None


def read_result(folder: Path) -> Result:
    """What a folder's search has evaluated so far."""
    settings = read_settings(folder)
    log = SearchLog(folder / "log.jsonl", settings.predicted)
    if not log.lines:
        raise ValueError(f"{folder} holds a search that has evaluated nothing yet: --resume continues it")
    rows = [log.parse(line, number) for number, line in enumerate(log.lines, 1)]
    return Result(settings, [name for name, _ in rows], np.array([values for _, values in rows]))


def write_front(folder: Path, space: SearchSpace[Any], predictor: Sampler, result: Result) -> None:
    """Write what a finished search found: front/, samples.json, pareto.png and, last, front.csv."""
    from nas_rlm import plots

    names = [result.architectures[i] for i in result.front]
    unfinished, finished = folder / ".front", folder / "front"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for i, name in enumerate(names):
        onnx.save(space.to_onnx(space.parse(name)), unfinished / f"{i:03d}.onnx")
    shutil.rmtree(finished, ignore_errors=True)
    unfinished.rename(finished)

    chosen = [result.architectures[i] for i in plots.highlights(result)]
    samples: dict[str, np.ndarray] = {}
    if chosen:
        settings = result.settings
        draws = predictor.sample(
            space, [space.parse(n) for n in chosen], settings.predicted, num_samples=DRAWS, seed=settings.seed
        )
        samples = dict(zip(chosen, draws, strict=True))
    write_text(folder / "samples.json", json.dumps({k: v.tolist() for k, v in samples.items()}) + "\n")
    plots.save(plots.front_info(result, samples), folder / "pareto.png")
    write_predictions(folder / "front.csv", names, result.settings.predicted, result.values[result.front], QUANTILES)


def read_samples(folder: Path) -> dict[str, np.ndarray]:
    """Joint draws [S, K] of the highlighted architectures of a folder; none if its search is not finished."""
    path = folder / "samples.json"
    return {k: np.array(v) for k, v in json.loads(path.read_text()).items()} if path.is_file() else {}


def write_predictions(
    path: Path, names: Sequence[str], objectives: Sequence[str], values: np.ndarray, quantiles: Sequence[float]
) -> None:
    """A CSV table of predictions: `arch`, then the median of each objective, then `OBJECTIVE@quantile`.

    Args:
        path: of the table.
        names: N architectures or files.
        objectives: K names.
        values: [N, K, Q]; the median must be among the quantiles.
        quantiles: Q levels.
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["arch", *objectives, *(f"{o}@{q:g}" for o in objectives for q in quantiles)])
    for name, row in zip(names, values, strict=True):
        medians = row[:, list(quantiles).index(0.5)]
        writer.writerow([name, *(f"{v:.10g}" for v in (*medians, *row.reshape(-1)))])
    write_text(path, table.getvalue())
