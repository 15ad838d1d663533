"""Measured tables in a search: as a search space, as a predictor, and as labels beside a predictor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table, read
from nas_rlm.search.loop import SamplingPredictor
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import MEASURED
from nas_rlm.utils.validation import as_list
from search_spaces import SearchSpace

Labels = Table | Sequence[Row] | str | os.PathLike[str]  # rows, a table, or the path of one
ROWS_IN_MEMORY = "rows in memory"  # name of labels that were not read from a file


def check_candidates(space: SearchSpace[Any], names: Sequence[str]) -> list[str]:
    """Return candidates in the space's notation.

    Args:
        space: the search space.
        names: architectures.

    Raises:
        ValueError: there are none, one is not of the space or has no valid network, or two are the same.
    """
    canonical: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        try:
            architecture = space.parse(name)
            if reason := space.network_error(architecture):
                raise ValueError(reason)
            parsed = str(architecture)
        except ValueError as error:
            raise ValueError(f"candidate {number}: {error}") from None
        if parsed in canonical:
            raise ValueError(
                f"candidates {canonical[parsed]} and {number} are the same architecture: {parsed}"
            )
        canonical[parsed] = number
    if not canonical:
        raise ValueError(f"there are no candidates: expected at least one architecture of {space.name}")
    return list(canonical)


class TablePredictor:
    """A predictor that returns measured values.

    Args:
        table: measurements of one space.
        objectives: rows that lack one of them are left out.

    Attributes:
        values: by architecture, its measured values.

    Raises:
        ValueError: no row has all objectives.
    """

    def __init__(self, table: Table, objectives: Sequence[str]) -> None:
        rows = [row for row in table.rows if all(row.is_measured(name) for name in objectives)]
        if not rows:
            raise ValueError(f"no row of {table.name} has all of {', '.join(objectives)}")
        self.objectives = tuple(objectives)
        self.values = {row.arch_str: [row.targets[name] for name in objectives] for row in rows}
        self._max_hypervolumes: dict[tuple[tuple[str, ...], tuple[float, ...]], float] = {}

    def measured_values(self, names: Sequence[str], objectives: Sequence[str]) -> np.ndarray:
        """Return the measured values of N architectures: float64 [N, K]."""
        columns = [self.objectives.index(name) for name in objectives]
        values = np.array([self.values[name] for name in names], dtype=float)
        return values.reshape(-1, len(self.objectives))[:, columns]

    def relative_hypervolume(
        self, names: Sequence[str], objectives: Sequence[str], reference: Sequence[float]
    ) -> float:
        """Return the hypervolume of architectures' measured values, relative to that of the whole table.

        Args:
            names: the architectures.
            objectives: K of the table's objectives.
            reference: reference point, K values.

        Raises:
            ValueError: no architecture of the table is better than the reference point.
        """
        most = self.max_hypervolume(tuple(objectives), tuple(reference))
        if not most:
            point = ", ".join(f"{n} {v:g}" for n, v in zip(objectives, reference, strict=True))
            raise ValueError(f"no architecture of the table is better than the reference point: {point}")
        return hypervolume(self.measured_values(names, objectives), objectives, reference) / most

    def max_hypervolume(self, objectives: tuple[str, ...], reference: tuple[float, ...]) -> float:
        """Return the hypervolume of all architectures of the table."""
        if (objectives, reference) not in self._max_hypervolumes:
            values = self.measured_values(list(self.values), objectives)
            self._max_hypervolumes[objectives, reference] = hypervolume(values, objectives, reference)
        return self._max_hypervolumes[objectives, reference]

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Return the measured values as all quantiles: float64 [N, K, Q]."""
        values = self.measured_values([str(a) for a in architectures], objectives)
        return np.repeat(values[:, :, None], len(quantiles), axis=2)


class LabelledPredictor:
    """A predictor that returns labels where there are any, and another predictor's predictions elsewhere.

    Args:
        model: the other predictor.
        rows: labelled architectures of one space.
    """

    def __init__(self, model: SamplingPredictor, rows: Sequence[Row]) -> None:
        self.model = model
        self.rows = {row.arch_str: row for row in rows}

    def status(self, names: Sequence[str]) -> dict[str, str]:
        """Return `measured` for labelled architectures, see `nas_rlm.search.result.SearchResult`."""
        return {name: MEASURED for name in names if name in self.rows}

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Return quantiles of each objective: float64 [N, K, Q]; those of a label are all equal."""
        values = self.model.predict(space, architectures, objectives, quantiles)
        names = [str(a) for a in architectures]
        for k, objective in enumerate(objectives):
            insert_measurements(values[:, k], names, objective, self.rows)
        return values

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Return joint samples: float64 [N, num_samples, K]; those of a label are all equal."""
        values = self.model.sample(space, architectures, objectives, num_samples, seed)
        names = [str(a) for a in architectures]
        for k, objective in enumerate(objectives):
            insert_measurements(values[:, :, k], names, objective, self.rows)
        return values


def insert_measurements(
    values: np.ndarray, names: Sequence[str], objective: str, rows: Mapping[str, Row]
) -> None:
    """Overwrite predictions of an objective with measured values, in place.

    Args:
        values: predictions of N architectures, [N, …].
        names: the N architectures.
        objective: the predicted objective.
        rows: measurements by architecture.
    """
    for i, name in enumerate(names):
        row = rows.get(name)
        if row is not None and row.is_measured(objective):
            values[i] = row.targets[objective]


def read_labels(labels: Labels) -> Table:
    """Return labels as a table, whose name stands in messages.

    Args:
        labels: rows, a table, or the path of one.
    """
    if isinstance(labels, Table):
        return labels
    if isinstance(labels, str | os.PathLike):
        return replace(read(labels), name=str(labels))
    return Table(ROWS_IN_MEMORY, as_list(labels, "labels"))


def select_labels(table: Table, space: SearchSpace[Any], objectives: Sequence[str]) -> list[Row]:
    """Return a space's rows of a table that have every one of `objectives` that the table measures.

    Args:
        table: measurements; its name stands in messages.
        space: the search space.
        objectives: the objectives of interest; exact ones are left out.

    Returns:
        One row per architecture, the table's last one, with its name in the space's notation and with these
        objectives only.

    Raises:
        ValueError: no row of the space has these objectives, or an architecture is not of the space.

    Warns:
        UserWarning: rows are ignored.
    """
    of_space = [row for row in table.rows if row.space == space.name]
    measurable = [name for name in objectives if name not in EXACT_OBJECTIVES]
    names = [name for name in measurable if any(row.is_measured(name) for row in of_space)]
    if not names:
        if zeros := [name for name in measurable if any(row.targets.get(name) == 0 for row in of_space)]:
            raise ValueError(f"{table.name} has no {zeros[0]} of {space.name} above 0: write more digits")
        available = ", ".join(table.objectives) or "no objectives"
        spaces = ", ".join(sorted({repr(row.space) for row in table.rows})) or "no space"
        raise ValueError(
            f"{table.name} has no {' or '.join(measurable) or 'objective to learn'} of {space.name}:"
            f" it has {available} of {spaces}"
        )
    complete = [row.select(names) for row in of_space if all(row.is_measured(name) for name in names)]
    if not complete:
        raise ValueError(f"{table.name} has no row of {space.name} with {' and '.join(names)}")
    labels = {_canonical_name(space, row, table.name): row for row in complete}
    zeros = [n for row in of_space for n in names if row.targets.get(n) == 0 and not row.is_measured(n)]
    zero = ", or with 0: write more digits" if zeros else ""
    num_ignored = {
        "of another space": len(table) - len(of_space),
        f"without {' or '.join(names)}{zero}": len(of_space) - len(complete),
        "with a later row of the same architecture": len(complete) - len(labels),
    }
    if reasons := [f"{count:,} {reason}" for reason, count in num_ignored.items() if count]:
        total = sum(num_ignored.values())
        warnings.warn(
            f"{table.name}: ignored {total:,} of {len(table):,} rows: {', '.join(reasons)}", stacklevel=2
        )
    return [replace(row, arch_str=name) for name, row in labels.items()]


def _canonical_name(space: SearchSpace[Any], row: Row, table_name: str) -> str:
    """A row's architecture in its space's notation."""
    try:
        return str(space.parse(row.arch_str))
    except ValueError as error:
        raise ValueError(f"a row of {table_name}: {error}") from None
