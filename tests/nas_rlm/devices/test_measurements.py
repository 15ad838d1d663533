import json

import onnx
import pytest

from nas_rlm.data import Row, read, write
from nas_rlm.devices import Device
from nas_rlm.devices.measurements import OnnxFileNetwork, SpaceNetwork, measurement_details, network_key
from nas_rlm.devices.measurements import profile as run
from nas_rlm.devices.profiler import Failure, Measurement
from nas_rlm.graph.onnx_graphs.input_shapes import input_shapes
from tests.nas_rlm.devices.networks import SPACE, cells, model_of

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
        def onnx_bytes(self, batch_size=1):
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


NARROW = "g (float[N, 3, height, 8] x) => (float[N, 3, height, 8] y) { y = Relu(x) }"
WIDE = "g (float[N, 3, height, 8] x) => (float[N, 3, height, 8] y) { z = Relu(x) y = Neg(z) }"
SHAPES = {"x": (1, 3, 16, 8)}


def test_a_copy_is_not_measured_again_and_a_replaced_file_is(tmp_path, fake_measure):
    first, copy, out = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "t.parquet"
    onnx.save(model_of(NARROW), first)
    copy.write_bytes(first.read_bytes())

    def measure(*paths, shapes=SHAPES):
        networks = [OnnxFileNetwork(path, "", shapes) for path in paths]
        return run(networks, ONE, out, measure_function=fake_measure).rows

    (row,) = measure(first, copy)
    assert row.identifier == str(first)
    assert measure(copy) == [row]
    onnx.save(model_of(WIDE), first)
    assert measure(first)[0] == row
    assert [(r.identifier, "Neg" in r.input) for r in read(out).rows] == [
        (str(first), False),
        (str(first), True),
    ]
    assert len(measure(first, copy)) == len(fake_measure.calls) == 2
    assert len(measure(first, shapes={"x": (1, 3, 32, 8)})) == len(fake_measure.calls) == 3
    onnx.save(model_of(NARROW), first)
    assert len(measure(first)) == len(fake_measure.calls) == 3


def test_new_external_data_is_measured_again(tmp_path, fake_measure):
    path, out = tmp_path / "m.onnx", tmp_path / "t.parquet"
    model = model_of("g (float[1, 80] x) => (float[1, 90] y) { y = MatMul(x, w) }", w=(80, 90))
    onnx.save(model, path, save_as_external_data=True, location="w", size_threshold=0)
    run([OnnxFileNetwork(path)], ONE, out, measure_function=fake_measure)
    (tmp_path / "w").write_bytes(bytes((tmp_path / "w").stat().st_size))
    run([OnnxFileNetwork(path)], ONE, out, measure_function=fake_measure)
    assert len(read(out)) == len(fake_measure.calls) == 2


def test_rows_of_older_versions_are_kept(tmp_path, fake_measure):
    path, out = tmp_path / "m.onnx", tmp_path / "t.parquet"
    onnx.save(model_of(NARROW), path)
    network = OnnxFileNetwork(path, "mine", SHAPES)
    details = json.dumps({"onnxruntime-cpu-1t": {"p10": 1.0}})
    old = Row(
        "mine", "", {"latency/onnxruntime-cpu-1t": 5.0}, network.row.input, str(path), metainformation=details
    )
    write(out, [old])
    assert network_key(old) == ("mine", str(path)) != network.key
    rows = run([network], ONE, out, measure_function=fake_measure).rows
    assert rows[0] == old
    assert [row.identifier for row in rows] == [str(path)] * 2
    assert list(measurement_details(rows[1])) == ["onnxruntime-cpu-1t"]
    assert json.loads(rows[1].metainformation)["file"]["inputs"] == {"x": [1, 3, 16, 8]}


def test_a_file_has_the_batch_size_of_the_device(tmp_path, fake_measure):
    path, out = tmp_path / "m.onnx", tmp_path / "t.parquet"
    onnx.save(model_of(NARROW), path)
    sent = []

    def measure(networks, device, plan):
        for network, content in networks:
            sent.extend(input_shapes(onnx.load_model_from_string(content)).values())
            yield network, Measurement(1.0, 1.0, 1.0, 0.0, 3)

    network = OnnxFileNetwork(path, "", SHAPES)
    run([network], ONE, out, measure_function=measure)
    run([network], Device("onnxruntime", batch_size=4), out, measure_function=measure)
    assert sent == [(1, 3, 16, 8), (4, 3, 16, 8)]
    (row,) = read(out).rows
    assert "float[1,3,16,8]" in row.input
    assert row.targets.keys() == {"latency/onnxruntime-cpu-1t", "latency/onnxruntime-cpu-1t-b4"}
    contradiction = OnnxFileNetwork(path, "", {"x": (2, 3, 16, 8)})
    with pytest.raises(ValueError, match=r"m\.onnx': input 'x' has a batch of 2 .* the batch size 4"):
        run([contradiction], Device("onnxruntime", batch_size=4), out, measure_function=measure)
    assert len(sent) == 2


def save_damaged(path, damage):
    """Write a file that is no valid network."""
    model = model_of(NARROW)
    if damage == "cut":
        path.write_bytes(model.SerializeToString()[:60])
    elif damage == "operator":
        model.graph.node[0].op_type = "Reluu"
        onnx.save(model, path)
    elif damage == "text":
        path.write_text("not a network")
    else:
        model = model_of("g (float[1, 80] x) => (float[1, 90] y) { y = MatMul(x, w) }", w=(80, 90))
        onnx.save(model, path, save_as_external_data=True, location="w", size_threshold=0)
        path.with_name("w").write_bytes(b"cut")


@pytest.mark.parametrize("damage", ["cut", "operator", "text", "external data"])
def test_a_damaged_file_is_refused_before_anything_is_measured(tmp_path, damage):
    save_damaged(tmp_path / "bad.onnx", damage)
    with pytest.raises(ValueError, match=r"bad\.onnx'"):
        OnnxFileNetwork(tmp_path / "bad.onnx")


def test_open_dimensions_are_refused(tmp_path):
    onnx.save(model_of(NARROW), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"m\.onnx': input 'x' has an open dimension 2 \('height'\): give "):
        OnnxFileNetwork(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"m\.onnx': the model has no input 'image'; known: x"):
        OnnxFileNetwork(tmp_path / "m.onnx", shapes={"image": (1, 3, 16, 8)})


@pytest.mark.parametrize("text", ["", "a note", "[1]", json.dumps({"x": {"error": "e"}})])
def test_metainformation_without_measurements_gives_no_details(text):
    row = SpaceNetwork(SPACE, cells(1)[0]).row
    assert measurement_details(type(row)("s", "a", {}, metainformation=text)) == (
        {"x": {"error": "e"}} if "{" in text else {}
    )
