import json

import onnx
import pytest

from nas_rlm.data import read
from nas_rlm.devices import Device
from nas_rlm.devices.measurements import OnnxFileNetwork, SpaceNetwork, measurement_details
from nas_rlm.devices.measurements import profile as run
from nas_rlm.devices.profiler import Failure, Measurement
from tests.nas_rlm.devices.networks import SPACE, cells

ONE, OTHER = Device("onnxruntime"), Device("openvino", threads=2)


@pytest.fixture
def fake_measure():
    """Measures without a runtime: the latency is the size of the file; every third network fails."""

    def measure(networks, device, plan):
        for i, (network, content) in enumerate(networks):
            calls.append((str(device), network.key))
            if i % 3 == 2:
                yield network, Failure("no kernel")
            else:
                yield network, Measurement(float(len(content)), 1.0, 2.0, 0.1, 30, None, {"cores": 2})

    measure.calls = calls = []
    return measure


def test_each_network_has_a_row_and_each_device_columns(tmp_path, fake_measure):
    out = tmp_path / "t.parquet"
    networks = [SpaceNetwork(SPACE, a) for a in cells(6)]
    run(networks[:4], ONE, out, measure_function=fake_measure)
    rows = {r.arch_str: r for r in read(out).rows}
    assert len(rows) == 4
    for i, network in enumerate(networks[:4]):
        row = rows[network.row.arch_str]
        assert row.targets["flops"] == SPACE.flops(network.architecture)
        if i == 2:
            assert "latency/onnxruntime-cpu-1t" not in row.targets
            assert measurement_details(row) == {"onnxruntime-cpu-1t": {"error": "no kernel"}}
        else:
            assert row.targets["latency/onnxruntime-cpu-1t"] == len(network.onnx_bytes())
            assert measurement_details(row)["onnxruntime-cpu-1t"]["environment"] == {"cores": 2}
    run(networks, ONE, out, measure_function=fake_measure)
    assert [key for _, key in fake_measure.calls] == [n.key for n in networks]
    table = run(networks[:1], OTHER, out, measure_function=fake_measure)
    assert len(table) == len(read(out)) == 6
    row = next(r for r in read(out).rows if r.arch_str == networks[0].row.arch_str)
    assert {"latency/onnxruntime-cpu-1t", "latency/openvino-cpu-2t"} < row.targets.keys()


def test_finished_measurements_are_kept_after_an_interruption(tmp_path, fake_measure):
    out = tmp_path / "t.parquet"
    networks = [SpaceNetwork(SPACE, a) for a in cells(5)]

    class Interrupted(SpaceNetwork):
        def onnx_bytes(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            [*networks[:2], Interrupted(SPACE, networks[2].architecture)],
            ONE,
            out,
            measure_function=fake_measure,
        )
    assert len(read(out)) == 2
    run(networks, ONE, out, measure_function=fake_measure)
    assert len(read(out)) == len(fake_measure.calls) == 5


def test_the_row_of_a_file_has_its_path_and_text(tmp_path, fake_measure):
    path = tmp_path / "m.onnx"
    onnx.save(
        SPACE.to_onnx(cells(1)[0], weights=True),
        path,
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    table = run([OnnxFileNetwork(path, "mine")], ONE, tmp_path / "t.parquet", measure_function=fake_measure)
    (row,) = read(tmp_path / "t.parquet").rows
    assert (row.space, row.identifier, row.arch_str) == ("mine", str(path), "")
    assert "Conv" in row.input
    assert row.targets["latency/onnxruntime-cpu-1t"] > 4 * SPACE.params(cells(1)[0])
    assert table.rows == [row]


@pytest.mark.parametrize("text", ["", "a note", "[1]", json.dumps({"x": {"error": "e"}})])
def test_metainformation_without_measurements_gives_no_details(text):
    row = SpaceNetwork(SPACE, cells(1)[0]).row
    assert measurement_details(type(row)("s", "a", {}, metainformation=text)) == (
        {"x": {"error": "e"}} if "{" in text else {}
    )
