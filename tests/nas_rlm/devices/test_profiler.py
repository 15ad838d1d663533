import numpy as np
import pytest

from nas_rlm.devices import Device, Failure, Measurement, measure
from nas_rlm.devices.profiler import SHUFFLE_GROUP_SIZE, Plan
from tests.nas_rlm.devices.networks import fake_worker_command, onnx_files

DEVICE = Device("onnxruntime")


def measure_by_name(names, log, **settings):
    networks = [(i, name.encode()) for i, name in enumerate(names)]
    return [r for _, r in measure(networks, DEVICE, Plan(3, python=fake_worker_command(log), **settings))]


def test_a_measurement_summarises_all_runs_in_milliseconds():
    windows = [[0.001] * 8 + [0.011], [0.002] * 9]
    measurement = Measurement.from_windows(windows, {"processor": "p"}, None)
    assert (measurement.p10, measurement.median, measurement.p90) == pytest.approx((1.0, 2.0, 2.0))
    assert measurement.spread == pytest.approx(0.5)
    assert measurement.runs == 18


def test_windows_are_shuffled_among_networks(tmp_path):
    names = [f"{0.001 * (i + 1)}" for i in range(SHUFFLE_GROUP_SIZE + 3)]
    results = measure_by_name(names, tmp_path / "log")
    assert [r.median for r in results] == pytest.approx([i + 1.0 for i in range(SHUFFLE_GROUP_SIZE + 3)])
    assert all(r.runs == 9 and r.memory is None for r in results)
    assert results[0].environment == {"processor": "fake", "device": "onnxruntime-cpu-1t"}
    requests = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines() if "window" in line]
    first = requests[: 3 * SHUFFLE_GROUP_SIZE]
    rounds = [first[k * SHUFFLE_GROUP_SIZE : (k + 1) * SHUFFLE_GROUP_SIZE] for k in range(3)]
    assert all(sorted(r) == sorted(names[:SHUFFLE_GROUP_SIZE]) for r in rounds)
    assert len({tuple(r) for r in rounds}) == 3
    sizes = [float(name) for name in rounds[0]]
    assert abs(np.corrcoef(sizes, range(SHUFFLE_GROUP_SIZE))[0, 1]) < 0.7


def test_a_failed_network_is_reported_and_the_others_are_measured(tmp_path):
    names = ["0.001", "refuse", "die", "0.002", "die late", "refuse late", "babble", "0.003"]
    results = measure_by_name(names, tmp_path / "log")
    assert [r.median for r in results if isinstance(r, Measurement)] == pytest.approx([1, 2, 3])
    assert [r.error for r in results if isinstance(r, Failure)] == [
        "no kernel for Foo",
        "the process ended with code 7: core dumped",
        "the process ended with signal 9",
        "out of memory",
        "the worker replied b'hello\\n', expected a line of JSON",
    ]
    assert all(r.runs == 9 for r in results if isinstance(r, Measurement))


def test_a_network_fails_only_after_two_crashes(tmp_path):
    results = measure_by_name(["0.001", "die once", "0.002"], tmp_path / "log")
    assert [result.median for result in results] == pytest.approx([1, 4, 2])
    assert (tmp_path / "log").read_text().splitlines().count("load die once") == 2


def test_a_network_that_hangs_fails_and_the_others_are_measured(tmp_path):
    results = measure_by_name(["0.001", "hang", "0.002"], tmp_path / "log", timeout=2)
    assert results[1] == Failure("no answer within 2 seconds")
    assert [results[i].median for i in (0, 2)] == pytest.approx([1, 2])


def test_slow_loading_fails(tmp_path):
    plan = Plan(python=fake_worker_command(tmp_path / "log", slow="30"), timeout=0.5)
    (result,) = measure([(0, b"0.1")], DEVICE, plan)
    assert result[1] == Failure("no answer within 0.5 seconds")


def test_memory_is_measured_in_a_process_for_each_network(tmp_path):
    results = measure_by_name(["0.001", "refuse", "0.002"], tmp_path / "log", measure_memory=True)
    assert [getattr(r, "memory", None) for r in results] == [1000.0, None, 1000.0]
    requests = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in requests[:6]] == ["open", "load"] * 3


def test_commands_that_start_no_worker_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"'false -m nas_rlm\.devices\.worker' does not start a worker: .* code 1"
    ):
        list(measure([(0, b"0.1")], DEVICE, Plan(python="false")))
    with pytest.raises(ValueError, match="does not start: No such file"):
        list(measure([(0, b"0.1")], DEVICE, Plan(python=str(tmp_path / "nowhere"))))


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_real_networks_are_measured(runtime, quick_processes):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    networks = [*onnx_files(2), ("cut", onnx_files(1)[0][1][:500])]
    results = dict(measure(networks, Device(runtime), Plan(2, 0.01, measure_memory=True)))
    for i in (0, 1):
        assert 0.02 < results[i].median < 1000
        assert results[i].p10 <= results[i].median <= results[i].p90
        assert results[i].runs >= 6
        assert 0 < results[i].memory < 1e10
        assert results[i].environment["runtime"].startswith(runtime)
    assert isinstance(results["cut"], Failure)
