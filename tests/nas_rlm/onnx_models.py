"""Small ONNX models made by hand, flat, for the text tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from search_spaces import SearchSpace
from search_spaces.graph import Constant, Graph, Value


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
                both = g.op("Concat", left, right, axis=1)
                values.append(g.op("Conv", both, g.weight(8, 16, 1, 1)))
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


@dataclass(frozen=True)
class Recipe:
    """A network of `RandomBlocks`, by the seed that draws it."""

    seed: int


class RandomBlocks(SearchSpace[Recipe]):
    """Networks of blocks within blocks: chains, cells, shortcuts around blocks, values that several read."""

    name = "random_blocks"
    size, genes = None, (1 << 30,)

    def decode(self, genome: np.ndarray) -> Recipe:
        return Recipe(int(genome[0]))

    def encode(self, architecture: Recipe) -> np.ndarray:
        return np.array([architecture.seed])

    def parse(self, text: str) -> Recipe:
        return Recipe(int(text))

    def write(self, graph: Graph, architecture: Recipe) -> Value:
        rng = np.random.default_rng(architecture.seed)
        seeds = rng.integers(1 << 30, size=4)
        x = graph.block(_layer, graph.input, 8, 3)
        for _ in range(int(rng.integers(1, 8))):
            seed = int(rng.choice(seeds))
            y = graph.block(_random_block, x, seed)
            if rng.random() < 0.2:
                y = graph.op("Relu", y)
            x = graph.op("Add", x, y) if rng.random() < 0.3 and x.channels == y.channels else y
        return graph.classifier(x, 10)


def _layer(graph: Graph, x: Value, channels: int, kernel: int) -> Value:
    return graph.op("Relu", graph.batch_norm(graph.conv(x, channels, kernel)))


def _random_block(graph: Graph, x: Value, seed: int, depth: int = 0) -> Value:
    rng = np.random.default_rng(seed)
    values = [x]
    for _ in range(int(rng.integers(1, 6))):
        a, b = (values[int(i)] for i in rng.integers(len(values), size=2))
        kind = int(rng.integers(8))
        if kind < 2:
            values.append(graph.block(_layer, a, int(rng.choice([a.channels, 16])), int(rng.choice([1, 3]))))
        elif kind < 4 and a.channels == b.channels:
            values.append(graph.op("Add", a, b))
        elif kind == 4:
            values.append(graph.pool("MaxPool", a, 3, padded=True))
        elif kind == 5 and depth < 2:
            values.append(graph.block(_random_block, a, int(rng.integers(1 << 30)), depth + 1))
        elif kind == 6:
            values.append(graph.op("Mul", a, Constant(0.0)))
        else:
            values.append(graph.op("Concat", a, b, channels=a.channels + b.channels, axis=1))
    return values[-1]


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Return a copy of a model with one input that reads another number of examples at once."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (copy.graph.input[0], *copy.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del copy.graph.value_info[:]
    return copy
