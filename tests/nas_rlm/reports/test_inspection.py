import json
import os
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import nas_rlm
import search_spaces
from nas_rlm import RLM, inspect_network
from nas_rlm.cli import main
from nas_rlm.text import from_architecture, from_onnx

OPEN = (
    '<ir_version: 8, opset_import: ["": 17]>'
    " g (float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[n, 8, a, b] y)"
    " { c = Conv <pads = [1, 1, 1, 1]> (x, k) y = Relu (c) }"
)
SHAPE = {"x": (1, 3, 16, 16)}
KEYS = {"name", "inputs", "outputs", "nodes", "macs", "params", "activations", "tokens", "warnings"}


@pytest.fixture(scope="module")
def rlm():
    return RLM.load("nas")


@pytest.fixture
def open_file(tmp_path):
    model = onnx.parser.parse_model(OPEN)
    del model.graph.input[1:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "k"))
    onnx.save(model, tmp_path / "open.onnx")
    return tmp_path / "open.onnx"


def test_report_of_a_network_of_a_known_space(rlm):
    space = search_spaces.get("nasbench201")
    cell = space.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|none~0|skip_connect~1|nor_conv_1x1~2|"
    )
    report = inspect_network(space.to_onnx(cell), rlm)
    assert (report.macs, report.params) == (space.flops(cell), space.params(cell))
    assert report.tokens == len(rlm.tokenizer.encode(from_architecture(space, cell)))
    assert report.similar[0].space == "nasbench201"
    assert report.similar[0].known_layers == 1
    assert report.similar[0].macs_in_range
    assert report.warnings == ()
    assert report.precision == "float32"
    assert report.operators["AveragePool"] == 15 + 2
    assert any(n == 15 for _, n in report.repeated_blocks)


def test_open_sizes_are_reported_or_given(rlm, open_file):
    unknown = inspect_network(open_file, rlm)
    assert unknown.macs is None
    assert "input 'x' has an open dimension 2 ('h')" in unknown.warnings[0]
    assert unknown.inputs[0].shape == (1, 3, "h", "w")
    known = inspect_network(open_file, rlm, SHAPE)
    assert (known.macs, known.params, known.weight_bytes) == (27 * 8 * 256, 216, 864)
    assert (known.outputs[0].name, known.outputs[0].shape) == ("y", (1, 8, 16, 16))
    assert (known.nodes, known.operators) == (2, {"Conv": 1, "Relu": 1})


def test_the_model_may_be_named(rlm, tmp_path, open_file):
    expected = inspect_network(open_file, rlm, SHAPE)
    assert inspect_network(open_file, shapes=SHAPE) == expected
    assert inspect_network(open_file, "nas", SHAPE) == expected
    assert inspect_network(str(open_file), rlm, SHAPE) == expected
    assert inspect_network(onnx.load(open_file), rlm, SHAPE) == replace(expected, name="g")
    with pytest.raises(FileNotFoundError, match="no checkpoint at 'nothing'"):
        inspect_network(open_file, "nothing")
    for other in (None, 3, b"nas"):
        with pytest.raises(ValueError, match="expected an RLM, a checkpoint directory or the name"):
            inspect_network(open_file, other)


@pytest.mark.parametrize("shapes", [[], [(1, 3, 8, 8)], (1, 3, 8, 8), "x:1x3x8x8", np.ones(4), 3])
def test_shapes_are_given_by_name(rlm, open_file, shapes):
    message = f"shapes is of type {type(shapes).__name__}: expected the shapes of inputs by name"
    calls = (
        lambda: nas_rlm.from_onnx(open_file, shapes),
        lambda: inspect_network(open_file, rlm, shapes),
        lambda: rlm.predict_onnx([open_file], ["flops"], shapes=shapes),
    )
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["directory", "pipe", "missing"])
@pytest.mark.parametrize("verb", ["predict", "rank", "inspect", "export-text"])
def test_what_is_no_file_has_one_clear_error(verb, name, capsys, tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    objectives = {"predict": ("--objectives", "flops"), "rank": ("--by", "flops")}.get(verb, ())
    assert main([verb, str(tmp_path / name), *objectives]) == 2
    error = capsys.readouterr().err
    reason = {"directory": "is a directory", "pipe": "is a pipe or device", "missing": "no file"}[name]
    assert reason in error.replace("ONNX ", "") and name in error and error.count("\n") == 1


@pytest.mark.parametrize("verb", ["predict", "inspect"])
def test_all_files_that_cannot_be_read_are_named(verb, capsys, tmp_path):
    files = [tmp_path / f"{name}.onnx" for name in ("first", "second")]
    for file in files:
        onnx.save(onnx.parser.parse_model(OPEN.replace("Relu", "Reluu")), file)
    objectives = ("--objectives", "flops") if verb == "predict" else ()
    assert main([verb, *map(str, files), *objectives]) == 2
    error = capsys.readouterr().err
    assert "first.onnx" in error and "second.onnx" in error and error.count("\n") == 1


def test_json_of_the_verb_has_stable_keys(capsys, open_file):
    assert main(["inspect", str(open_file), "--input-shape", "x:1x3x16x16", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report.keys() >= KEYS
    assert (report["macs"], report["nodes"]) == (55296, 2)
    assert main(["inspect", str(open_file)]) == 0
    assert "not known" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["predict", "rank", "inspect", "export-text"])
def test_wrong_shapes_are_refused(verb, capsys, open_file):
    objectives = {"predict": ("--objectives", "flops"), "rank": ("--by", "flops")}.get(verb, ())
    for shape, message in (
        ("image:1x3x8x8", "known: x"),
        ("x:1x3x8", "has 3"),
        ("x:1x1x8x8", "which is 3 in the file"),
        ("x", "is not the shape of an input"),
    ):
        assert main([verb, str(open_file), *objectives, "--input-shape", shape]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_costs_of_open_sizes_are_an_error_that_shows_the_option(capsys, open_file):
    assert main(["predict", str(open_file), "--objectives", "flops"]) == 2
    assert "input 'x' has an open dimension 2 ('h'): give --input-shape x:1x3x" in capsys.readouterr().err
    assert main(["predict", str(open_file), "--objectives", "flops", "--input-shape", "x:1x3x16x16"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(",55296")


def test_exported_texts_are_those_of_the_file(capsys, tmp_path, open_file):
    assert main(["export-text", str(open_file), "--input-shape", "x:1x3x16x16"]) == 0
    text = capsys.readouterr().out
    assert text == from_onnx(open_file, SHAPE)
    assert main(["export-text", str(open_file), "--out", str(tmp_path / "texts")]) == 0
    assert (tmp_path / "texts" / "open.txt").read_text() == from_onnx(open_file)


def test_limits_are_options(capsys, open_file):
    assert main(["inspect", str(open_file), "--max-nodes", "1"]) == 2
    assert "more nodes than the limit of 1" in capsys.readouterr().err
    assert main(["inspect", str(open_file), "--max-seconds", "0"]) == 2
    assert "expected a positive number" in capsys.readouterr().err


def test_torch_modules_have_the_text_of_the_space_and_exact_costs(rlm):
    from nas_rlm.graph.torch_module import to_torch

    space = search_spaces.get("nats_size")
    architecture = space.parse("8:16:24:32:40")
    module = to_torch(space.to_onnx(architecture, weights=True))
    example = torch.zeros(1, 3, 32, 32)
    assert nas_rlm.from_torch(module, example) == from_architecture(space, architecture)
    assert module.training
    costs = rlm.predict_module(module, example, ["flops", "params"])
    assert costs.tolist() == [space.flops(architecture), space.params(architecture)]


def test_modules_that_cannot_be_traced_are_refused():
    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match=r"Branch cannot be exported by torch\.export"):
        nas_rlm.from_torch(Branch(), torch.zeros(2))
    with pytest.raises(ValueError, match="is not a torch module"):
        nas_rlm.from_torch(abs, torch.zeros(2))


def test_files_with_numbers_become_a_table(capsys, tmp_path, open_file):
    (tmp_path / "numbers.csv").write_text("file,latency/box,accuracy\nopen.onnx,1.5,\nmissing.onnx,2,3\n")
    out = tmp_path / "t.parquet"
    command = ["data", "import", "onnx", str(tmp_path / "numbers.csv"), "--out", str(out)]
    assert main([*command, "--input-shape", "x:1x3x16x16"]) == 0
    captured = capsys.readouterr()
    assert "1 row:" in captured.out
    assert "1 entry is not valid" in captured.err
    (row,) = nas_rlm.read_table(out).rows
    assert row.targets == {"latency/box": 1.5}
    assert row.input == from_onnx(open_file, SHAPE)
    (tmp_path / "bad.csv").write_text("name,accuracy\nx,1\n")
    assert main(["data", "import", "onnx", str(tmp_path / "bad.csv"), "--out", str(out)]) == 2
    assert "expected file" in capsys.readouterr().err
