"""Torch modules: all kinds of calls, errors of others, and buffers, which are no parameters."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from nas_rlm import RLM, from_torch
from nas_rlm.data.synthetic import graph_features
from nas_rlm.graph.torch_export import export_module, operators_read_once
from nas_rlm.text import from_onnx

pytest.importorskip("onnxscript", reason="onnxscript, which torch exports with, is not installed")
X = torch.zeros(2, 8)


class Scaled(nn.Module):
    """A linear layer with an optional factor."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x, *, factor=None):
        return self.linear(x if factor is None else x * factor)


@pytest.mark.parametrize(
    ("example", "kwargs"), [((X,), {"factor": X}), ([X], {"factor": X}), (X, {"factor": X}), (None, {"x": X})]
)
def test_arguments_may_be_named(example, kwargs):
    text = from_torch(Scaled(), example, kwargs)
    assert ("Mul" in text) == ("factor" in kwargs)
    costs = RLM.load("nas").predict_module(Scaled(), example, ["flops", "params"], kwargs=kwargs)
    assert costs.tolist() == [64, 36]


@pytest.mark.parametrize(
    ("example", "kwargs", "message"),
    [
        (None, None, "example_inputs is None: expected a tensor"),
        (None, {}, "example_inputs is None: expected a tensor"),
        ("x", None, "example_inputs is of type str: expected a tensor"),
        (8, None, "example_inputs is of type int: expected a tensor"),
        (np.zeros((2, 8)), None, "example_inputs is of type ndarray: expected a tensor"),
        ({"x": X}, None, "named arguments are given as kwargs"),
        ((2, 8), None, r"have no tensor \(of type int, of type int\): expected torch.zeros"),
        ((), None, r"have no tensor \(nothing\)"),
        ((np.zeros((2, 8)),), None, r"have no tensor \(of type ndarray\)"),
        (X, [X], "kwargs is of type list: expected a mapping"),
        ((X, X), None, "forward of Scaled does not take the example inputs: too many positional"),
        (X, {"wrong": X}, "forward of Scaled does not take the example inputs: .*'wrong'"),
        ((), {"factor": X}, "forward of Scaled does not take the example inputs: missing .*'x'"),
        (torch.zeros(2, 7), None, "cannot be exported by torch.export: .*; expected example inputs that"),
        (torch.zeros(2, 8, device="meta"), None, "an example input is on the device meta"),
    ],
)
def test_other_arguments_have_one_clear_error(example, kwargs, message, capfd):
    with pytest.raises(ValueError, match=message) as error:
        from_torch(Scaled(), example, kwargs)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        RLM.load("nas").predict_module(Scaled(), example, ["flops"], kwargs=kwargs)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "None is not a torch module"),
        (abs, "is not a torch module"),
        (nn.Linear, "is not a torch module: expected an instance of the class"),
        (
            nn.Linear(8, 4, device="meta"),
            "Linear has 'weight' on the device meta: expected weights with values",
        ),
        (
            nn.Sequential(nn.BatchNorm1d(8, affine=False, device="meta")),
            "'0.running_mean' on the device meta",
        ),
        (nn.LazyLinear(4), "LazyLinear has the lazy parameter 'weight': call the module once"),
    ],
)
def test_modules_without_weights_have_one_clear_error(module, message):
    with pytest.raises(ValueError, match=message):
        from_torch(module, X)


class Buffers(nn.Module):
    """Constants of all kinds, and two weights."""

    def __init__(self, kind):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = torch.randn(8, 8)
        if kind != "attribute":
            self.register_buffer("buffer", self.table, persistent=kind == "persistent")
        self.kind = kind

    def forward(self, x):
        table = self.table if self.kind == "attribute" else self.buffer
        return self.linear(x) @ table + table[0]


def test_a_convolution_of_volumes_without_a_bias_has_none():
    text = from_torch(nn.Conv3d(3, 8, 3, bias=False), torch.zeros(2, 3, 5, 5, 5))
    assert "Conv(x0,W8_3_3_3_3)" in text
    assert graph_features(text)["params"] == 8 * 3 * 3**3


def test_weights_may_exceed_the_size_of_an_onnx_file():
    module = nn.Linear(24_000, 24_000, device="meta").to_empty(device="cpu")  # not written, so not in memory
    model = export_module(module, torch.zeros(1, 24_000))
    assert sum(tensor.ByteSize() for tensor in model.graph.initializer) < 10_000
    assert graph_features(from_onnx(model))["params"] == 24_000 * 24_001


class Cumulated(nn.Module):
    """A product that has no operator in ONNX."""

    def forward(self, x):
        return x.cumprod(1)


def test_messages_of_torch_have_no_colours():
    with pytest.raises(ValueError, match="Cumulated cannot be exported") as error:
        from_torch(Cumulated(), X)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("kind", ["persistent", "not persistent", "attribute"])
def test_buffers_of_floats_are_no_parameters(kind):
    module = Buffers(kind)
    text = from_torch(module, X)
    features = graph_features(text)
    assert features["params"] == sum(p.numel() for p in module.parameters()) == 72
    assert features["flops"] == 2 * 2 * 64
    assert "C_8_8" in text and "C_8)" in text


def test_an_operator_on_buffers_alone_is_no_parameter():
    class Frequencies(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("frequencies", torch.rand(1, 8))
            self.register_buffer("positions", torch.arange(2.0).reshape(2, 1))

        def forward(self, x):
            return x + torch.sin(self.positions @ self.frequencies)

    assert graph_features(from_torch(Frequencies(), X))["params"] == 0


@pytest.mark.parametrize("affine", [True, False])
def test_the_statistics_of_a_batch_normalization_are_its_weights(affine):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine))
    text = from_torch(module, torch.zeros(1, 3, 8, 8))
    assert ("C_4" in text) == (not affine)  # a computed scale
    expected = 4 * 27 + 4 + (8 if affine else 0)
    assert graph_features(text)["params"] == expected


def test_a_weight_that_is_also_a_buffer_is_a_parameter():
    module = Scaled()
    module.register_buffer("copy", module.linear.weight.detach())
    assert graph_features(from_torch(module, X))["params"] == 36


def test_the_text_with_constants_is_canonical():
    text = from_onnx(export_module(Buffers("persistent"), X))
    assert from_onnx(onnx.parser.parse_model(text)) == text


def test_the_operators_of_torch_are_read_once_and_found_again(monkeypatch):
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    export_module(nn.Linear(8, 4), X)
    original = ONNXRegistry.__dict__["from_torchlib"]
    monkeypatch.setattr(ONNXRegistry, "_register", None)  # which reading calls for each function
    with operators_read_once():
        assert "Relu" in from_torch(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), X)
    assert ONNXRegistry.__dict__["from_torchlib"] is original
    with pytest.raises(TypeError, match="not callable"):
        torch.onnx.export(nn.Linear(8, 4).eval(), (X,), dynamo=True, verbose=False)
