"""The folder of a search: its settings and log, from which all the rest can be written again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.files import check_writable, write_text
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.result import FAILED, MEASURED, NOTHING, Result
from nas_rlm.search.settings import Settings

LISTS = ("objectives", "constraints", "maximised", "functions")


@dataclass(frozen=True)
class Evaluation:
    """A line of a log.

    Args:
        architecture: of it.
        values: quantiles of each objective [K][Q].
        status: `measured`, `failed` or empty, see `Result`.
    """

    architecture: str
    values: list[list[float]]
    status: str


class SearchLog:
    """log.jsonl: a line per evaluated architecture, in order, written a generation at a time.

    A generation that was only partly written is evaluated again, whole, so that its predictions come from
    the same batch and the file ends up the same as without the interruption.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path, self.objectives, self.quantiles = path, settings.predicted, settings.quantiles
        content = path.read_bytes() if path.exists() else b""
        self.lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
        self.rows = [self.parse(line, number) for number, line in enumerate(self.lines, 1)]
        self.position = self.offset = self.generation = 0

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """What the log holds of a generation: [N, K, Q]; if not all of it, None, and the part is dropped.

        Raises:
            ValueError: the log holds other architectures.
        """
        end = self.position + len(architectures)
        held = self.rows[self.position : end]
        pairs = zip((row.architecture for row in held), architectures, strict=False)
        for number, (found, expected) in enumerate(pairs, self.position + 1):
            if found != expected:
                raise ValueError(
                    f"{self.path} line {number} holds {found} where this search evaluates {expected}:"
                    " it was written by another search or another version"
                )
        if len(held) < len(architectures):
            self.lines, self.rows = self.lines[: self.position], self.rows[: self.position]
            if self.path.exists():
                os.truncate(self.path, self.offset)
            return None
        self._advance(self.lines[self.position : end])
        return np.array([one.values for one in held])

    def finish(self) -> None:
        """Refuse a log that holds more than the search evaluates."""
        if self.position < len(self.lines):
            raise ValueError(
                f"{self.path} has {len(self.lines):,} lines where this search evaluates {self.position:,}:"
                " it was written by another search or another version"
            )

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NOTHING
    ) -> None:
        """Write a generation and wait until it is on disk."""
        rows = [
            {
                "generation": self.generation,
                "arch": architecture,
                "predicted": dict(zip(self.objectives, predicted.tolist(), strict=True)),
            }
            | ({"status": status[architecture]} if architecture in status else {})
            for architecture, predicted in zip(architectures, values, strict=True)
        ]
        lines = [json.dumps(row).encode() + b"\n" for row in rows]
        with open(self.path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self.lines += lines
        self.rows += [
            Evaluation(name, predicted.tolist(), status.get(name, ""))
            for name, predicted in zip(architectures, values, strict=True)
        ]
        self._advance(lines)

    def parse(self, line: bytes, number: int) -> Evaluation:
        """What a line tells."""
        try:
            row = json.loads(line)
            predicted = [row["predicted"][o] for o in self.objectives]
            told = (_are_quantiles(values, len(self.quantiles)) for values in predicted)
            if not all(told) or row.get("status", "") not in ("", MEASURED, FAILED):
                raise ValueError
            return Evaluation(str(row["arch"]), predicted, row.get("status", ""))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{self.path} line {number} is not an evaluation: {line[:80]!r}") from None

    def _advance(self, lines: list[bytes]) -> None:
        self.position += len(lines)
        self.offset += sum(map(len, lines))
        self.generation += 1


def _are_quantiles(values: object, count: int) -> bool:
    """Whether they are finite numbers, so many, ascending."""
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        and all(-1e300 < v < 1e300 for v in values)
        and values == sorted(values)
    )


def open_log(folder: Path, settings: Settings, resume: bool) -> SearchLog:
    """The log of a folder, which is made if it is not there; see `check_search`."""
    check_search(folder, settings, resume)
    log = SearchLog(folder / "log.jsonl", settings)
    write_text(folder / "settings.json", json.dumps(asdict(settings), indent=2) + "\n")
    return log


def check_search(folder: Path, settings: Settings, resume: bool) -> None:
    """Refuse a folder that is not for a search.

    Args:
        folder: of one search.
        settings: of that search; a resumed one may ask for more generations.
        resume: continue what the folder holds, from the start if that is nothing.

    Raises:
        ValueError: the folder holds something else, another search, or this one without `resume`.
    """
    for needed in (folder, folder / "front"):
        if needed.exists() and not needed.is_dir():
            raise ValueError(f"{needed} is a file: a search needs a folder of that name")
    check_writable(folder)
    if (folder / "settings.json").exists():
        held = read_settings(folder)
        if not resume:
            raise ValueError(
                f"{folder} already holds a search: --resume continues it, or choose another --out"
            )
        longer = () if settings.device else ("generations",)
        for name in (f.name for f in fields(Settings) if f.name not in longer):
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


def read_settings(folder: Path) -> Settings:
    """The settings of a folder's search."""
    path = folder / "settings.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no search: there is no settings.json")
    try:
        held = json.loads(path.read_text())
        known = [f.name for f in fields(Settings)]
        if not set(known[: known.index("device")]) <= set(held) <= set(known):  # those came later
            raise ValueError(f"it has {', '.join(map(str, held))}")
        for name in [n for n in LISTS if n in held]:
            if not isinstance(held[name], list) or not all(isinstance(o, str) for o in held[name]):
                raise ValueError(f"{name} is {held[name]!r}, expected a list of texts")
            held[name] = tuple(held[name])
        return Settings(**held)
    except KeyError as error:
        raise ValueError(f"{path} is not what nas-rlm search writes: it has no {error}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not what nas-rlm search writes: {error}") from None


def read_result(folder: Path) -> Result:
    """What a folder's search has evaluated so far."""
    settings = read_settings(folder)
    log = SearchLog(folder / "log.jsonl", settings)
    if not log.lines:
        raise ValueError(f"{folder} holds a search that has evaluated nothing yet: --resume continues it")
    space = search_spaces.get(settings.space)
    last: dict[str, Evaluation] = {}
    for number, row in enumerate(log.rows, 1):
        try:
            space.parse(row.architecture)
            if row.architecture in last and not settings.device:
                raise ValueError(f"{row.architecture} is there twice")
        except ValueError as error:
            raise ValueError(f"{log.path} line {number}: {error}") from None
        last.pop(row.architecture, None)  # so that the order is that of the last ones
        last[row.architecture] = row
    status = {name: row.status for name, row in last.items() if row.status}
    return Result(settings, list(last), np.array([row.values for row in last.values()]), status)


def write_feasibility(folder: Path, feasibility: Feasibility) -> None:
    """Note in a search's folder what was told before it."""
    write_text(folder / "feasibility.json", json.dumps(asdict(feasibility), indent=2) + "\n")


def read_feasibility(folder: Path) -> Feasibility | None:
    """What was told before a folder's search, if anything was.

    Raises:
        ValueError: the file holds something else.
    """
    path = folder / "feasibility.json"
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text())
        ranges = {str(name): (float(a), float(b), float(c)) for name, (a, b, c) in held["ranges"].items()}
        shares = {str(name): float(share) for name, share in held["shares"].items()}
        return Feasibility(int(held["architectures"]), ranges, shares, float(held["share"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not what nas-rlm search writes: {error}") from None


def read_samples(folder: Path, result: Result) -> dict[str, np.ndarray]:
    """Joint draws [S, K] of the highlighted architectures of a folder; none if its search is not finished."""
    path = folder / "samples.json"
    if not path.is_file():
        return {}
    try:
        draws = {k: np.array(v, dtype=float) for k, v in json.loads(path.read_text()).items()}
        columns = len(result.settings.predicted)
        if any(d.ndim != 2 or d.shape[1] != columns or not np.isfinite(d).all() for d in draws.values()):
            raise ValueError(f"draws are not tables of {columns} numbers")
        if not set(draws) <= set(result.architectures):
            raise ValueError("it has architectures that the log has not")
        return draws
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path} is not what nas-rlm search writes ({error}): search --resume writes it anew"
        ) from None
