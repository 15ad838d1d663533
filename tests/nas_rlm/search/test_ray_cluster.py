import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.devices import Device
from nas_rlm.devices.profiler import SHUFFLE_GROUP_SIZE, Failure, Measurement, Plan
from nas_rlm.model.batching import TruncationWarning, named_texts
from nas_rlm.search.ray_cluster import LocalWorkers, RayCluster, connect_workers

ray = pytest.importorskip("ray", reason="needs Ray")
SPACE = search_spaces.get("nasbench201")
CELLS = [SPACE.sample(np.random.default_rng(i)) for i in range(90)]
NAMES = ["accuracy", "latency/pixel3"]
DEVICE = Device.parse("onnxruntime-cpu-1t")
QUICK = Plan(windows=1, seconds_per_window=0.01)


@pytest.fixture(scope="module")
def cluster():
    with RayCluster("local") as found:
        yield found


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def processes(of: str) -> list[int]:
    """Ray's processes that do something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::" + of.encode()):
                found.append(int(path.parent.name))
        except OSError:  # it has just ended
            continue
    return found


def kill_worker(of: str, when: threading.Event) -> None:
    """Kill a process of Ray as soon as it works."""
    while not when.is_set():
        for pid in processes(of)[:1]:
            os.kill(pid, signal.SIGKILL)
            when.set()
        time.sleep(0.005)


def test_a_cluster_predicts_what_one_process_does(cluster, rlm):
    distributed = cluster.distribute(rlm)
    local = rlm.predict(SPACE, CELLS, NAMES)
    assert (distributed.predict(SPACE, CELLS, NAMES) == local).all()
    assert (distributed.predict(SPACE, CELLS[::-1] * 2, NAMES) == np.tile(local[::-1], (2, 1))).all()
    levels = (0.1, 0.5, 0.9)
    assert (
        distributed.predict(SPACE, CELLS[:5], NAMES, levels) == rlm.predict(SPACE, CELLS[:5], NAMES, levels)
    ).all()
    assert distributed.predict(SPACE, [], NAMES).shape == (0, 2)
    assert (distributed.sample(SPACE, CELLS[:3], NAMES, 4) == rlm.sample(SPACE, CELLS[:3], NAMES, 4)).all()


def test_truncated_texts_are_named(cluster, rlm):
    rlm.network.config = replace(rlm.network.config, max_length=20)
    distributed = cluster.distribute(rlm)
    with pytest.warns(TruncationWarning, match="first 20 tokens of") as caught:
        distributed.predict(SPACE, CELLS[:3], NAMES)
    assert all(f"{cell} (" in str(caught[0].message) for cell in CELLS[:3])
    with pytest.warns(TruncationWarning, match="tokens of a "), named_texts(["a"]):
        distributed.predict_text(["v1=Relu(v0)\n" * 20], NAMES)


def test_two_models_of_a_cluster_are_independent(cluster, rlm):
    other = rlm.with_objectives(["latency/mine"], {"latency/mine": "latency/eyeriss"})
    one, two = cluster.distribute(rlm), cluster.distribute(other)
    for model, name in ((one, "accuracy"), (two, "latency/mine"), (one, "latency/eyeriss")):
        local = (other if name == "latency/mine" else rlm).predict(SPACE, CELLS[:4], [name])
        assert (model.predict(SPACE, CELLS[:4], [name]) == local).all()


def test_bad_arguments_are_refused_before_they_are_submitted(cluster, rlm):
    distributed = cluster.distribute(rlm)
    with pytest.raises(ValueError, match="does not know the objective 'accurcy'; did you mean accuracy"):
        distributed.predict(SPACE, CELLS[:1], ["accurcy"])
    with pytest.raises(ValueError, match="text 1 is empty"):
        distributed.predict_text(["x", ""], ["accuracy"])
    with pytest.raises(ValueError, match="expected a list"):
        distributed.predict_text("x", ["accuracy"])


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_predictions_are_complete_after_a_process_died(cluster, rlm):
    distributed, stop = cluster.distribute(rlm), threading.Event()
    killer = threading.Thread(target=kill_worker, args=("_predict_batch", stop))
    killer.start()
    many = [SPACE.sample(np.random.default_rng(i)) for i in range(300)]
    found = distributed.predict(SPACE, many, NAMES)
    was_killed = stop.is_set()
    stop.set()
    killer.join()
    assert was_killed
    assert (found == rlm.predict(SPACE, many, NAMES)).all()


def test_networks_are_measured_by_the_cluster(cluster):
    pytest.importorskip("onnxruntime")
    cluster.check_device(DEVICE)
    some = CELLS[: SHUFFLE_GROUP_SIZE + 2]
    contents = [(str(c), SPACE.to_onnx(c, weights=True).SerializeToString()) for c in some]
    contents[3] = contents[3][0], b"no network"
    found = dict(cluster.measure(contents, DEVICE, QUICK))
    assert list(found) == [name for name, _ in contents]
    assert isinstance(found[contents[3][0]], Failure)
    assert all(isinstance(found[name], Measurement) for name, _ in contents[:3] + contents[4:])
    assert [*cluster.measure([], DEVICE)] == []


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_measurements_are_repeated_after_a_process_died(cluster):
    pytest.importorskip("onnxruntime")
    contents = [(str(c), SPACE.to_onnx(c, weights=True).SerializeToString()) for c in CELLS[:3]]
    stop = threading.Event()
    killer = threading.Thread(target=kill_worker, args=("_measure_batch", stop))
    killer.start()
    found = dict(cluster.measure(contents, DEVICE, QUICK))
    was_killed = stop.is_set()
    stop.set()
    killer.join()
    assert was_killed
    assert [type(found[name]) for name, _ in contents] == [Measurement] * 3


def test_a_runtime_that_no_machine_has_is_refused(cluster):
    with pytest.raises(ValueError, match="does not start a worker"):
        cluster.check_device(DEVICE, python="false")


def test_an_unreachable_cluster_is_refused(monkeypatch):
    def init(address, **_):
        raise ConnectionError("nobody is there")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(ValueError, match=r"no Ray cluster answers at '10.0.0.1:6379' \(nobody is there\)"):
        RayCluster("10.0.0.1:6379")


def test_without_an_address_this_process_works(rlm):
    with connect_workers("") as workers:
        assert type(workers) is LocalWorkers
        assert workers.distribute(rlm) is rlm
