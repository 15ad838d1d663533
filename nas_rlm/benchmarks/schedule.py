"""Which searches a benchmark runs: each method with each seed, judged several times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

POPULATION = 10  # architectures a generation, of evolution and NSGA-II on true values


@dataclass(frozen=True)
class Schedule:
    """Searches with each method and seed.

    Args:
        methods: names of the methods.
        seeds: seeds of the searches.
        counts: numbers of evaluations, or costs, after which a search is judged.
    """

    methods: Sequence[str]
    seeds: Sequence[int]
    counts: Sequence[int]

    def remaining(
        self, finished: Collection[tuple[Any, ...]], case: Sequence[Any] = ()
    ) -> list[tuple[str, int]]:
        """Return the method and the seed of each search that lacks a result.

        Args:
            finished: keys of results: the values of a case, method, seed and count.
            case: values that the keys of these searches start with.
        """
        return [
            (method, seed)
            for seed in self.seeds
            for method in self.methods
            if any((*case, method, seed, count) not in finished for count in self.counts)
        ]
