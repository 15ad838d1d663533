"""Recurrent layers, against the runtime."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from nas_rlm.graph.torch_module import to_torch
from nas_rlm.graph.torch_modules.recurrent import ResetFirstGRU

STEPS, BATCH, FEATURES, HIDDEN = 5, 2, 6, 3


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("reset_last", [0, 1])
@pytest.mark.parametrize("optional", [False, True])
def test_outputs_of_a_gru_are_those_of_the_runtime(direction, reset_last, optional):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    directions, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(0)
    shapes = {"w": (3 * HIDDEN, FEATURES), "r": (3 * HIDDEN, HIDDEN)}
    if optional:
        shapes |= {"b": (6 * HIDDEN,), "h": (BATCH, HIDDEN)}
    weights = [
        numpy_helper.from_array(rng.normal(size=(directions, *shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    inputs = ["x", "w", "r", *(["b", "", "h"] if optional else [])]
    node = onnx.helper.make_node(
        "GRU", inputs, ["y", "z"], hidden_size=HIDDEN, linear_before_reset=reset_last, direction=direction
    )
    x, *outputs = (
        onnx.helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [STEPS, BATCH, FEATURES]), ("y", None), ("z", None))
    )
    graph = onnx.helper.make_graph([node], "g", [x], outputs, weights)
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    given = rng.normal(size=(STEPS, BATCH, FEATURES)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": given})
    found = to_torch(model)(torch.from_numpy(given))
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), z, atol=1e-5)


def test_a_gru_whose_reset_gate_is_open_does_not_depend_on_when_it_resets():
    torch.manual_seed(0)
    layer, other = ResetFirstGRU(FEATURES, HIDDEN), nn.GRU(FEATURES, HIDDEN)
    x = torch.randn(STEPS, BATCH, FEATURES)
    other.load_state_dict(layer.state_dict())
    assert not torch.allclose(layer(x)[0], other(x)[0], atol=1e-3)
    with torch.no_grad():
        layer.bias_ih_l0[:HIDDEN] = 100.0
        layer.bias_hh_l0[2 * HIDDEN :] = 0.0
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), other(x))
    layer(x)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
