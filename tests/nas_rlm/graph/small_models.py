"""Small models that are written in ONNX's own syntax, with weights."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nas_rlm.data.synthetic import graph_features
from nas_rlm.text import from_onnx


def small_model(
    body: str,
    inputs: str,
    weights: Mapping[str, object] | None = None,
    outputs: str = "float y",
    opset: int = 21,
    functions: str = "",
) -> onnx.ModelProto:
    """Return a model.

    Args:
        body: statements.
        inputs: inputs with their types.
        weights: by name a shape for random float32 values, an array, or a TensorProto.
        outputs: outputs with their types.
        opset: operator set.
        functions: local functions as text.
    """
    imports = f'"": {opset}, "com.microsoft": 1, "com.microsoft.nchwc": 1, "ai.onnx.ml": 3, "acme": 1'
    head = f"<ir_version: 10, opset_import: [{imports}]> main ({inputs}) => ({outputs})"
    model = onnx.parser.parse_model(f"{head} {{ {body} }} {functions}")
    for output in model.graph.output:  # types are not checked by the reader
        if output.type.tensor_type.elem_type and not output.type.tensor_type.shape.dim:
            output.type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    for name, value in (weights or {}).items():
        if isinstance(value, TensorProto):
            model.graph.initializer.append(value)
            continue
        array = value if isinstance(value, np.ndarray) else rng.standard_normal(value).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def integers(*shape: int, dtype: type = np.int8) -> np.ndarray:
    """Return random integers that are not all equal."""
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


def costs(model: onnx.ModelProto) -> tuple[float, float]:
    """Return the multiply-accumulates and parameters of a model; its text has to be valid ONNX."""
    text = from_onnx(model)
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == text
    found = graph_features(text)
    flat = graph_features(from_onnx(model, outlined=False))
    assert (flat["flops"], flat["params"]) == (found["flops"], found["params"])
    return found["flops"], found["params"]


def float16(name: str, *shape: int) -> TensorProto:
    """Return a weight of type float16."""
    return numpy_helper.from_array(np.random.default_rng(2).standard_normal(shape).astype(np.float16), name)


def int4(name: str, *shape: int) -> TensorProto:
    """Return a weight of type int4."""
    values = np.random.default_rng(3).integers(-8, 8, shape)
    return helper.make_tensor(name, TensorProto.INT4, shape, values.reshape(-1).tolist())


def text_of(*args, **options):
    """The text, which has to be valid ONNX and its own canonical form."""
    text = from_onnx(small_model(*args, **options))
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == text
    return text


def vectors(**values):
    return {name: np.array(value, np.int64) for name, value in values.items()}
