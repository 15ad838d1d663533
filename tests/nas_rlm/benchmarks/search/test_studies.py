import numpy as np
import pytest

from nas_rlm.benchmarks.results import mean_and_worst
from nas_rlm.benchmarks.schedule import Schedule
from nas_rlm.benchmarks.search import studies
from nas_rlm.benchmarks.search.studies import (
    HALVING,
    METHODS,
    STUDY,
    NeighbourSpace,
    StudyBenchmark,
    Trainings,
    promoted,
    study_benchmark,
)
from nas_rlm.data import Row, Table
from nas_rlm.search.acquisition import candidate_pool, selection
from nas_rlm.search.pareto import hypervolume
from nas_rlm.utils.extras import is_installed
from tests.nas_rlm.benchmarks.search.test_proposals import Rlm
from tests.nas_rlm.search.test_fidelity_surrogate import NAMES, value
from tests.nas_rlm.stubs import CELLS


@pytest.fixture
def benchmark(monkeypatch):
    """A table with accuracies after 12 and 200 epochs."""
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(selection, "POOL_SIZE", 40)
    rows = [
        Row("nasbench201", name, {"accuracy/cifar10_12ep": value(name, 4), "accuracy": value(name, 16)})
        for name in NAMES
    ]
    return StudyBenchmark(Table("mine", rows), (12, 200), Rlm())


@pytest.mark.parametrize("method", METHODS)
def test_each_method_spends_the_same_epochs(method, benchmark):
    if method == studies.TPE and not is_installed("optuna"):
        pytest.skip("optuna is not installed")
    trainings = benchmark.run(method, 0, 4)
    assert 800 - 188 < trainings.cost <= 800
    assert trainings.levels.keys() <= set(NAMES)
    evaluation = benchmark.evaluate(trainings, 4)
    assert evaluation.started == len(trainings.levels) >= evaluation.complete
    assert evaluation.regret >= 0


def test_regret_is_that_of_complete_trainings(benchmark):
    best, second, third, fourth, *_ = sorted(NAMES, key=lambda name: -value(name, 16))
    trainings = Trainings(benchmark.values, (12, 200), 420)
    assert trainings.train(best).tolist() == [-value(best, 4)] and not trainings.is_complete(best)
    assert trainings.train(second).tolist() == [-value(second, 4)]
    assert trainings.train(second).tolist() == [-value(second, 16)] and trainings.is_complete(second)
    assert trainings.log == [(12, best, 0), (24, second, 0), (212, second, 1)]
    assert benchmark.evaluate(trainings, 1).complete == 0  # 212 epochs are more than 200
    found = benchmark.evaluate(trainings, 2)
    assert found.complete == 1 and found.started == 2
    assert found.regret == pytest.approx(value(best, 16) - value(second, 16))
    assert trainings.train(best).tolist() == [-value(best, 16)]
    assert benchmark.evaluate(trainings, 2).regret == 0
    assert trainings.train(third) is not None
    assert trainings.train(fourth) is None and trainings.cost == 412


def test_successive_halving_continues_the_best_share():
    values = {name: -np.array([[i], [50.0 + i], [90.0]]) for i, name in enumerate("abcdefgh")}
    trainings = Trainings(values, (1, 4, 16), 1000)
    for name in "abc":
        trainings.train(name)
    assert promoted(trainings) is None
    trainings.train("h")
    assert promoted(trainings) == "h"
    trainings.train("h")
    assert promoted(trainings) is None
    for name in "defg":
        trainings.train(name)
    assert promoted(trainings) == "g"


def test_successive_halving_of_two_objectives_continues_the_best_front():
    values = {"a": [[-90.0, 5.0]], "b": [[-80.0, 1.0]], "c": [[-85.0, 6.0]], "d": [[-70.0, 2.0]]}
    trainings = Trainings({name: np.array([*v, *v]) for name, v in values.items()}, (1, 2), 1000)
    for name in "dcab":
        trainings.train(name)
    assert {trained_next(trainings), trained_next(trainings)} == {"a", "b"}
    assert promoted(trainings) is None


def trained_next(trainings):
    name = promoted(trainings)
    trainings.train(name)
    return name


@pytest.mark.parametrize("method", METHODS)
def test_two_objectives(method, monkeypatch):
    """The hypervolume is that of complete trainings; only the accuracy depends on the epochs."""
    if method == studies.TPE and not is_installed("optuna"):
        pytest.skip("optuna is not installed")
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(selection, "POOL_SIZE", 40)
    objectives = ("accuracy", "latency/mine")
    benchmark = StudyBenchmark(with_latencies(), (12, 200), Rlm(), objectives)
    trainings = benchmark.run(method, 0, 4)
    assert 800 - 188 < trainings.cost <= 800
    complete = [name for name in trainings.levels if trainings.is_complete(name)]
    found = benchmark.evaluate(trainings, 4)
    points = np.array([benchmark.true_values.values[name][-2:] for name in complete]).reshape(-1, 2)
    table = np.array([[row.targets[name] for name in objectives] for row in with_latencies().rows])
    volume, most = (hypervolume(p, objectives, benchmark.reference) for p in (points, table))
    assert found.relative_hypervolume == pytest.approx(volume / most)
    assert found.complete == len(complete)


def with_latencies():
    """A table whose latencies fall with the accuracy of some cells and rise with that of others."""
    rows = []
    for i, name in enumerate(NAMES):
        early, late = value(name, 4), value(name, 16)
        latency = 3.0 + (late - 90) * (1 if i % 2 else -1) / 50
        rows.append(
            Row(
                "nasbench201",
                name,
                {"accuracy/cifar10_12ep": early, "accuracy": late, "latency/mine": latency},
            )
        )
    return Table("mine", rows)


def test_the_first_objective_is_accuracy(benchmark):
    with pytest.raises(ValueError, match="objectives are latency/mine: the first one is accuracy"):
        StudyBenchmark(with_latencies(), (12, 200), Rlm(), ["latency/mine"])


def test_budgets_that_the_table_has_not_are_refused(benchmark):
    table = Table("mine", [Row("nasbench201", NAMES[0], {"accuracy": 90.0})])
    with pytest.raises(ValueError, match="budget 13 is not among 12, 200 of mine"):
        StudyBenchmark(table, (13, 200), Rlm())
    with pytest.raises(ValueError, match=r"budgets are \[12\], expected two ascending ones up to 200"):
        StudyBenchmark(table, (12,), Rlm())


def test_finished_searches_are_skipped_and_averaged(benchmark):
    found = dict(study_benchmark(benchmark, Schedule([HALVING, "random"], [0, 1], (2, 4))))
    assert len(found) == 8
    assert not dict(study_benchmark(benchmark, Schedule([HALVING, "random"], [0, 1], (2, 4)), finished=found))
    mean, worst = mean_and_worst(found, "regret")["accuracy", HALVING, 4]
    regrets = [found["accuracy", HALVING, seed, 4].regret for seed in (0, 1)]
    assert mean == pytest.approx(np.mean(regrets)) and worst == max(regrets)


def test_mutations_of_a_small_table_are_its_nearest_architectures():
    space = NeighbourSpace(CELLS, NAMES)
    rng = np.random.default_rng(0)
    cell = CELLS.parse(NAMES[0])
    genomes = {name: CELLS.encode(CELLS.parse(name)) for name in NAMES}
    found = {str(space.mutate(cell, rng)) for _ in range(30)}
    assert NAMES[0] not in found and len(found) > 5
    distances = {name: (genomes[name] != genomes[NAMES[0]]).sum() for name in NAMES}
    nearest = sorted(distances.values())[: studies.NUM_NEIGHBOURS + 1]
    assert max(distances[name] for name in found) <= max(nearest)


def test_a_study_is_better_than_chance(benchmark):
    regrets = [benchmark.evaluate(benchmark.run(STUDY, seed, 5), 5).regret for seed in (0, 1)]
    others = [benchmark.evaluate(benchmark.run("random", seed, 5), 5).regret for seed in range(10)]
    assert np.mean(regrets) < np.mean(others)
