"""Small ONNX models made by hand, flat, for the text tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class FlatModel:
    """Collects nodes; weights are inputs named by shape unless `initialisers` asks for real ones."""

    def __init__(self, initialisers: bool = False) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, tuple[int, ...]] = {}
        self.tensors: list[onnx.TensorProto] = []
        self.initialisers = initialisers

    def weight(self, *shape: int) -> str:
        if self.initialisers:
            name = f"param{len(self.tensors)}"
            self.tensors.append(numpy_helper.from_array(np.full(shape, 0.5, np.float32), name))
            return name
        name = "W" + "_".join(map(str, shape))
        self.weights[name] = shape
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def conv_bn_relu(self, x: str, c_in: int, c_out: int, kernel: int = 3) -> str:
        x = self.op("Conv", x, self.weight(c_out, c_in, kernel, kernel), pads=[kernel // 2] * 4)
        x = self.op("BatchNormalization", x, *(self.weight(c_out) for _ in range(4)))
        return self.op("Relu", x)

    def build(self, out: str, order: Sequence[int] | None = None, opset: int = 21) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 8, 16, 16])]
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.weights.items()]
        outputs = [helper.make_tensor_value_info(out, TensorProto.FLOAT, [1, 8, 16, 16])]
        nodes = [self.nodes[i] for i in order] if order is not None else self.nodes
        graph = helper.make_graph(nodes, "network", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def residual_network(blocks: int, initialisers: bool = False) -> onnx.ModelProto:
    """A stem, then residual blocks of two convolutions, all alike."""
    g = FlatModel(initialisers)
    x = g.conv_bn_relu("image", 8, 8)
    for _ in range(blocks):
        y = g.conv_bn_relu(g.conv_bn_relu(x, 8, 8), 8, 8)
        x = g.op("Add", x, y)
    return g.build(x)


def random_network(rng: np.random.Generator, size: int, repeats: int) -> FlatModel:
    """A random cell of unary and binary operators, stacked; the last value has the name t{n-1}."""
    plan = [
        (int(rng.integers(5)), int(rng.integers(1 << 30)), int(rng.integers(1 << 30))) for _ in range(size)
    ]
    g = FlatModel()
    x = "image"
    for _ in range(repeats):
        values = [x]
        used: set[str] = set()
        for kind, a, b in plan:
            left, right = values[a % len(values)], values[b % len(values)]
            used |= {left, right}
            if kind == 0:
                values.append(g.op("Add", left, right))
            elif kind == 1:
                values.append(g.op("Concat", left, right, axis=1))
            elif kind == 2:
                values.append(g.op("Relu", left))
            elif kind == 3:
                values.append(g.op("Conv", left, g.weight(8, 8, 1, 1)))
            else:
                values.append(g.op("MaxPool", left, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        loose = [v for v in values[1:] if v not in used] or [values[-1]]
        x = loose[0]
        for v in loose[1:]:
            x = g.op("Add", x, v)
    return g
