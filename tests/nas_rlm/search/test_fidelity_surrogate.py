import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate, level_name
from nas_rlm.search.result import FAILED, MEASURED
from tests.nas_rlm.stubs import CELLS, StubPredictor

BUDGETS = (1, 4, 16)
RNG = np.random.default_rng(0)
NAMES = list(dict.fromkeys(str(CELLS.sample(RNG)) for _ in range(90)))[:80]
# What no feature of the graph explains, and the values of all budgets share.
LUCK = dict(zip(NAMES, RNG.normal(0, 4, len(NAMES)), strict=True))


def value(name, budget):
    quality = StubPredictor().medians([name], ["accuracy"])[0, 0]
    return float(0.5 * quality + (1 - 1 / budget) * 10 + LUCK[name])


def row(name, level):
    """The values of a cell up to a budget."""
    values = {level_name("accuracy", BUDGETS, i): value(name, BUDGETS[i]) for i in range(level + 1)}
    return Row("nasbench201", name, values)


def surrogate_of(*rows):
    predictor = CachedPredictor(StubPredictor(), CELLS)
    surrogate = FidelitySurrogate(predictor, ["accuracy"], {}, ["accuracy"], BUDGETS)
    surrogate.update(rows)
    return surrogate


def predicted(surrogate, names):
    """Quantiles at .1, .5 and .9: [N, 3]."""
    return surrogate.predict(CELLS, names, ["accuracy"])[:, 0]


@pytest.fixture(scope="module")
def surrogate():
    """15 cells with the full budget, 15 with the second, 30 with the first; 20 are new."""
    levels = [2] * 15 + [1] * 15 + [0] * 30
    return surrogate_of(*(row(name, level) for name, level in zip(NAMES, levels, strict=False)))


def test_values_at_smaller_budgets_tell_what_the_graph_does_not(surrogate):
    assert surrogate.predicts_full_budget
    true = np.array([value(name, 16) for name in NAMES])
    values = predicted(surrogate, NAMES)
    assert values[:15] == pytest.approx(np.repeat(true[:15, None], 3, 1))
    of_paused, of_new = values[15:60], values[60:]
    assert spearman(of_paused[:, 1], true[15:60]) > 0.9 > spearman(of_new[:, 1], true[60:])
    widths = values[:, 2] - values[:, 0]
    assert np.median(widths[60:]) > 1.5 * np.median(widths[15:60]) > 0
    inside = (values[15:, 0] <= true[15:]) & (true[15:] <= values[15:, 2])
    assert 0.6 < inside.mean() <= 1


def test_the_largest_budget_with_enough_labels_is_predicted():
    levels = [2] * 4 + [1] * 8 + [0] * 20
    surrogate = surrogate_of(*(row(name, level) for name, level in zip(NAMES, levels, strict=False)))
    assert surrogate.is_ready and surrogate.target == 1 and not surrogate.predicts_full_budget
    values = predicted(surrogate, NAMES[:20])[:, 1]
    assert values[:12] == pytest.approx([value(name, 4) for name in NAMES[:12]])
    assert spearman(values[12:], np.array([value(name, 4) for name in NAMES[12:20]])) > 0.8
    at_full_budget = surrogate.with_target(2)  # those that have values
    assert predicted(at_full_budget, NAMES[:4])[:, 1] == pytest.approx([value(n, 16) for n in NAMES[:4]])
    assert surrogate.target == 1
    surrogate.update([row(name, 2) for name in NAMES[4:10]])
    assert surrogate.predicts_full_budget


def test_failed_and_paused_trials_are_not_measured(surrogate):
    failed = surrogate_of(
        *(row(name, 0) for name in NAMES[:12]), row(NAMES[12], 1), Row("nasbench201", NAMES[12], {})
    )
    assert failed.status(NAMES[:14]) == dict.fromkeys(NAMES[:12], MEASURED) | {NAMES[12]: FAILED}
    assert NAMES[12] not in failed.levels and failed.levels[NAMES[0]] == 0
    assert surrogate.status(NAMES) == dict.fromkeys(NAMES[:15], MEASURED)
    assert [surrogate.levels[name] for name in NAMES[10:60:10]] == [2, 1, 0, 0, 0]


def test_an_objective_that_does_not_depend_on_the_budget_is_learned_from_all_trials():
    latency, names = "latency/mine", NAMES[:30]
    latencies = StubPredictor().medians(names, ["latency/pixel3"])[:, 0]
    rows = [
        Row("nasbench201", name, {**row(name, 0).targets, latency: float(ms)})
        for name, ms in zip(names[:20], latencies, strict=False)
    ]
    predictor = CachedPredictor(StubPredictor(), CELLS)
    surrogate = FidelitySurrogate(predictor, ["accuracy", latency], {}, ["accuracy"], BUDGETS)
    surrogate.update(rows)
    values = surrogate.predict(CELLS, names, [latency], (0.5,))[:, 0, 0]
    assert values[:20] == pytest.approx(latencies[:20])
    assert spearman(values[20:], latencies[20:]) > 0.8
