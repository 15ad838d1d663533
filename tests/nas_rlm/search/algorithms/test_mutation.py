import numpy as np

import search_spaces
from nas_rlm.search.algorithms.mutation import RegularisedEvolution, best_indices
from nas_rlm.search.settings import SearchSettings

PAIR = ("accuracy", "latency/pixel3")
SPACE = search_spaces.get("nasbench201")


def test_evolution_removes_the_oldest():
    algorithm = RegularisedEvolution(SPACE, SearchSettings("nasbench201", PAIR, population=5))
    for _ in range(3):
        generation = algorithm.ask()
        algorithm.tell(np.zeros((5, 2)), np.zeros((5, 0)))
    assert [a for a, *_ in algorithm.alive] == generation


def test_the_best_are_feasible_and_non_dominated():
    costs = np.array([[0, 0], [1, 3], [2, 2], [3, 3], [2, 2]], dtype=float)
    assert best_indices(costs, np.array([0.1, 0, 0, 0, 0])).tolist() == [1, 2]
    assert best_indices(costs, np.array([0.3, 0.2, 0.1, 0.4, 0.5])).tolist() == [2]
