import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import search_spaces
from nas_rlm import pareto
from nas_rlm.search import Constraint, Settings, search
from tests.nas_rlm.stubs import StubPredictor

PAIR = ("accuracy", "latency/pixel3")
REFERENCE = (80.0, 40.0)
SPACE = search_spaces.get("nasbench201")


def run(predictor=None, **changed):
    settings = Settings(
        **{"space": "nasbench201", "objectives": PAIR, "population": 20, "generations": 6, **changed}
    )
    return search(SPACE, predictor or StubPredictor(), settings)


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


class LengthPredictor:
    """Judges an architecture of any space by its graph: longer is better and slower."""

    def predict(self, space, architectures, objectives, quantiles):
        sizes = [len(space.to_onnx(a).SerializeToString()) for a in architectures]
        return np.array([[[size / 1000] * len(quantiles)] * len(objectives) for size in sizes])


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_can_be_searched(name):
    settings = Settings(name, PAIR, population=8, generations=4)
    first, again = (search(search_spaces.get(name), LengthPredictor(), settings) for _ in range(2))
    assert first.architectures == again.architectures
    assert len(set(first.architectures)) == 32
    assert all(str(search_spaces.get(name).parse(a)) == a for a in first.architectures)


@pytest.mark.parametrize("algorithm", ["nsga2", "random"])
def test_no_architecture_is_predicted_twice(algorithm):
    predictor = StubPredictor()
    result = run(predictor, algorithm=algorithm)
    assert len(predictor.predicted) == len(set(predictor.predicted)) == 120
    assert result.architectures == predictor.predicted


@pytest.mark.parametrize("algorithm", ["nsga2", "random"])
def test_the_seed_decides(algorithm):
    first, again, other = (run(algorithm=algorithm, seed=s) for s in (3, 3, 4))
    assert first.architectures == again.architectures
    assert np.array_equal(first.values, again.values)
    assert first.architectures != other.architectures


def test_global_random_state_does_not_matter():
    np.random.seed(0)  # noqa: NPY002
    first = run()
    np.random.seed(1)  # noqa: NPY002
    assert run().architectures == first.architectures


def test_nsga2_comes_near_the_best_of_the_whole_space_and_beats_random():
    everything = [SPACE.decode(np.array(g)) for g in product(range(5), repeat=6)]
    best = pareto.hypervolume(StubPredictor().medians(everything, PAIR), PAIR, REFERENCE)

    def share(algorithm):
        result = run(algorithm=algorithm, population=40, generations=12)
        return pareto.hypervolume(result.medians[result.front], PAIR, REFERENCE) / best

    assert share("nsga2") > 0.985
    assert share("nsga2") > share("random")


def test_the_front_is_what_nothing_evaluated_beats():
    result = run(objectives=("accuracy", "latency/pixel3", "latency/eyeriss"))
    costs = result.medians * [-1, 1, 1]
    beaten = [any((o <= c).all() and (o < c).any() for o in costs) for c in costs]
    front = set(result.front)
    assert {tuple(costs[i]) for i in front} == {tuple(c) for c, b in zip(costs, beaten, strict=True) if not b}
    assert len(front) == len({tuple(costs[i]) for i in front})
    accuracies = result.medians[result.front, 0]
    assert (np.diff(accuracies) <= 0).all()


def test_constraints_hold_on_the_front_and_pull_the_search():
    free, bound = run(), run(constraints=("latency/pixel3<=8", "accuracy>=90"))
    medians = bound.medians[bound.front]
    assert len(medians)
    assert (medians[:, 1] <= 8).all()
    assert (medians[:, 0] >= 90).all()
    assert bound.feasible.sum() > ((free.medians[:, 1] <= 8) & (free.medians[:, 0] >= 90)).sum()


def test_a_constraint_may_name_what_is_not_optimised():
    result = run(constraints=("latency/eyeriss<=4",))
    assert result.settings.predicted == (*PAIR, "latency/eyeriss")
    assert result.values.shape == (120, 3, 3)
    assert (result.medians[result.front, 2] <= 4).all()


def test_constraints_that_nothing_meets_leave_an_empty_front():
    result = run(constraints=("latency/pixel3<=0.01",))
    assert result.front.tolist() == []
    assert not result.feasible.any()


def test_one_objective_has_one_best():
    result = run(objectives=("accuracy",))
    assert len(result.front) == 1
    assert result.medians[result.front[0], 0] == result.medians.max()


@pytest.mark.parametrize("algorithm", ["nsga2", "random"])
def test_a_search_ends_when_the_space_is_exhausted(algorithm):
    settings = Settings("pairs", PAIR, algorithm=algorithm, population=4, generations=50)
    result = search(Pairs(), PairPredictor(), settings)
    assert sorted(result.architectures) == ["00", "01", "02", "10", "11", "12"]
    assert [result.architectures[i] for i in result.front] == ["10"]


@pytest.mark.parametrize(
    ("text", "values", "feasible"),
    [
        ("latency/pixel3<=20", [19, 20, 21], [True, True, False]),
        ("accuracy >= 93.5", [93, 93.5, 94], [False, True, True]),
        ("flops<=0", [-1, 0, 1], [True, True, False]),
    ],
)
def test_constraint(text, values, feasible):
    assert (Constraint.parse(text).violation(np.array(values, dtype=float)) <= 0).tolist() == feasible


@pytest.mark.parametrize(
    "text", ["", "accuracy", "accuracy<90", "accuracy=90", "<=3", "a<=x", "a<=nan", "a<=inf", "a<=1 2"]
)
def test_bad_constraint_is_shown(text):
    with pytest.raises(ValueError, match="latency/pixel3<=20") as error:
        Constraint.parse(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"objectives": ()}, "at least one objective"),
        ({"objectives": ("accuracy", "accuracy")}, "'accuracy' is given more than once"),
        ({"algorithm": "nsga"}, "did you mean 'nsga2'"),
        ({"population": 1}, "population is 1"),
        ({"generations": 0}, "generations is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"constraints": ("accuracy>90",)}, "'accuracy>90'"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        run(**changed)


def test_searching_does_not_need_torch():
    code = "import sys, nas_rlm.search, nas_rlm.plots; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_fails_is_not_bred_from():
    def status(names):
        return {name: "failed" for name in names if "nor_conv_3x3" in name}

    settings = Settings("nasbench201", ("accuracy", "latency/pixel3"), population=20, generations=8)
    result = search(SPACE, StubPredictor(), settings, status=status)
    with_it = [float("nor_conv_3x3" in name) for name in result.architectures]
    assert sum(with_it[-40:]) < 0.5 * sum(with_it[:40])
