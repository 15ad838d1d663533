import numpy as np
import pytest

from nas_rlm.devices import Device, Failure, Measurement, measure
from nas_rlm.devices.profiler import TOGETHER, Plan
from tests.nas_rlm.devices.networks import contents, fake

DEVICE = Device("onnxruntime")


def results(names, log, **more):
    networks = [(i, name.encode()) for i, name in enumerate(names)]
    return [r for _, r in measure(networks, DEVICE, Plan(3, python=fake(log), **more))]


def test_a_measurement_tells_of_all_runs_in_milliseconds():
    windows = [[0.001] * 8 + [0.011], [0.002] * 9]
    found = Measurement.of(windows, {"processor": "p"}, None)
    assert (found.p10, found.median, found.p90) == pytest.approx((1.0, 2.0, 2.0))
    assert found.spread == pytest.approx(0.5)
    assert found.runs == 18


def test_windows_are_shuffled_among_networks(tmp_path):
    names = [f"{0.001 * (i + 1)}" for i in range(TOGETHER + 3)]
    found = results(names, tmp_path / "log")
    assert [r.median for r in found] == pytest.approx([i + 1.0 for i in range(TOGETHER + 3)])
    assert all(r.runs == 9 and r.memory is None for r in found)
    assert found[0].environment == {"processor": "fake", "device": "onnxruntime-cpu-1t"}
    asked = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines() if "window" in line]
    first = asked[: 3 * TOGETHER]
    rounds = [first[k * TOGETHER : (k + 1) * TOGETHER] for k in range(3)]
    assert all(sorted(r) == sorted(names[:TOGETHER]) for r in rounds)
    assert len({tuple(r) for r in rounds}) == 3
    sizes = [float(name) for name in rounds[0]]
    assert abs(np.corrcoef(sizes, range(TOGETHER))[0, 1]) < 0.7


def test_a_network_that_fails_is_told_of_and_the_others_are_measured(tmp_path):
    names = ["0.001", "refuse", "die", "0.002", "die late", "refuse late", "babble", "0.003"]
    found = results(names, tmp_path / "log")
    assert [r.median for r in found if isinstance(r, Measurement)] == pytest.approx([1, 2, 3])
    assert [r.error for r in found if isinstance(r, Failure)] == [
        "no kernel for Foo",
        "the process ended with code 7: core dumped",
        "the process ended with signal 9",
        "out of memory",
        "it answers b'hello\\n', which is no reply of a worker",
    ]
    assert all(r.runs == 9 for r in found if isinstance(r, Measurement))


def test_a_process_that_ends_once_is_not_held_against_its_network(tmp_path):
    found = results(["0.001", "die once", "0.002"], tmp_path / "log")
    assert [one.median for one in found] == pytest.approx([1, 4, 2])
    assert (tmp_path / "log").read_text().splitlines().count("load die once") == 2


def test_a_network_that_hangs_is_ended(tmp_path):
    plan = Plan(python=fake(tmp_path / "log", slow="30"), limit=0.5)
    (found,) = measure([(0, b"0.1")], DEVICE, plan)
    assert found[1] == Failure("no answer within 0.5 seconds")


def test_memory_is_of_a_process_of_its_own(tmp_path):
    found = results(["0.001", "refuse", "0.002"], tmp_path / "log", memory=True)
    assert [getattr(r, "memory", None) for r in found] == [1000.0, None, 1000.0]
    asked = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in asked[:6]] == ["open", "load"] * 3


def test_what_is_no_worker(tmp_path):
    with pytest.raises(ValueError, match=r"'false -m nas_rlm\.devices\.worker' is no worker: .* code 1"):
        list(measure([(0, b"0.1")], DEVICE, Plan(python="false")))
    with pytest.raises(ValueError, match="does not start: No such file"):
        list(measure([(0, b"0.1")], DEVICE, Plan(python=str(tmp_path / "nowhere"))))


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_real_networks(runtime):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    networks = [*contents(2), ("cut", contents(1)[0][1][:500])]
    found = dict(measure(networks, Device(runtime), Plan(2, 0.01, memory=True)))
    for i in (0, 1):
        assert 0.02 < found[i].median < 1000
        assert found[i].p10 <= found[i].median <= found[i].p90
        assert found[i].runs >= 6
        assert 0 < found[i].memory < 1e10
        assert found[i].environment["runtime"].startswith(runtime)
    assert isinstance(found["cut"], Failure)
