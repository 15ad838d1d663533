"""The search algorithms by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nas_rlm.search.algorithms.algorithm import Algorithm
from nas_rlm.search.algorithms.genetic import Nsga2, Nsga3, SmsEmoa
from nas_rlm.search.algorithms.mutation import LocalSearch, RegularisedEvolution
from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.settings import SearchSettings
from search_spaces import SearchSpace

ALGORITHM_CLASSES: dict[str, Callable[[SearchSpace[Any], SearchSettings, Sequence[Any]], Algorithm]] = {
    "nsga2": Nsga2,
    "nsga3": Nsga3,
    "sms-emoa": SmsEmoa,
    "evolution": RegularisedEvolution,
    "local": LocalSearch,
    "random": RandomSearch,
}
