"""Searches that measure, with the stub as the model and a function of the architecture as the device."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import search_spaces
from nas_rlm import Study
from nas_rlm.data import Row
from nas_rlm.data.tables import read
from nas_rlm.devices.profiler import Failure, Measurement
from nas_rlm.search.acquisition import selection
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.result import FAILED, MEASURED
from nas_rlm.search.run_directory import MEASUREMENTS, MemoryLog, open_log, read_result
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.search_run import joint_samples, write_results
from nas_rlm.study.measured_search import STUDY, measure_and_search
from nas_rlm.study.search_suggestion import SEARCHES
from nas_rlm.study.store import LOG
from nas_rlm.study.view import StudyView
from nas_rlm.study.workers.device import DeviceWorkers
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.stubs import StubPredictor, device_latency

SPACE = search_spaces.get("nasbench201")
LATENCY = "latency/onnxruntime-cpu-1t"
SETTINGS = SearchSettings(
    *("nasbench201", ("accuracy", LATENCY), (), "nsga2", 12, 3),
    device="onnxruntime-cpu-1t",
    budget=20,
)
FEATURES = {}  # of architectures, shared by the tests
RESULT_FILES = ("log.jsonl", "front.csv", "samples.json", "pareto.png", "report.html")


class Model(StubPredictor):
    """The stub, with ascending quantiles."""

    def predict(self, *args, **kwargs):
        return np.sort(super().predict(*args, **kwargs), axis=-1)


class Box:
    """A device on which convolutions cost most, and on which some networks do not run."""

    def __init__(self, broken=(), ends=10**9):
        self.broken, self.ends, self.batches = broken, ends, []

    def latency(self, name):
        return device_latency(name)

    @property
    def measured(self):
        return [name for batch in self.batches for name in batch]

    def __call__(self, networks, device, plan):
        self.batches.append([])
        for network, _ in networks:
            name = network.row.arch_str
            if len(self.measured) >= self.ends:
                raise KeyboardInterrupt
            self.batches[-1].append(name)
            fails, value = any(part in name for part in self.broken), self.latency(name)
            yield network, Failure("no kernel") if fails else Measurement(value, value, value, 0.0, 9)


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "POOL_SIZE", 40)
        yield


def run(directory, box, settings=SETTINGS, known=(), log=None, sources=(), space=SPACE):
    """The result and the surrogate of a search."""
    cached, surrogates = CachedPredictor(Model(), space, computed=FEATURES), {"nasbench201": list(sources)}
    return measure_and_search(cached, surrogates, settings, directory, log or MemoryLog(), known, box)


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """The device, the directory and the result of a search."""
    box, directory = Box(), tmp_path_factory.mktemp("finished")
    return box, directory, run(directory, box)[0]


def test_the_budget_is_spent_on_a_design_and_then_on_networks_that_improve_the_front(finished):
    box, directory, result = finished
    assert [len(batch) for batch in box.batches][:3] == [10, 5, 3]
    assert len(set(box.measured)) == SETTINGS.budget
    assert {n for n, s in result.status.items() if s == MEASURED} == set(box.measured)
    at = {name: k for k, name in enumerate(result.architectures)}
    for name in box.measured:
        assert result.values[at[name], 1].tolist() == [box.latency(name)] * 3
    on_front = {result.architectures[i] for i in result.front}
    first, later = set(box.batches[0]), set(box.measured[10:])
    assert len(on_front & later) > len(on_front & first)
    trials = StudyView.load(directory / STUDY).trials
    assert [trial.architecture for trial in trials] == box.measured
    assert all(trial.predicted for trial in trials[10:])
    table = {row.arch_str: row.targets[LATENCY] for row in read(directory / MEASUREMENTS).rows}
    assert table == {trial.architecture: trial.values[LATENCY] for trial in trials}


def test_predictions_of_unmeasured_networks_correlate_with_the_device(finished):
    box, _, result = finished
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.corrcoef(result.medians[rest, 1], true)[0, 1] > 0.9
    low, high = result.values[rest, 1, 0], result.values[rest, 1, 2]
    assert (low < high).all()


def test_networks_that_the_device_cannot_run_are_never_on_the_front(tmp_path):
    box = Box(broken=("avg_pool_3x3~0",))
    result, _ = run(tmp_path, box, replace(SETTINGS, budget=30))
    failed = {name for name in box.measured if "avg_pool_3x3~0" in name}
    assert failed
    assert all(result.status[name] == FAILED for name in failed)
    assert not failed & {result.architectures[i] for i in result.front}
    assert len(box.batches[0]) == 10 and len(box.batches[1]) == 5
    trials = StudyView.load(tmp_path / STUDY).trials
    errors = {trial.error for trial in trials if trial.architecture in failed}
    assert errors == {"onnxruntime-cpu-1t cannot run it: no kernel"}


def test_operators_that_only_failed_networks_have_are_avoided(tmp_path):
    box = Box(broken=("nor_conv_1x1",))
    result, _ = run(tmp_path, box, replace(SETTINGS, budget=30))
    front = [result.architectures[i] for i in result.front]
    assert front
    assert not any("nor_conv_1x1" in name for name in front)
    assert all(result.status[name] == FAILED for name in result.architectures if "nor_conv_1x1" in name)
    late = [name for batch in box.batches[2:] for name in batch]
    assert sum("nor_conv_1x1" in name for name in late) < 0.2 * len(late)


def test_a_device_that_runs_no_network_is_refused(tmp_path):
    box = Box(broken=("|",))
    with pytest.raises(ValueError, match=r"the first 10 trials failed.*1t cannot run it: no kernel"):
        run(tmp_path, box)
    assert len(box.measured) == 10  # the rest of the budget is not spent


def test_a_device_that_runs_too_few_networks_is_refused(tmp_path):
    box = Box(broken=("nor_conv_3x3",))
    with pytest.raises(ValueError, match=r"\d of 12 networks could be measured on onnxruntime-cpu-1t: expec"):
        run(tmp_path, box, replace(SETTINGS, budget=12))


@pytest.mark.parametrize(
    "changed",
    [
        {"objectives": (LATENCY,)},
        {"objectives": ("accuracy",), "constraints": (f"{LATENCY}<=14",)},
        {"constraints": (f"{LATENCY}<=2.05",)},
    ],
)
def test_fronts_of_few_points_are_measured(tmp_path, changed):
    result, _ = run(tmp_path, Box(), replace(SETTINGS, **changed))
    front = [result.architectures[i] for i in result.front]
    assert front
    assert all(result.status.get(name) == MEASURED for name in front)


def test_networks_that_were_measured_before_count_beside_the_budget(tmp_path):
    rng, box = np.random.default_rng(2), Box()
    names = list(dict.fromkeys(str(SPACE.sample(rng)) for _ in range(14)))
    known = [Row("nasbench201", name, {LATENCY: box.latency(name)}) for name in names]
    settings = replace(SETTINGS, budget=10)
    result, _ = run(tmp_path, box, settings, known)
    assert len(box.measured) == 10 and not set(box.measured) & set(names)
    assert {n for n, s in result.status.items() if s == MEASURED} == {*box.measured, *names}
    again, _ = run(tmp_path, box, settings, known)
    assert again.architectures == result.architectures and len(box.measured) == 10


def test_only_candidates_are_measured(tmp_path):
    rng, box = np.random.default_rng(2), Box()
    names = list(dict.fromkeys(str(SPACE.sample(rng)) for _ in range(18)))
    result, _ = run(tmp_path, box, replace(SETTINGS, budget=18), space=TableSpace(SPACE, names))
    assert set(box.measured) == set(names) == set(result.architectures)


def test_networks_that_break_exact_constraints_are_not_measured(tmp_path):
    rng = np.random.default_rng(0)
    bound = float(np.quantile([SPACE.flops(SPACE.sample(rng)) for _ in range(30)], 0.1))
    box = Box()
    settings = replace(SETTINGS, constraints=(f"flops<={bound}",), budget=14)
    run(tmp_path, box, settings)
    assert len(box.measured) == 14
    assert max(SPACE.flops(SPACE.parse(name)) for name in box.measured) <= bound


def test_an_interrupted_search_resumes_to_the_same_result(tmp_path):
    def write(out, box, resume):
        log = open_log(out, SETTINGS, resume)
        result, surrogate = run(out, box, log=log)
        log.finish()
        samples = joint_samples(SPACE, surrogate, result)
        write_results(out, SPACE, result, samples)
        return result

    def history(out):
        trials = StudyView.load(out / STUDY).trials
        return [(t.number, t.architecture, t.seed, t.values, t.predicted) for t in trials]

    uninterrupted = tmp_path / "uninterrupted"
    result = write(uninterrupted, Box(), False)
    for ends in (4, 17):  # while it measures
        interrupted, box = tmp_path / f"interrupted{ends}", Box()
        with pytest.raises(KeyboardInterrupt):
            write(interrupted, Box(ends=ends), False)
        write(interrupted, box, True)
        assert len(box.measured) == SETTINGS.budget - ends  # nothing is measured twice
        assert history(interrupted) == history(uninterrupted)
        for name in RESULT_FILES:
            assert (interrupted / name).read_bytes() == (uninterrupted / name).read_bytes(), name
    logs = [uninterrupted / "log.jsonl", *sorted((uninterrupted / STUDY / SEARCHES).iterdir())]
    assert [path.stem for path in logs] == ["log", "00010", "00015", "00018"]
    for path in logs[:3]:  # while it searches
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        if path.parent.name == SEARCHES:  # the log of the study ends before the suggestions of that search
            lines = (uninterrupted / STUDY / LOG).read_bytes().splitlines(keepends=True)
            finished = [b'"event": "complete"' in line for line in lines]
            kept = np.searchsorted(np.cumsum(finished), int(path.stem)) + 1
            (uninterrupted / STUDY / LOG).write_bytes(b"".join(lines[:kept]))
        expected = {name: (uninterrupted / name).read_bytes() for name in RESULT_FILES[1:]}
        write(uninterrupted, Box(), True)
        assert path.read_bytes() == content
        assert {name: (uninterrupted / name).read_bytes() for name in expected} == expected
    read = read_result(uninterrupted)
    assert (read.architectures, read.status) == (result.architectures, result.status)
    assert (read.values == result.values).all()
    rows = (uninterrupted / "front.csv").read_text().splitlines()
    assert rows[0].endswith(",status")
    statuses = {row.rsplit(",", 1)[1] for row in rows[1:]}
    assert MEASURED in statuses <= {MEASURED, "predicted"}


def test_a_surrogate_of_a_device_with_the_same_name_is_a_source(tmp_path):
    box, rng = Box(), np.random.default_rng(5)
    names = [str(SPACE.sample(rng)) for _ in range(120)]
    slower = [Row("nasbench201", name, {LATENCY: 3 * box.latency(name)}) for name in names]
    known = fit_graph_surrogate(graph_features_of_space("nasbench201"), slower, [LATENCY])
    result, surrogate = run(tmp_path, box, sources=[known])
    assert len(surrogate.surrogates[LATENCY].graph_features.sources) == 1
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.median(np.abs(result.medians[rest, 1] / true - 1)) < 0.2


def test_a_study_that_evaluates_nothing_measures_without_a_function(tmp_path, tiny_rlm, monkeypatch):
    box = Box()
    monkeypatch.setattr("nas_rlm.study.study.DeviceWorkers", partial(DeviceWorkers, measure_function=box))
    monkeypatch.setattr("nas_rlm.study.study.check_device", lambda device, python: None)
    options = {"device": "onnxruntime-cpu-1t", "model": tiny_rlm}
    study = Study(SPACE, ["accuracy", LATENCY], tmp_path / "run", predicted=["accuracy"], **options)
    study.optimize(trials=10)
    assert [trial.values[LATENCY] for trial in study.trials] == [box.latency(n) for n in box.measured]
    assert len(read(study.directory / MEASUREMENTS).rows) == 10
    assert "|" in study.best.architecture and study.best.values["accuracy"]
    other = Study(SPACE, ["accuracy", LATENCY], tmp_path / "other", **options)
    with pytest.raises(ValueError, match="expected a function that evaluates accuracy"):
        other.optimize(trials=10)
