"""Constraints on quantities that are computed from the graph, and so are known before any measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.search.settings import Constraint, SearchSettings
from search_spaces import SearchSpace
from search_spaces.wording import counted


def exact_values(space: SearchSpace[Any], architecture: Any, names: Sequence[str]) -> dict[str, float]:
    """Return those of `flops` and `params` of an architecture that are among names."""
    count = {"flops": space.flops, "params": space.params}
    return {name: float(count[name](architecture)) for name in EXACT_OBJECTIVES if name in names}


class ExactConstraints:
    """The constraints of a search on `flops` and `params`; false where it has none.

    Args:
        space: the search space.
        settings: settings of the search.
    """

    def __init__(self, space: SearchSpace[Any], settings: SearchSettings) -> None:
        self.space = space
        self.constraints = [c for c in settings.parsed_constraints if c.objective in EXACT_OBJECTIVES]
        self._values: dict[str, dict[str, float]] = {}  # by architecture

    def __bool__(self) -> bool:
        return bool(self.constraints)

    def __str__(self) -> str:
        return " and ".join(f"{c.name}{'<=' if c.is_upper else '>='}{c.bound:g}" for c in self.constraints)

    def violation(self, name: str) -> float:
        """Return by how much an architecture breaks the constraints in total, relative to their bounds."""
        if name not in self._values:
            names = [constraint.objective for constraint in self.constraints]
            self._values[name] = exact_values(self.space, self.space.parse(name), names)
        values = self._values[name]
        excess = (float(c.violation(np.array(values[c.objective]))) for c in self.constraints)
        return sum(max(0.0, value) for value in excess)

    def is_met(self, name: str) -> bool:
        """Return whether an architecture meets all constraints."""
        return self.violation(name) <= 0

    def refusal(self) -> str:
        """Return the message that no architecture that was examined meets the constraints."""
        num_examined = counted(len(self._values), "architecture")
        extremes = [(c, self._extreme(c)) for c in self.constraints]
        unmet = [(c, value) for c, value in extremes if c.violation(np.array(value)) > 0]
        if unmet:
            texts = [f"the {'smallest' if c.is_upper else 'largest'} {c.name} is {v:,.0f}" for c, v in unmet]
            reason = " and ".join(texts)
        else:
            nearest = self._values[min(self._values, key=self.violation)]
            texts = [f"{name} {value:,.0f}" for name, value in nearest.items()]
            reason = f"each is met alone, and the nearest one to all has {' and '.join(texts)}"
        return f"none of {num_examined} of {self.space.name} that were examined meets {self}: {reason}"

    def _extreme(self, constraint: Constraint) -> float:
        """The value that was seen and is best for a constraint."""
        values = [of_architecture[constraint.objective] for of_architecture in self._values.values()]
        return min(values) if constraint.is_upper else max(values)
