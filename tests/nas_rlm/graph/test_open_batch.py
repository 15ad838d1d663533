import numpy as np
import onnx
import pytest
import torch
from onnx import parser

import search_spaces
from nas_rlm.graph.open_batch import BATCH, with_open_batch
from nas_rlm.graph.torch_module import to_torch
from nas_rlm.text.canonical import costed_text


def first_sizes(values):
    return [
        v.type.tensor_type.shape.dim[0].dim_param or v.type.tensor_type.shape.dim[0].dim_value for v in values
    ]


@pytest.mark.parametrize("name", ["nasbench201", "snas", "fbnet"])
def test_networks_of_spaces_take_any_batch_and_keep_their_text(name):
    space = search_spaces.get(name)
    model = space.to_onnx(space.sample(np.random.default_rng(1)), weights=True)
    opened = with_open_batch(model)
    assert first_sizes(model.graph.input) == [1]
    assert first_sizes(opened.graph.input) == first_sizes(opened.graph.output) == [BATCH]
    assert costed_text(opened) == costed_text(model)
    onnx.checker.check_model(opened, full_check=True)
    images = torch.randn(3, *space.input_shape)
    with torch.no_grad():
        before, after = to_torch(model).eval()(images), to_torch(opened).eval()(images)
    assert torch.equal(before, after)


def model_of(nodes):
    weights = ", ".join(str(float(k % 5)) for k in range(16))
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (y)'
        f" <float[4, 4] w = {{{weights}}}, int64[2] shape = {{1, 4}}> {{ {nodes} }}"
    )


@pytest.mark.parametrize(
    ("nodes", "is_opened"),
    [
        ("y = MatMul (x, w)", True),
        ("z = MatMul (x, w) y = Reshape (z, shape)", False),
        ("z = MatMul (x, w) y = Softmax <axis = 0> (z)", False),
        ("z = Det (w) y = Add (x, z)", False),
    ],
    ids=["product", "constant size", "over the batch", "no torch module"],
)
def test_models_whose_results_depend_on_the_batch_stay_as_they_are(nodes, is_opened):
    model = model_of(nodes)
    assert (with_open_batch(model) is not model) == is_opened


def test_a_model_whose_shapes_cannot_be_inferred_stays_as_it_is(monkeypatch):
    def fail(*_, **__):
        raise onnx.shape_inference.InferenceError("unknown operator")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fail)
    model = model_of("y = MatMul (x, w)")
    assert with_open_batch(model) is model


def test_a_model_that_torch_cannot_run_stays_as_it_is():
    model = model_of("y = Concat <axis = 1> (x, w)")
    assert with_open_batch(model) is model
