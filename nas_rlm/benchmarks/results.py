"""Benchmark results as JSON lines: appended one by one, so that an interrupted benchmark can continue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nas_rlm.files import check_target
from nas_rlm.utils.json_lines import append_records, read_lines, truncate_after

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")
Key = TypeVar("Key", bound=tuple[Any, ...])
DEFAULT_DECIMALS = 4


class Results(Generic[Result]):
    """The results of a benchmark with certain settings, in a file that may hold those of other settings too.

    Examples:
        >>> from nas_rlm.benchmarks.timing import Timing
        >>> results = Results(Path("runs/speed.jsonl"), Timing, {"model": "nas"}, ("part", "case"))
        >>> results.add(("text", "fbnet"), Timing(units=1000, seconds=0.5, spread=0.1, memory=2.0))
        >>> results.records["text", "fbnet"].per_second
        2000.0

    Args:
        path: the file of JSON lines; None to keep the results in memory only.
        result_type: a dataclass of numbers.
        settings: names and values that all of these results have in common.
        key_names: names of the values that identify a result, such as method and seed.
        decimals: decimals of the numbers in the file.

    Attributes:
        records: results by the values of their key, in the order in which they were added.

    Raises:
        ValueError: the path is a directory, or a line of the file is not a result of this benchmark. A last
            line that is incomplete is removed from the file.
    """

    def __init__(
        self,
        path: Path | None,
        result_type: type[Result],
        settings: Mapping[str, Any],
        key_names: Sequence[str],
        decimals: int = DEFAULT_DECIMALS,
    ) -> None:
        self.path, self._settings, self._decimals = path, dict(settings), decimals
        self._key_names = tuple(key_names)
        self._defaults = {
            field.name: field.default for field in fields(result_type) if field.default is not MISSING
        }
        self._field_names = [field.name for field in fields(result_type)]
        self._required = [field.name for field in fields(result_type) if field.default is MISSING]
        self.records: dict[tuple[Any, ...], Result] = {}
        for record in self._read(path) if path else ():
            if all(record[name] == value for name, value in settings.items()):
                key = tuple(record[name] for name in key_names)
                self.records[key] = result_type(
                    **{name: record[name] for name in self._field_names if name in record}
                )

    def add(self, key: Sequence[Any], result: Result) -> None:
        """Add a result, and return when it is on disk.

        Args:
            key: values of `key_names`.
            result: the result.
        """
        self.records[tuple(key)] = result
        if self.path is not None:
            rounded = {name: round(number, self._decimals) for name, number in asdict(result).items()}
            record = {**self._settings, **dict(zip(self._key_names, key, strict=True)), **rounded}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_records(self.path, [record])

    def add_all(self, results: Iterable[tuple[Sequence[Any], Result]]) -> None:
        """Add each result, with its key before it, as soon as it is available."""
        for key, result in results:
            self.add(key, result)

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """Return the records of all settings in a file, without an incomplete last line."""
        check_target(path)
        if path.exists() and not path.is_file():
            raise ValueError(f"{str(path)!r} is not a regular file: expected a new one, or results")
        lines, incomplete = read_lines(path)
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(self._checked(json.loads(line)))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise ValueError(
                    f"{str(path)!r} line {number} is not a result of this benchmark: {line[:80]!r}"
                ) from None
        first_name = [*self._settings, *self._key_names][0]
        if incomplete and not (records or incomplete.startswith(f'{{"{first_name}": '.encode())):
            raise ValueError(f"{str(path)!r} is not a file of results: it holds {incomplete[:80]!r}")
        if incomplete:
            truncate_after(path, lines)
        return records

    def _checked(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record that has all names, and numbers for all fields without default.

        Raises:
            KeyError, TypeError: a name is missing, or a value has the wrong type.
        """
        record = {**self._defaults, **record}  # fields that older results do not have
        hash(tuple(record[name] for name in self._key_names))
        if not all(type(record[name]) in (int, float) for name in self._required):
            raise TypeError
        if not self._settings.keys() <= record.keys():
            raise KeyError
        return record


def over_seeds(results: Mapping[Key, object], field: str) -> dict[tuple[Any, ...], list[float]]:
    """Return the numbers of all seeds, by the key without the seed.

    Args:
        results: results by keys whose last value but one is the seed.
        field: name of a field of a result.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for key, result in results.items():
        groups.setdefault((*key[:-2], key[-1]), []).append(float(getattr(result, field)))
    return groups


def mean_and_worst(results: Mapping[Key, object], field: str) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return the mean and the worst over seeds, by the key without the seed.

    Args:
        results: see `over_seeds`.
        field: `regret`, of which the largest is the worst, or `relative_hypervolume`.
    """
    worst = max if field == "regret" else min
    groups = over_seeds(results, field)
    return {key: (sum(values) / len(values), worst(values)) for key, values in groups.items()}
