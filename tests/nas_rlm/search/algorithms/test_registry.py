from itertools import product

import numpy as np
import pytest

import search_spaces
from nas_rlm.search import pareto
from nas_rlm.search.loop import search
from nas_rlm.search.settings import ALGORITHMS, SearchSettings
from nas_rlm.search.table_space import TableSpace
from tests.nas_rlm.stubs import StubPredictor

PAIR = ("accuracy", "latency/pixel3")
REFERENCE = (80.0, 40.0)
SPACE = search_spaces.get("nasbench201")


class Pairs:
    """A space of six architectures, two digits each."""

    name, size, genes = "pairs", 6, (2, 3)

    def decode(self, genome):
        return f"{genome[0]}{genome[1]}"

    def encode(self, architecture):
        return np.array([int(c) for c in architecture])

    def sample(self, rng):
        return self.decode([rng.integers(2), rng.integers(3)])

    def mutate(self, architecture, rng):
        return self.sample(rng)

    def crossover(self, a, b, rng):
        return a[0] + b[1]


class PairPredictor:
    def predict(self, space, architectures, objectives, quantiles):
        rows = [[float(a[0]) + 80, float(a[1])] for a in architectures]
        return np.repeat(np.array(rows)[:, :, None], len(quantiles), axis=2)


THREE = (*PAIR, "latency/eyeriss")


def run(algorithm, predictor=None, **changed):
    settings = {"objectives": PAIR, "population": 20, "generations": 6, **changed}
    settings = SearchSettings("nasbench201", algorithm=algorithm, **settings)
    return search(SPACE, predictor or StubPredictor(), settings)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("objectives", [PAIR[:1], PAIR, THREE, (*THREE, "flops")])
def test_no_architecture_is_predicted_twice(algorithm, objectives):
    if algorithm == "sms-emoa" and len(objectives) == 1:
        with pytest.raises(ValueError, match="expected at least two objectives"):
            run(algorithm, objectives=objectives)
        return
    predictor = StubPredictor()
    result = run(algorithm, predictor, objectives=objectives)
    assert len(predictor.predicted) == len(set(predictor.predicted)) == 120
    assert result.architectures == predictor.predicted
    assert len(result.front)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [3, 50])
def test_initial_architectures_are_evaluated_first_and_varied(algorithm, count):
    cells = [SPACE.decode(np.array(g)) for g in product(range(5), repeat=6)]
    best = np.argsort(-StubPredictor().medians(cells, PAIR[:1])[:, 0], kind="stable")[:count]
    initial = [cells[i] for i in best]
    settings = SearchSettings("nasbench201", PAIR, algorithm=algorithm, population=20, generations=6)
    predictor = StubPredictor()
    result = search(SPACE, predictor, settings, initial_architectures=initial)
    first = set(result.architectures[: 20 + count])
    assert set(map(str, initial)) <= first
    assert len(result.architectures) == len(set(result.architectures)) == 120 + count
    assert result.medians[result.front[0], 0] == StubPredictor().medians(initial, PAIR)[:, 0].max()
    if algorithm == "local":  # whose next ones are neighbours of the best
        again = search(SPACE, predictor, settings)
        assert again.architectures[20:] != result.architectures[20 + count :]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_seed_determines_the_search(algorithm):
    first, again, other = (run(algorithm, seed=s) for s in (3, 3, 4))
    assert first.architectures == again.architectures
    assert np.array_equal(first.values, again.values)
    assert first.architectures != other.architectures


@pytest.fixture(scope="module")
def best():
    all_cells = [SPACE.decode(np.array(g)) for g in product(range(5), repeat=6)]
    return pareto.hypervolume(StubPredictor().medians(all_cells, PAIR), PAIR, REFERENCE)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "random"])
def test_all_algorithms_approach_the_best_hypervolume_and_beat_random_search(algorithm, best):
    def share(name):
        result = run(name, population=40, generations=12)
        return pareto.hypervolume(result.medians[result.front], PAIR, REFERENCE) / best

    assert share(algorithm) > 0.975
    assert share(algorithm) > share("random")


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "random"])
def test_constraints_increase_the_share_of_feasible_architectures(algorithm):
    bounds = ("latency/pixel3<=6", "accuracy@0.1>=84")
    (bound, *more), free = (
        [run(algorithm, constraints=c, generations=10, seed=s) for s in range(3)] for c in (bounds, ())
    )
    levels = dict(
        zip(bound.settings.quantile_levels, bound.values[bound.front].transpose(2, 0, 1), strict=True)
    )
    assert len(bound.front)
    assert (levels[0.5][:, 1] <= 6).all() and (levels[0.1][:, 0] >= 84).all()
    met = [(bound.settings.violations(one.values).max(1) <= 0).sum() for one in free]
    assert sum(one.feasible.sum() for one in (bound, *more)) > 1.2 * sum(met)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "random"])
def test_failed_architectures_have_no_offspring(algorithm):
    def status(names):
        return {name: "failed" for name in names if "nor_conv_3x3" in name}

    settings = SearchSettings("nasbench201", PAIR, algorithm=algorithm, population=20, generations=8)
    result = search(SPACE, StubPredictor(), settings, status=status)
    with_it = np.array(["nor_conv_3x3" in name for name in result.architectures])
    assert with_it[-60:].mean() < with_it[:20].mean() / 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_ends_when_the_space_is_exhausted(algorithm):
    settings = SearchSettings("pairs", PAIR, algorithm=algorithm, population=4, generations=50)
    result = search(Pairs(), PairPredictor(), settings)
    assert sorted(result.architectures) == ["00", "01", "02", "10", "11", "12"]
    assert [result.architectures[i] for i in result.front] == ["10"]


@pytest.mark.parametrize("algorithm", ["nsga2", "nsga3", "sms-emoa"])
def test_a_search_continues_when_most_neighbours_were_evaluated(algorithm):
    found = run(algorithm, population=50, generations=60)
    assert len(found.architectures) == 3000


@pytest.mark.parametrize("algorithm", ["evolution", "nsga2"])
def test_candidates_that_are_few_of_a_space_are_all_found_near_the_best(algorithm):
    """Mutations of an architecture lead to the same few candidates again."""
    space, rng = search_spaces.get("ofa_mbv3"), np.random.default_rng(0)
    candidates = TableSpace(space, [*{str(space.sample(rng)): None for _ in range(150)}])

    class Blocks:
        def predict(self, space, architectures, objectives, quantiles):
            totals = np.array([float(space.encode(a).sum()) for a in architectures])
            return np.repeat(totals[:, None, None], len(quantiles), axis=2)

    settings = SearchSettings("ofa_mbv3", ("accuracy",), algorithm=algorithm, population=10, generations=14)
    found = search(candidates, Blocks(), settings)
    assert len({*found.architectures}) == 140
