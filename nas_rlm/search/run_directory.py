"""Run directories: the settings and log of a search, from which all its other files can be written again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from nas_rlm.files import check_writable, write_text
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.result import FAILED, MEASURED, NO_STATUS, SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.utils.json_lines import append_records, read_lines, truncate_after
from nas_rlm.utils.schema import message

MEASUREMENTS = "measured.parquet"  # networks that were measured during the search
MAX_MAGNITUDE = 1e300  # of a logged number


@dataclass(frozen=True)
class Evaluation:
    """An evaluated architecture, a line of a log.

    Args:
        generation: number of the generation, from 0.
        architecture: the architecture in its space's notation.
        values: quantiles of each objective, [K][Q].
        status: `measured`, `failed` or empty, see `SearchResult`.
    """

    generation: int
    architecture: str
    values: list[list[float]]
    status: str


class MemoryLog:
    """The evaluations of a search without a run directory.

    Attributes:
        evaluations: all evaluations, in order.
    """

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self._num_generations = 0

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """Return None: nothing was logged before."""
        return None

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NO_STATUS
    ) -> None:
        """Record a generation, see `nas_rlm.search.loop.EvaluationLog`."""
        self.evaluations += _to_evaluations(self._num_generations, architectures, values, status)
        self._num_generations += 1

    def finish(self) -> None:
        """Do nothing: the log holds only what this search evaluated."""


class SearchLog:
    """The file log.jsonl: a line per evaluated architecture, in order, written a generation at a time.

    A generation that was written in part is evaluated again as a whole, so that its predictions come from the
    same batch and the file ends up the same as without the interruption.

    Args:
        path: the file; it need not exist.
        settings: settings of the search.

    Attributes:
        evaluations: all evaluations of the file, in order.

    Raises:
        ValueError: a line is not an evaluation.
    """

    def __init__(self, path: Path, settings: SearchSettings) -> None:
        self.path = path
        self.objectives, self.quantile_levels = settings.all_objectives, settings.quantile_levels
        self.lines, _ = read_lines(path)
        self.evaluations = [self._parse(line, number) for number, line in enumerate(self.lines, 1)]
        self._position = self._generation = 0

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """Return the logged predictions [N, K, Q] of the next generation.

        Returns None where the log ends; a generation that is logged in part is deleted.

        Raises:
            ValueError: the log has other architectures.
        """
        end = self._position + len(architectures)
        logged = self.evaluations[self._position : end]
        pairs = zip((e.architecture for e in logged), architectures, strict=False)
        for number, (found, expected) in enumerate(pairs, self._position + 1):
            if found != expected:
                raise ValueError(
                    f"{self.path} line {number} has {found} where this search evaluates {expected}:"
                    " it was written by another search or another version"
                )
        if len(logged) < len(architectures):
            self.lines, self.evaluations = self.lines[: self._position], self.evaluations[: self._position]
            if self.path.exists():
                truncate_after(self.path, self.lines)
            return None
        self._advance(len(architectures))
        return np.array([e.values for e in logged])

    def finish(self) -> None:
        """Refuse a log that has more evaluations than the search.

        Raises:
            ValueError: it has.
        """
        if self._position < len(self.lines):
            raise ValueError(
                f"{self.path} has {len(self.lines):,} lines where this search evaluates {self._position:,}:"
                " it was written by another search or another version"
            )

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NO_STATUS
    ) -> None:
        """Write a generation and wait until it is on disk, see `nas_rlm.search.loop.EvaluationLog`."""
        records = [
            {
                "generation": self._generation,
                "arch": architecture,
                "predicted": dict(zip(self.objectives, quantiles.tolist(), strict=True)),
            }
            | ({"status": status[architecture]} if architecture in status else {})
            for architecture, quantiles in zip(architectures, values, strict=True)
        ]
        self.lines += append_records(self.path, records)
        self.evaluations += _to_evaluations(self._generation, architectures, values, status)
        self._advance(len(architectures))

    def _parse(self, line: bytes, number: int) -> Evaluation:
        """The evaluation of a line."""
        try:
            record = json.loads(line)
            values = [record["predicted"][objective] for objective in self.objectives]
            are_valid = (_are_quantiles(quantiles, len(self.quantile_levels)) for quantiles in values)
            if not all(are_valid) or record.get("status", "") not in ("", MEASURED, FAILED):
                raise ValueError
            generation = int(record.get("generation", 0))
            return Evaluation(generation, str(record["arch"]), values, record.get("status", ""))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{self.path} line {number} is not an evaluation: {line[:80]!r}") from None

    def _advance(self, num_lines: int) -> None:
        self._position += num_lines
        self._generation += 1


def _to_evaluations(
    generation: int, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str]
) -> list[Evaluation]:
    return [
        Evaluation(generation, name, quantiles.tolist(), status.get(name, ""))
        for name, quantiles in zip(architectures, values, strict=True)
    ]


def _are_quantiles(values: object, count: int) -> bool:
    """Whether values are `count` finite numbers in ascending order."""
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        and all(-MAX_MAGNITUDE < v < MAX_MAGNITUDE for v in values)
        and values == sorted(values)
    )


def open_log(directory: Path, settings: SearchSettings, resume: bool) -> SearchLog:
    """Create a run directory if it does not exist, write its settings and return its log.

    Args:
        directory: the run directory.
        settings: settings of its search.
        resume: continue the search that the directory has.

    Raises:
        ValueError: see `check_search`, or the log is damaged.
    """
    check_search(directory, settings, resume)
    log = SearchLog(directory / "log.jsonl", settings)
    write_text(directory / "settings.json", json.dumps(asdict(settings), indent=2) + "\n")
    return log


def write_evaluations(log: SearchLog, evaluations: Sequence[Evaluation]) -> None:
    """Append evaluations to a log, a generation at a time."""
    for _, of_generation in groupby(evaluations, key=lambda e: e.generation):
        generation = list(of_generation)
        status = {e.architecture: e.status for e in generation if e.status}
        values = np.array([e.values for e in generation], dtype=float)
        log.append([e.architecture for e in generation], values, status)


def check_search(directory: Path, settings: SearchSettings, resume: bool) -> None:
    """Refuse a directory in which a search cannot run.

    Args:
        directory: the run directory.
        settings: settings of the search; a resumed one may have more generations.
        resume: continue the search that the directory has; without one, start it.

    Raises:
        ValueError: the directory holds other files, another search, or this one without `resume`.
    """
    for needed in (directory, directory / "front"):
        if needed.exists() and not needed.is_dir():
            raise ValueError(f"{needed} is a file: a search needs a directory of that name")
    check_writable(directory)
    if (directory / "settings.json").exists():
        existing = read_settings(directory)
        if not resume:
            raise ValueError(
                f"{directory} already holds a search: continue it with --resume, or choose another directory"
            )
        may_differ = ("location",) if settings.device else ("location", "generations")
        for name in (f.name for f in fields(SearchSettings) if f.name not in may_differ):
            if getattr(existing, name) != getattr(settings, name):
                is_model = name == "model"
                parts = ", fingerprints of model, space, user functions and --data" if is_model else ""
                raise ValueError(
                    f"{directory} holds another search, with {name} {getattr(existing, name)!r} instead of"
                    f" {getattr(settings, name)!r}{parts}: choose another directory"
                )
        if existing.generations > settings.generations:
            raise ValueError(
                f"{directory} holds a search of {existing.generations} generations: {settings.generations}"
                " generations would shorten it"
            )
    elif directory.exists() and any(not p.name.startswith(".") for p in directory.iterdir()):
        raise ValueError(f"{directory} is not empty and holds no search: choose another directory")


def read_settings(directory: Path) -> SearchSettings:
    """Return the settings of a run directory.

    Settings that a file of an earlier version lacks have their defaults.

    Raises:
        FileNotFoundError: the directory has no search.
        ValueError: the file is damaged.
    """
    path = directory / "settings.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no search: expected the --out of nas-rlm search")
    try:
        return TypeAdapter(SearchSettings).validate_python(json.loads(path.read_text()))
    except ValidationError as error:
        reason = message(error, [field.name for field in fields(SearchSettings)])
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise ValueError(f"{path} is not what nas-rlm search writes: {reason}")


def read_evaluations(directory: Path) -> list[Evaluation]:
    """Return the log of a run directory.

    Raises:
        ValueError: the log is damaged, or the search has evaluated nothing yet.
    """
    log = SearchLog(directory / "log.jsonl", read_settings(directory))
    if not log.lines:
        raise ValueError(
            f"{directory} holds a search that has evaluated nothing yet: continue it with --resume"
        )
    return log.evaluations


def read_result(directory: Path) -> SearchResult:
    """Return the evaluations of a run directory so far; of an architecture's evaluations the last counts.

    Raises:
        ValueError: the log is damaged, or the search has evaluated nothing yet.
    """
    settings = read_settings(directory)
    evaluations = read_evaluations(directory)
    space = settings.load_space()
    latest: dict[str, Evaluation] = {}
    for number, evaluation in enumerate(evaluations, 1):
        try:
            space.parse(evaluation.architecture)
            if evaluation.architecture in latest and not settings.device:
                raise ValueError(f"{evaluation.architecture} occurs twice")
        except ValueError as error:
            raise ValueError(f"{directory / 'log.jsonl'} line {number}: {error}") from None
        latest.pop(evaluation.architecture, None)  # the order is that of the last evaluations
        latest[evaluation.architecture] = evaluation
    return to_result(settings, list(latest.values()))


def to_result(settings: SearchSettings, evaluations: Sequence[Evaluation]) -> SearchResult:
    """Return evaluations of different architectures as the result of a search."""
    status = {e.architecture: e.status for e in evaluations if e.status}
    values = np.array([e.values for e in evaluations])
    return SearchResult(settings, [e.architecture for e in evaluations], values, status)


def write_feasibility(directory: Path, feasibility: Feasibility) -> None:
    """Write the feasibility estimate of a search into its run directory."""
    write_text(directory / "feasibility.json", json.dumps(asdict(feasibility), indent=2) + "\n")


def read_feasibility(directory: Path) -> Feasibility | None:
    """Return the feasibility estimate of a run directory, or None if there is none.

    Files of earlier versions have other names for some fields.

    Raises:
        ValueError: the file is damaged.
    """
    path = directory / "feasibility.json"
    if not path.is_file():
        return None
    earlier_names = {
        "architectures": "num_architectures",
        "shares": "constraint_rates",
        "share": "feasible_rate",
    }
    try:
        stored = {earlier_names.get(key, key): value for key, value in json.loads(path.read_text()).items()}
        ranges = {str(name): (float(a), float(b), float(c)) for name, (a, b, c) in stored["ranges"].items()}
        rates = {str(name): float(rate) for name, rate in stored["constraint_rates"].items()}
        return Feasibility(int(stored["num_architectures"]), ranges, rates, float(stored["feasible_rate"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not what nas-rlm search writes: {error}") from None


def read_samples(directory: Path, result: SearchResult) -> dict[str, np.ndarray]:
    """Return joint samples [S, K] of the highlighted architectures; none if the search is not finished.

    Args:
        directory: the run directory.
        result: its result.

    Raises:
        ValueError: the file is damaged.
    """
    path = directory / "samples.json"
    if not path.is_file():
        return {}
    try:
        samples = {name: np.array(rows, dtype=float) for name, rows in json.loads(path.read_text()).items()}
        num_objectives = len(result.settings.all_objectives)
        for rows in samples.values():
            if rows.ndim != 2 or rows.shape[1] != num_objectives or not np.isfinite(rows).all():
                raise ValueError(f"samples are not tables of {num_objectives} finite numbers")
        if not set(samples) <= set(result.architectures):
            raise ValueError("it has architectures that the log has not")
        return samples
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path} is not what nas-rlm search writes ({error}): search --resume writes it again"
        ) from None
