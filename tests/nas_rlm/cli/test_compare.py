import json

import onnx
import pytest

from nas_rlm import compare_networks
from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import refused
from tests.nas_rlm.onnx_models import residual_network


@pytest.fixture
def command(layer_checkpoint, cell_files):
    return ("compare", *map(str, cell_files), "--model", str(layer_checkpoint))


def test_the_table_has_costs_and_intervals(capsys, command, layer_rlm, cell_files):
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    found = compare_networks(cell_files, (), layer_rlm)
    assert lines[0].split() == ["cell0.onnx", "cell1.onnx"]
    rows = {line.split("  ")[0]: line for line in lines[1:]}
    assert list(rows) == [
        *("MACs", "parameters", "activations", "latency/cortexA76cpu (ms, one input)", "latency/mybox (ms)")
    ]
    for network in found.networks:
        assert f"{network.macs:,}" in rows["MACs"]
        assert f"{network.params:,}" in rows["parameters"]
        assert f"{network.activations:,}" in rows["activations"]
        p = network.predictions["latency/mybox"]
        assert f"{p.median:.4g} [{p.low:.4g}, {p.high:.4g}]" in rows["latency/mybox (ms)"]


def test_data_are_those_of_the_comparison(tmp_path, command, layer_rlm, cell_files):
    out = tmp_path / "compare.json"
    assert main([*command, "--objectives", "latency/mybox,flops", "--out", str(out)]) == 0
    found = compare_networks(cell_files, ["latency/mybox"], layer_rlm)
    assert json.loads(out.read_text()) == json.loads(json.dumps(found.to_dict()))
    assert json.loads(out.read_text())["block_objective"] == "latency/mybox"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_picture(capsys, tmp_path, command, suffix):
    out = tmp_path / f"blocks{suffix}"
    assert main([*command, "--out", str(out)]) == 0
    assert out.stat().st_size > 3_000
    assert f"picture: {out}" in capsys.readouterr().out


def test_the_page_has_table_and_picture(tmp_path, layer_checkpoint):
    file, out = tmp_path / "a<b>.onnx", tmp_path / "compare.html"
    onnx.save(residual_network(1, initialisers=True), file)
    command = ["compare", str(file), "--model", str(layer_checkpoint), "--out", str(out)]
    assert main(command) == 0
    page = out.read_text()
    assert "a&lt;b&gt;.onnx" in page
    assert "a<b>" not in page
    assert page.count("<tr>") == 6
    assert page.count("data:image/png;base64,") == 1


def test_without_a_layer_surrogate_the_picture_alone_is_refused(capsys, tmp_path, command):
    pixel = (*command, "--objectives", "latency/pixel3")
    assert main([*pixel]) == 0
    assert "latency/pixel3 (ms, one input)" in capsys.readouterr().out
    out = tmp_path / "blocks.png"
    assert "no layer surrogate predicts latency/pixel3" in refused(capsys, *pixel, "--out", out)
    assert not out.exists()
    page = tmp_path / "compare.html"
    assert main([*pixel, "--out", str(page)]) == 0
    assert "no layer surrogate predicts latency/pixel3" in capsys.readouterr().err
    assert "<img" not in page.read_text()


def test_open_sizes_are_given(capsys, tmp_path, layer_checkpoint):
    model = residual_network(1, initialisers=True)
    for dimension, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], "hw", strict=True):
        dimension.dim_param = name
    onnx.save(model, tmp_path / "open.onnx")
    command = ("compare", tmp_path / "open.onnx", "--model", layer_checkpoint, "--objectives", "flops")
    assert "open dimension" in refused(capsys, *command)
    assert main([*map(str, command), "--input-shape", "image:1x8x16x16"]) == 0


def test_bad_input_gets_one_error(capsys, tmp_path, command, cell_files):
    assert "nothing to compare" in refused(capsys, "compare")
    assert "expected .html, .json or .png" in refused(capsys, *command, "--out", tmp_path / "out.txt")
    assert "did you mean latency/mybox" in refused(capsys, *command, "--objectives", "latency/mybix")
    picture = ("--objectives", "latency/mybix", "--out", tmp_path / "a.png")
    assert "did you mean latency/mybox" in refused(capsys, *command, *picture)
    assert "'nope'" in refused(capsys, "compare", cell_files[0], "--model", "nope")
    assert "missing.onnx" in refused(capsys, "compare", tmp_path / "missing.onnx")
    assert "no space 'nope'" in refused(capsys, *command, "--space", "nope", "--objectives", "latency/mybox")


def test_programs_are_refused_with_the_commands_that_compare_them(capsys, tmp_path):
    (tmp_path / "a.py").write_text("def f(n):\n    return n\n")
    line = refused(capsys, "compare", str(tmp_path / "a.py"))
    assert "a.py is a program, which has no layers: expected ONNX files" in line
    assert "nas-rlm rank FILES --by memory,time" in line and "nas-rlm predict FILES" in line
