from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.search.acquisition import candidate_pool, selection
from nas_rlm.search.acquisition.active_search import current_result, propose
from nas_rlm.search.acquisition.selection import initial_design, select_candidates
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import FAILED, MEASURED, SearchResult
from nas_rlm.search.run_directory import open_log
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.stubs import StubPredictor, device_latency

SPACE = search_spaces.get("nasbench201")
LATENCY = "latency/onnxruntime-cpu-1t"
SETTINGS = SearchSettings(
    *("nasbench201", ("accuracy", LATENCY), (), "nsga2", 12, 3),
    device="onnxruntime-cpu-1t",
    budget=24,
)


class Model(StubPredictor):
    """The stub, with surrogates on other devices."""

    def __init__(self, surrogates=()):
        super().__init__()
        self.surrogates = {"nasbench201": list(surrogates)}

    def predict(self, *args, **kwargs):
        return np.sort(super().predict(*args, **kwargs), axis=-1)


def measure(names):
    """Rows with the latencies of cells."""
    return [Row("nasbench201", name, {LATENCY: device_latency(name)}) for name in names]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(selection, "POOL_SIZE", 40)


def make_surrogate(model=None):
    model = model or Model()
    return OnlineSurrogate(CachedPredictor(model, SPACE), [LATENCY], model.surrogates)


def test_an_active_search_cannot_be_resumed_with_more_generations(tmp_path):
    open_log(tmp_path / "run", SETTINGS, False)
    with pytest.raises(ValueError, match="generations 3 instead of 4"):
        open_log(tmp_path / "run", replace(SETTINGS, generations=4), True)


def test_surrogates_of_other_devices_are_sources():
    rng = np.random.default_rng(5)
    rows = measure([str(SPACE.sample(rng)) for _ in range(60)])
    rows = [Row(r.space, r.arch_str, {"latency/pixel3": 3 * r.targets[LATENCY]}) for r in rows]
    surrogate = make_surrogate(
        Model([fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, ["latency/pixel3"])])
    )
    assert not surrogate.is_ready
    surrogate.update(measure(initial_design(surrogate, SETTINGS, 12)))
    assert surrogate.is_ready
    assert len(surrogate.surrogates[LATENCY].graph_features.sources) == 1
    batches = list({str(SPACE.sample(rng)) for _ in range(50)} - surrogate.measurements.keys())
    medians = current_result(surrogate, SETTINGS, batches).medians[:, 1]
    true = np.array([device_latency(name) for name in batches])
    assert np.median(np.abs(medians / true - 1)) < 0.1


def test_candidates_are_selected_by_optimistic_hypervolume_gain():
    def quantiles(accuracy, low, middle, high):
        return [[accuracy] * 3, [low, middle, high]]

    values = {
        "sure": quantiles(90, 4.9, 5, 5.1),
        "unsure": quantiles(80, 2, 3, 4),
        "measured": quantiles(70, 1, 1, 1),
        "perhaps": quantiles(83, 2.9, 5.2, 6.3),
        "never": quantiles(79, 3.1, 3.3, 3.5),
        "failed": quantiles(99, 1, 1, 1),
    }
    result = SearchResult(
        SETTINGS, list(values), np.array(list(values.values())), {"measured": MEASURED, "failed": FAILED}
    )
    assert select_candidates(result, [LATENCY], 9) == ["unsure", "perhaps", "sure"]
    assert select_candidates(result, [LATENCY], 1) == ["unsure"]
    assert select_candidates(result, [LATENCY], 0) == []


def test_the_optimistic_quantile_of_a_maximised_objective_is_the_upper_one():
    values = {
        "sure": [[84, 85, 86], [5] * 3],
        "unsure": [[70, 80, 90], [5] * 3],
        "low": [[70, 71, 72], [5] * 3],
    }
    result = SearchResult(SETTINGS, list(values), np.array(list(values.values()), dtype=float), {})
    assert select_candidates(result, ["accuracy", LATENCY], 9) == ["unsure"]


@pytest.mark.long
def test_repeated_proposals_approach_the_front():
    model, rng = Model(), np.random.default_rng(3)
    objectives = SETTINGS.objectives
    settings = replace(SETTINGS, device="", budget=0, population=60, generations=5)

    def rows(names):
        predictions = zip(names, model.medians(names, ["accuracy"])[:, 0].tolist(), strict=True)
        return [Row("nasbench201", n, {"accuracy": a, LATENCY: device_latency(n)}) for n, a in predictions]

    surrogate = OnlineSurrogate(CachedPredictor(model, SPACE), objectives, {})
    while len(surrogate.measurements) < 40:
        names = propose(surrogate, settings, 10)
        assert 1 <= len(names) <= 10
        assert not surrogate.measurements.keys() & set(names)
        surrogate.update(rows(names))
    assert not model.predicted
    found = [[r.targets[o] for o in objectives] for r in surrogate.measurements.values()]
    samples = {str(SPACE.sample(rng)): None for _ in range(2000)}
    some = rows(samples)
    every = [[r.targets[o] for o in objectives] for r in some]
    best = hypervolume(np.array(every), objectives, (60, 40))
    assert hypervolume(np.array(found), objectives, (60, 40)) > 0.96 * best
    assert hypervolume(np.array(every[:40]), objectives, (60, 40)) < 0.94 * best
    assert propose(surrogate, settings, 10) == propose(surrogate, settings, 10)


def test_samples_of_measured_networks_are_constant():
    surrogate = make_surrogate()
    names = initial_design(surrogate, SETTINGS, 12)
    surrogate.update(measure(names))
    new = [str(SPACE.sample(np.random.default_rng(9)))]
    samples = surrogate.sample(SPACE, [SPACE.parse(n) for n in names[:2] + new], SETTINGS.all_objectives, 32)
    assert samples.shape == (3, 32, 2)
    assert (samples[0, :, 1] == device_latency(names[0])).all()
    assert samples[2, :, 1].std() > 0
    assert samples[0, :, 0].std() > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": 0}, "budget is 0, expected at least 10"),
        ({"device": ""}, "budget is 24 without a device"),
        ({"device": "torch-cpu-1t"}, "no objective of torch-cpu-1t is among accuracy"),
        (
            {"objectives": ("accuracy", "energy/onnxruntime-cpu-1t")},
            "no objective of onnxruntime-cpu",
        ),
    ],
)
def test_settings_without_a_measurable_objective_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **changed)
