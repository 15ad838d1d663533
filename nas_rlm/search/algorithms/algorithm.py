"""The interface of search algorithms, and what several of them use."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from nas_rlm.search.table_space import TableSpace
from search_spaces import SearchSpace

INFEASIBLE_COST = 1e30  # cost and constraint violation of a network that does not run
MAX_DUPLICATES = 100  # duplicates per requested architecture before a space counts as exhausted
MAX_MUTATION_ATTEMPTS = 20  # mutations of a parent that yield only known architectures


class Algorithm(Protocol):
    """A search algorithm with an ask-and-tell interface."""

    def ask(self) -> list[Any]:
        """Return the next generation: new architectures, none when no new one is found."""

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Receive the evaluation of the generation that `ask` returned last.

        Args:
            costs: [N, K], smaller is better; NaN for an architecture that failed.
            violations: violation of each constraint [N, C], feasible where not positive.
        """


def nearest_new(
    space: SearchSpace[Any], parent: Any, known: Collection[str], rng: np.random.Generator
) -> Any | None:
    """Return the candidate that is nearest to a parent and new, where a search has given candidates.

    If these are a small part of the space, mutations of a parent lead to few of them.
    """
    return space.nearest(parent, known, rng) if isinstance(space, TableSpace) else None
