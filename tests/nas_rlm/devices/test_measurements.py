import json

import onnx
import pytest

from nas_rlm.data import read
from nas_rlm.devices import Device
from nas_rlm.devices.measurements import Architecture, File, notes
from nas_rlm.devices.measurements import profile as run
from nas_rlm.devices.profiler import Failure, Measurement
from tests.nas_rlm.devices.networks import SPACE, cells

ONE, OTHER = Device("onnxruntime"), Device("openvino", threads=2)


@pytest.fixture
def measured():
    """What is measured without a runtime: a network's bytes; every third one fails."""

    def measure(networks, device, plan):
        for i, (network, content) in enumerate(networks):
            asked.append((str(device), network.key))
            if i % 3 == 2:
                yield network, Failure("no kernel")
            else:
                yield network, Measurement(float(len(content)), 1.0, 2.0, 0.1, 30, None, {"cores": 2})

    measure.asked = asked = []
    return measure


def test_a_row_for_each_network_and_more_columns_for_another_device(tmp_path, measured):
    out = tmp_path / "t.parquet"
    networks = [Architecture(SPACE, a) for a in cells(6)]
    run(networks[:4], ONE, out, measuring=measured)
    rows = {r.arch_str: r for r in read(out).rows}
    assert len(rows) == 4
    for i, network in enumerate(networks[:4]):
        row = rows[network.row.arch_str]
        assert row.targets["flops"] == SPACE.flops(network.architecture)
        if i == 2:
            assert "latency/onnxruntime-cpu-1t" not in row.targets
            assert notes(row) == {"onnxruntime-cpu-1t": {"error": "no kernel"}}
        else:
            assert row.targets["latency/onnxruntime-cpu-1t"] == len(network.content())
            assert notes(row)["onnxruntime-cpu-1t"]["environment"] == {"cores": 2}
    run(networks, ONE, out, measuring=measured)
    assert [key for _, key in measured.asked] == [n.key for n in networks]
    table = run(networks[:1], OTHER, out, measuring=measured)
    assert len(table) == len(read(out)) == 6
    row = next(r for r in read(out).rows if r.arch_str == networks[0].row.arch_str)
    assert {"latency/onnxruntime-cpu-1t", "latency/openvino-cpu-2t"} < row.targets.keys()


def test_what_is_done_is_kept_when_it_is_cut_off(tmp_path, measured):
    out = tmp_path / "t.parquet"
    networks = [Architecture(SPACE, a) for a in cells(5)]

    class Cut(Architecture):
        def content(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([*networks[:2], Cut(SPACE, networks[2].architecture)], ONE, out, measuring=measured)
    assert len(read(out)) == 2
    run(networks, ONE, out, measuring=measured)
    assert len(read(out)) == len(measured.asked) == 5


def test_files_are_known_by_their_path_and_text(tmp_path, measured):
    path = tmp_path / "m.onnx"
    onnx.save(
        SPACE.to_onnx(cells(1)[0], weights=True),
        path,
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    table = run([File(path, "mine")], ONE, tmp_path / "t.parquet", measuring=measured)
    (row,) = read(tmp_path / "t.parquet").rows
    assert (row.space, row.identifier, row.arch_str) == ("mine", str(path), "")
    assert "Conv" in row.input
    assert row.targets["latency/onnxruntime-cpu-1t"] > 4 * SPACE.params(cells(1)[0])
    assert table.rows == [row]


@pytest.mark.parametrize("text", ["", "a note", "[1]", json.dumps({"x": {"error": "e"}})])
def test_notes_of_other_tables(text):
    row = Architecture(SPACE, cells(1)[0]).row
    assert notes(type(row)("s", "a", {}, metainformation=text)) == (
        {"x": {"error": "e"}} if "{" in text else {}
    )
