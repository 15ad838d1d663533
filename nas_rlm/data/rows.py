"""Measured architectures and programs, and named lists of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nas_rlm.data.objective_kinds import LATENCY_PREFIX, Declaration, declared_maximised, is_accuracy
from nas_rlm.text.parser import is_onnx_text
from nas_rlm.utils.validation import suggest

TEXTS = ("arch_str", "input", "space", "metainformation", "identifier", "uid", "group", "source")
KERNEL_SPACES = ("triton", "KBSS")  # of Triton kernels: measured, and of the published dataset


@dataclass(frozen=True)
class Row:
    """A measured architecture or program.

    Args:
        space: name of the search space, or the table's own name where no search space is registered.
        arch_str: architecture in the benchmark's notation.
        targets: value of each measured objective by name: accuracy in percent, latency in milliseconds,
            memory in bytes, `flops` in multiply-accumulates, `params` as a number; other objectives in any
            unit, see `nas_rlm.data.objective_kinds`. NumPy scalars become numbers of Python.
        input: text of the network, or source of the program; empty where the search space generates it.
        identifier: name of the row, such as the path of a measured file; may be empty.
        uid: kind of measurement, in files that combine several; may be empty.
        metainformation: details of the measurement, as text.
        group: problem that a program solves, or family of a network; `nas_rlm.data.splits` can keep the
            rows of a group together.
        source: person or group that wrote a program; may be empty.
    """

    space: str
    arch_str: str
    targets: dict[str, float]
    input: str = ""
    identifier: str = ""
    uid: str = ""
    metainformation: str = ""
    group: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not all(type(name) is str and type(value) is float for name, value in self.targets.items()):
            targets = {str(name): _plain(value) for name, value in self.targets.items()}
            object.__setattr__(self, "targets", targets)
        for name in TEXTS:
            if isinstance(getattr(self, name), np.str_):
                object.__setattr__(self, name, str(getattr(self, name)))

    def is_measured(self, objective: str) -> bool:
        """Return whether the row has a finite value, which for a latency is above zero.

        Negative values and zero are values of other objectives, such as a loss.
        """
        value = self.targets.get(objective, math.nan)
        return math.isfinite(value) and (value > 0 or not objective.startswith(LATENCY_PREFIX))

    @property
    def is_program(self) -> bool:
        """Whether the row is a program and not a network."""
        return bool(self.input) and not is_onnx_text(self.input)

    def select(self, objectives: Collection[str]) -> Row:
        """Return the row with the targets of these objectives only."""
        return replace(self, targets={k: v for k, v in self.targets.items() if k in objectives})


@dataclass
class Table:
    """A named list of rows, as a file contains it.

    Args:
        name: name of the table: that of its file, without suffix.
        rows: measured architectures or programs.
        declarations: units and directions of objectives, as far as they are not those of their kind.
    """

    name: str
    rows: list[Row] = field(default_factory=list)
    declarations: dict[str, Declaration] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def objectives(self) -> list[str]:
        """All objectives that at least one row has, accuracies first."""
        names = {name for row in self.rows for name in row.targets}
        return sorted(names, key=lambda n: (not is_accuracy(n), n))

    @property
    def maximised(self) -> tuple[str, ...]:
        """The objectives that the table declares to be maximised."""
        return declared_maximised(self.declarations)

    @property
    def has_only_programs(self) -> bool:
        """Whether all rows are programs."""
        return all(row.is_program for row in self.rows)

    def where_measured(self, *objectives: str) -> Table:
        """Return the rows in which the objectives are measured."""
        return replace(self, rows=[row for row in self.rows if all(map(row.is_measured, objectives))])

    def column(self, objective: str) -> np.ndarray:
        """Return the values of an objective, float64 [N], NaN where it is not measured."""
        return np.array([r.targets[objective] if r.is_measured(objective) else math.nan for r in self.rows])

    def of_spaces(self, names: Sequence[str]) -> Table:
        """Return the rows of some spaces.

        Args:
            names: names of the spaces.

        Raises:
            ValueError: no row is of one of them.
        """
        present = dict.fromkeys(row.space for row in self.rows)
        for name in names:
            if name not in present:
                raise ValueError(f"no row of {self.name} is of the space {name!r}; {suggest(name, present)}")
        return replace(self, rows=[row for row in self.rows if row.space in names])

    def sample(self, max_rows: int) -> Table:
        """Return at most `max_rows` rows, drawn at random with a fixed seed where there are more."""
        drawn = np.random.default_rng(0).permutation(len(self))[:max_rows]
        return replace(self, rows=[self.rows[i] for i in drawn]) if max_rows < len(self) else self


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a number of Python, and any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value
