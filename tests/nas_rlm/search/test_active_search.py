from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.search import acquisition, candidate_pool
from nas_rlm.search import active_search as active_search_module
from nas_rlm.search.acquisition import initial_design, select_candidates
from nas_rlm.search.active_search import active_search, current_result, propose
from nas_rlm.search.online_surrogate import CachedPredictor, OnlineSurrogate
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import FAILED, MEASURED, SearchResult
from nas_rlm.search.run_directory import open_log, read_result
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search_run import joint_samples, write_results
from nas_rlm.surrogates.features import graph_features_of_space
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from tests.nas_rlm.stubs import StubPredictor

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


class Box:
    """A device on which convolutions cost most, and on which some networks do not run."""

    def __init__(self, broken=(), ends=10**9):
        self.broken, self.ends, self.batches = broken, ends, []

    def latency(self, name):
        return 1.0 + 5 * name.count("3x3") + 2 * name.count("1x1") + 0.1 * name.count("skip")

    def __call__(self, names):
        self.batches.append(list(names))
        if len(self.batches) > self.ends:
            raise KeyboardInterrupt
        return [
            Row("nasbench201", n, {} if any(b in n for b in self.broken) else {LATENCY: self.latency(n)})
            for n in names
        ]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(active_search_module, "MAX_INITIAL_MEASUREMENTS", 12)
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(acquisition, "POOL_SIZE", 40)


def make_surrogate(model=None):
    model = model or Model()
    return OnlineSurrogate(CachedPredictor(model, SPACE), [LATENCY], model.surrogates)


def test_the_budget_is_spent_on_an_initial_design_and_then_on_the_front():
    box, surrogate = Box(), make_surrogate()
    result = active_search(surrogate, SETTINGS, box)
    first, *turns = box.batches
    measured = [name for some in box.batches for name in some]
    assert len(set(measured)) == len(measured) <= SETTINGS.budget
    assert len(first) == 12 and 0 < len(turns[0]) <= 6
    assert result.status == dict.fromkeys(measured, MEASURED)
    at = {name: k for k, name in enumerate(result.architectures)}
    for name in measured:
        assert result.values[at[name], 1].tolist() == [box.latency(name)] * 3
    on_front = {result.architectures[i] for i in result.front}
    assert len(measured) == SETTINGS.budget or on_front <= set(measured)
    assert len(on_front & set(measured)) > len(on_front & set(first))


def test_predictions_of_unmeasured_networks_correlate_with_the_device():
    box, surrogate = Box(), make_surrogate()
    result = active_search(surrogate, SETTINGS, box)
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.corrcoef(result.medians[rest, 1], true)[0, 1] > 0.9
    low, high = result.values[rest, 1, 0], result.values[rest, 1, 2]
    assert (low < high).all()


def test_networks_that_the_device_cannot_run_are_never_on_the_front():
    box, surrogate = Box(broken=("avg_pool_3x3~0",)), make_surrogate()
    result = active_search(surrogate, SETTINGS, box)
    failed = {name for name in surrogate.measurements if "avg_pool_3x3~0" in name}
    assert failed
    assert all(result.status[name] == FAILED for name in failed)
    assert not failed & {result.architectures[i] for i in result.front}
    assert len(box.batches[0]) == 12 > len(box.batches[1])  # a few more, since too few of the first ones run


def test_operators_that_only_failed_networks_have_are_avoided():
    box, surrogate = Box(broken=("nor_conv_1x1",)), make_surrogate()
    result = active_search(surrogate, replace(SETTINGS, budget=60), box)
    front = [result.architectures[i] for i in result.front]
    assert front
    assert not any("nor_conv_1x1" in name for name in front)
    assert all(result.status[name] == FAILED for name in result.architectures if "nor_conv_1x1" in name)
    late = [name for some in box.batches[2:] for name in some]
    assert sum("nor_conv_1x1" in name for name in late) < 0.2 * len(late)


def test_a_device_that_runs_too_few_networks_is_refused():
    box = Box(broken=("|",))
    with pytest.raises(ValueError, match="0 of 12 networks could be measured on onnxruntime-cpu-1t"):
        active_search(make_surrogate(), SETTINGS, box)
    assert len(box.batches) == 1  # what all of them have fails: the rest of the budget is not spent


@pytest.mark.parametrize(
    "changed",
    [
        {"objectives": (LATENCY,)},
        {"objectives": ("accuracy",), "constraints": (f"{LATENCY}<=14",)},
        {"constraints": (f"{LATENCY}<=2.05",)},
    ],
)
def test_fronts_of_few_points_are_measured_too(changed):
    settings, box = replace(SETTINGS, **changed), Box()
    result = active_search(make_surrogate(), settings, box)
    assert len(box.batches) > 1
    front = [result.architectures[i] for i in result.front]
    assert front
    assert all(result.status.get(name) == MEASURED for name in front)


def write(out, surrogate, result):
    write_results(out, SPACE, result, joint_samples(SPACE, surrogate, result))


def test_an_interrupted_active_search_resumes_to_the_same_result(tmp_path):
    uninterrupted, surrogate = tmp_path / "uninterrupted", make_surrogate()
    result = active_search(surrogate, SETTINGS, Box(), open_log(uninterrupted, SETTINGS, False))
    write(uninterrupted, surrogate, result)
    for ends in (0, 1, 2):  # while it measures
        interrupted = tmp_path / f"interrupted{ends}"
        with pytest.raises(KeyboardInterrupt):
            active_search(make_surrogate(), SETTINGS, Box(ends=ends), open_log(interrupted, SETTINGS, False))
        again = make_surrogate()
        log = open_log(interrupted, SETTINGS, True)
        write(interrupted, again, active_search(again, SETTINGS, Box(), log))
        log.finish()
        for name in ("log.jsonl", "front.csv", "samples.json", "pareto.png", "report.html"):
            assert (interrupted / name).read_bytes() == (uninterrupted / name).read_bytes()
    content = (uninterrupted / "log.jsonl").read_bytes()
    for share in (0.3, 0.95):  # while it writes
        (uninterrupted / "log.jsonl").write_bytes(content[: int(share * len(content))])
        again = make_surrogate()
        write(
            uninterrupted,
            again,
            active_search(again, SETTINGS, Box(), open_log(uninterrupted, SETTINGS, True)),
        )
        assert (uninterrupted / "log.jsonl").read_bytes() == content
    read = read_result(uninterrupted)
    assert (read.architectures, read.status) == (result.architectures, result.status)
    assert (read.values == result.values).all()
    rows = (uninterrupted / "front.csv").read_text().splitlines()
    assert rows[0].endswith(",status")
    statuses = {row.rsplit(",", 1)[1] for row in rows[1:]}
    assert MEASURED in statuses <= {MEASURED, "predicted"}


def test_an_active_search_cannot_be_resumed_with_more_generations(tmp_path):
    open_log(tmp_path / "run", SETTINGS, False)
    with pytest.raises(ValueError, match="generations 3 instead of 4"):
        open_log(tmp_path / "run", replace(SETTINGS, generations=4), True)


def test_a_surrogate_of_a_device_with_the_same_name_is_a_source():
    box, rng = Box(), np.random.default_rng(5)
    rows = box([str(SPACE.sample(rng)) for _ in range(120)])
    slower = [Row(r.space, r.arch_str, {LATENCY: 3 * r.targets[LATENCY]}) for r in rows]
    surrogate = make_surrogate(
        Model([fit_graph_surrogate(graph_features_of_space("nasbench201"), slower, [LATENCY])])
    )
    result = active_search(surrogate, SETTINGS, box)
    assert len(surrogate.surrogates[LATENCY].graph_features.sources) == 1
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.median(np.abs(result.medians[rest, 1] / true - 1)) < 0.2


def test_surrogates_of_other_devices_are_sources():
    box, rng = Box(), np.random.default_rng(5)
    rows = box([str(SPACE.sample(rng)) for _ in range(60)])
    rows = [Row(r.space, r.arch_str, {"latency/pixel3": 3 * r.targets[LATENCY]}) for r in rows]
    surrogate = make_surrogate(
        Model([fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, ["latency/pixel3"])])
    )
    assert not surrogate.is_ready
    surrogate.update(box(initial_design(surrogate, SETTINGS, 12)))
    assert surrogate.is_ready
    assert len(surrogate.surrogates[LATENCY].graph_features.sources) == 1
    batches = list({str(SPACE.sample(rng)) for _ in range(50)} - surrogate.measurements.keys())
    medians = current_result(surrogate, SETTINGS, batches).medians[:, 1]
    true = np.array([box.latency(name) for name in batches])
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
    assert select_candidates(result, [LATENCY], 9, front_only=True) == ["unsure", "sure"]
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
        return [Row("nasbench201", n, {"accuracy": a, LATENCY: Box().latency(n)}) for n, a in predictions]

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
    box, surrogate = Box(), make_surrogate()
    names = initial_design(surrogate, SETTINGS, 12)
    surrogate.update(box(names))
    new = [str(SPACE.sample(np.random.default_rng(9)))]
    samples = surrogate.sample(SPACE, [SPACE.parse(n) for n in names[:2] + new], SETTINGS.all_objectives, 32)
    assert samples.shape == (3, 32, 2)
    assert (samples[0, :, 1] == box.latency(names[0])).all()
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
