from dataclasses import dataclass, field

import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.benchmarks.results import mean_and_worst
from nas_rlm.benchmarks.schedule import Schedule
from nas_rlm.benchmarks.search import proposals
from nas_rlm.benchmarks.search.gene_optimizers import GENE_OPTIMIZERS, SMAC
from nas_rlm.benchmarks.search.proposals import (
    METHODS,
    STUDY,
    ProposalBenchmark,
    proposal_benchmark,
    table_reference,
)
from nas_rlm.data import Row, Table
from nas_rlm.search.acquisition import active_search, candidate_pool
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.utils.extras import is_installed
from tests.nas_rlm.search.acquisition.test_active_search import NAMES, PREDICTOR, rows

OBJECTIVES = ("accuracy", "latency/mine")


@dataclass(frozen=True)
class Rlm:
    """A model that predicts nothing, with surrogates."""

    surrogates: dict = field(default_factory=dict)

    def predict(self, *args, **kwargs):
        raise ValueError("unknown objective")

    objectives = ()


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    return ProposalBenchmark(Table("mine", rows(NAMES[:40], OBJECTIVES)), OBJECTIVES, Rlm())


SLOW = "evolution", "nsga2"


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.long) if m in SLOW else m for m in METHODS]
)
def test_each_method_evaluates_different_architectures_of_the_table(method, benchmark):
    extra = "smac" if method == SMAC else "optuna"
    if method in GENE_OPTIMIZERS and not is_installed(extra):
        pytest.skip(f"{extra} is not installed")
    names = benchmark.run(method, 0, 12)
    assert len(set(names)) == len(names) == 12 and set(names) <= set(NAMES[:40])
    assert method in (*proposals.SELECTIONS, "gp") or benchmark.run(method, 0, 12) == names


def test_a_study_chooses_one_at_a_time(benchmark, monkeypatch):
    sizes = []

    def propose(surrogate, settings, count, **options):
        sizes.append(count)
        return active_search.propose(surrogate, settings, count, **options)

    monkeypatch.setattr(proposals, "propose", propose)
    assert len(benchmark.run(STUDY, 0, 12)) == 12
    assert sizes == [1] * 12


@pytest.mark.parametrize("method", ["study", "propose", "random", "tpe"])
def test_costs_of_trainings_are_spent(method, benchmark):
    if method == "tpe" and not is_installed("optuna"):
        pytest.skip("optuna is not installed")
    table = Table("mine", rows(NAMES[:40], OBJECTIVES))
    by_cost = ProposalBenchmark(table, OBJECTIVES, Rlm(), by_cost=True)
    names = by_cost.run(method, 0, 12)
    activations = [features["activations"] for features in PREDICTOR.raw_features(NAMES[:40])]
    of_names = [activations[NAMES.index(name)] for name in names]
    costs = np.cumsum(0.2 + 0.8 * np.array(of_names) / np.mean(activations))
    assert 12 - max(activations) / np.mean(activations) < costs[-1] <= 12
    assert by_cost.affordable(names, 5) == names[: int((costs <= 5).sum())]
    assert benchmark.affordable(names, 5) == names[:5]


def test_all_architectures_have_no_regret_and_the_full_hypervolume(benchmark):
    everything = benchmark.evaluate(NAMES[:40])
    assert (everything.regret, everything.relative_hypervolume) == (0, 1)
    some = benchmark.evaluate(NAMES[:3])
    accuracies = [row.targets["accuracy"] for row in rows(NAMES[:40], OBJECTIVES)]
    assert some.regret == pytest.approx(max(accuracies) - max(accuracies[:3]))
    assert some.relative_hypervolume < 1


def test_finished_searches_are_skipped(benchmark):
    found = dict(proposal_benchmark(benchmark, Schedule(["random"], [0, 1], (5, 12))))
    assert len(found) == 4
    assert not dict(proposal_benchmark(benchmark, Schedule(["random"], [0, 1], (5, 12)), finished=found))
    mean, worst = mean_and_worst(found, "regret")["accuracy x latency/mine", "random", 5]
    regrets = [found["accuracy x latency/mine", "random", seed, 5].regret for seed in (0, 1)]
    assert (mean, worst) == (np.mean(regrets), max(regrets))


def test_the_network_of_the_model_is_not_used(monkeypatch, tiny_checkpoint):
    """It may have been trained on the table."""
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    rlm = RLM.load(tiny_checkpoint)
    table = Table("mine", rows(NAMES[:40], ("accuracy",)))
    expected = ProposalBenchmark(table, ["accuracy"], rlm).run("propose", 0, 10)
    monkeypatch.setattr(RLM, "predict", lambda *args, **options: pytest.fail("the network was used"))
    assert ProposalBenchmark(table, ["accuracy"], rlm).run("propose", 0, 10) == expected


def test_the_reference_is_published_unless_no_architecture_is_better():
    better, worse = ({"accuracy": accuracy, "latency/pixel3": 30.0} for accuracy in (90.0, 60.0))
    for targets, expected in ((better, [80.0, 40.0]), (worse, [60.0, 33.0])):
        table = Table("mine", [Row("nasbench201", name, targets) for name in NAMES[:3]])
        true_values = TablePredictor(table, ("accuracy", "latency/pixel3"))
        assert table_reference(true_values, "nasbench201", true_values.objectives) == pytest.approx(expected)
