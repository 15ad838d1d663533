"""Small ONNX models that no search space writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int]],
    output: Sequence[int],
    weights: dict[str, Sequence[int]],
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, output)],
        [*tensors, *constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _integers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def conv_net() -> onnx.ModelProto:
    """Two convolutions with a shortcut, batch norm, pooling and a classifier."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1], group=4),
        node("BatchNormalization", ["c", "s", "t", "m", "v"], ["d"]),
        node("Add", ["d", "b"], ["e"]),
        node("Relu", ["e"], ["f"]),
        node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["g"], ["h"]),
        node("Flatten", ["h"], ["i"]),
        node("Gemm", ["i", "w2", "b2"], ["out"], transB=1),
    ]
    weights = {"w0": (16, 3, 3, 3), "b0": (16,), "w1": (16, 4, 3, 3), "w2": (10, 16), "b2": (10,)}
    return _model(nodes, {"x": (1, 3, 32, 32)}, (1, 10), {**weights, **dict.fromkeys("stmv", (16,))})


def mlp() -> onnx.ModelProto:
    """Three linear layers."""
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w1"], ["c"]),
        node("Add", ["c", "b1"], ["d"]),
        node("Sigmoid", ["d"], ["e"]),
        node("Gemm", ["e", "w2", "b2"], ["out"]),
    ]
    weights = {"w0": (64, 128), "b0": (128,), "w1": (128, 128), "b1": (128,), "w2": (128, 8), "b2": (8,)}
    return _model(nodes, {"x": (4, 64)}, (4, 8), weights)


def attention() -> onnx.ModelProto:
    """Single-head attention with a residual connection and layer normalisation."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Constant", [], ["scale"], value_float=8.0),
        node("Div", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["mixed"]),
        node("MatMul", ["mixed", "wo"], ["projected"]),
        node("Add", ["projected", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "g", "b"], ["out"], axis=-1),
    ]
    weights = {**dict.fromkeys(("wq", "wk", "wv", "wo"), (64, 64)), "g": (64,), "b": (64,)}
    return _model(nodes, {"x": (1, 16, 64)}, (1, 16, 64), weights)


def resize() -> onnx.ModelProto:
    """A convolution whose output is enlarged, joined with another, and reshaped."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("HardSwish", ["a"], ["b"]),
        node("Resize", ["b", "", "scales"], ["c"], mode="nearest"),
        node("Conv", ["x", "w1"], ["d"]),
        node("Concat", ["c", "d"], ["e"], axis=1),
        node("Reshape", ["e", "target"], ["f"]),
        node("ReduceMean", ["f", "axes"], ["g"], keepdims=0),
        node("Slice", ["g", "starts", "ends"], ["out"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
        _integers("target", 1, 24, -1),
        _integers("axes", 2),
        _integers("starts", 0, 4),
        _integers("ends", 1, 20),
    ]
    return _model(nodes, {"x": (1, 3, 16, 16)}, (1, 16), {"w0": (16, 3, 3, 3), "w1": (8, 3, 1, 1)}, constants)


FOREIGN: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv_net": conv_net,
    "mlp": mlp,
    "attention": attention,
    "resize": resize,
}
