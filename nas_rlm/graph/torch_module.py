"""Trainable torch modules from ONNX: all networks of `search_spaces`, and files of the same operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import NodeProto, numpy_helper
from torch import fx, nn

from nas_rlm.graph.reader import inlined

END = 2**31 - 1  # of a slice that goes to the end


def to_torch(model: onnx.ModelProto) -> fx.GraphModule:
    """The torch module of an ONNX model with weights.

    >>> import numpy as np, torch, search_spaces
    >>> space = search_spaces.get("nasbench201")
    >>> cell = space.sample(np.random.default_rng(0))
    >>> module = to_torch(space.to_onnx(cell, weights=True))
    >>> module(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Args:
        model: with initialisers and one input and output of the operators in `OPERATORS`; its local functions
            are inlined.

    Returns:
        A module in training mode, whose parameters are the model's weights, for batches of any size.

    Raises:
        ValueError: an operator or a form of one that is not known here.
    """
    return _Translation(inlined(model)).module()


class _Translation:
    """A flat model, node by node.

    Args:
        model: without local functions.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in self.arrays]
        self.outputs = [o.name for o in model.graph.output]
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            raise ValueError(
                f"the model reads {', '.join(self.inputs)} and gives {', '.join(self.outputs)}:"
                " expected one input, weights as initialisers, and one output"
            )
        self.nodes = list(model.graph.node)
        self.root, self.graph = nn.Module(), fx.Graph()
        self.values: dict[str, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        self.values[self.inputs[0]] = self.graph.placeholder("x")
        for node in self.nodes:
            if node.op_type == "Constant":
                self.arrays[node.output[0]] = _constant(node)
                continue
            translate = OPERATORS.get(node.op_type)
            if translate is None:
                known = ", ".join(sorted(OPERATORS))
                raise ValueError(f"there is no torch module for {node.op_type}; there are: {known}")
            given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            self.values[node.output[0]] = translate(self, node, given)
        self.graph.output(self.values[self.outputs[0]])
        return fx.GraphModule(self.root, self.graph)

    def value(self, node: NodeProto, place: int = 0) -> Any:
        """An input of a node: a value of the graph, or a number or tensor that is constant."""
        name = node.input[place]
        if name in self.values:
            return self.values[name]
        array = self.array(node, place)
        if array.ndim == 0:
            return float(array)
        kept = f"constant{len(self.root._buffers)}"
        self.root.register_buffer(kept, torch.from_numpy(array.copy()))
        return self.graph.get_attr(kept)

    def array(self, node: NodeProto, place: int) -> np.ndarray:
        """An input of a node that has to be constant."""
        name = node.input[place]
        if name not in self.arrays:
            raise ValueError(f"input {place} of {node.op_type} is computed: expected a constant")
        return self.arrays[name]

    def weight(self, node: NodeProto, place: int) -> nn.Parameter:
        return nn.Parameter(torch.from_numpy(self.array(node, place).copy()))

    def layer(self, module: nn.Module, x: Any) -> fx.Node:
        """A module with weights, called."""
        name = f"{type(module).__name__.lower()}{len(self.root._modules)}"
        self.root.add_module(name, module)
        return self.graph.call_module(name, (x,))

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> fx.Node:
        return self.graph.call_function(function, args, named)


Given = dict[str, Any]  # attributes
Translate = Callable[[_Translation, NodeProto, Given], fx.Node]


def _constant(node: NodeProto) -> np.ndarray:
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    return np.array(value, dtype=np.float32 if "float" in attribute.name else np.int64)


def _sides(given: Given) -> tuple[tuple[int, int], list[int]]:
    """Symmetric padding, and what remains to be padded before, in the order of `torch.nn.functional.pad`."""
    if given.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise ValueError(f"auto_pad {given['auto_pad'].decode()} is not known: expected pads")
    top, left, bottom, right = given.get("pads", (0, 0, 0, 0))
    if (top, left) == (bottom, right):
        return (top, left), []
    return (0, 0), [left, right, top, bottom]


def _conv(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    weight = t.weight(node, 1)
    if weight.ndim != 4:
        raise ValueError(f"a Conv has a weight of shape {list(weight.shape)}: expected images")
    pads, rest = _sides(given)
    groups = given.get("group", 1)
    layer = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        tuple(given.get("strides", (1, 1))),
        pads,
        tuple(given.get("dilations", (1, 1))),
        groups,
        bias=len(node.input) > 2,
    )
    layer.weight = weight
    if len(node.input) > 2:
        layer.bias = t.weight(node, 2)
    x = t.value(node)
    return t.layer(layer, t.call(F.pad, x, rest) if rest else x)


def _batch_norm(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    scale = t.weight(node, 1)
    layer = nn.BatchNorm2d(len(scale), given.get("epsilon", 1e-5), 1 - given.get("momentum", 0.9))
    layer.weight, layer.bias = scale, t.weight(node, 2)
    layer.running_mean = t.weight(node, 3).data
    layer.running_var = t.weight(node, 4).data
    return t.layer(layer, t.value(node))


def _gemm(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    if given.get("transA", 0) or given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0:
        raise ValueError("a Gemm that transposes its first input or scales is not known: expected a layer")
    weight = t.weight(node, 1)
    weight = weight if given.get("transB", 0) else nn.Parameter(weight.data.T.contiguous())
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=len(node.input) > 2)
    layer.weight = weight
    if len(node.input) > 2:
        layer.bias = t.weight(node, 2)
    return t.layer(layer, t.value(node))


def _pool(t: _Translation, node: NodeProto, given: Given, function: Callable[..., Any]) -> fx.Node:
    pads, rest = _sides(given)
    if rest:
        raise ValueError(f"pads {list(given['pads'])} of {node.op_type} differ by side: expected equal ones")
    known = {
        "kernel_size": tuple(given["kernel_shape"]),
        "stride": tuple(given.get("strides", (1, 1))),
        "padding": pads,
        "ceil_mode": bool(given.get("ceil_mode", 0)),
    }
    return t.call(function, t.value(node), **known)


def _average(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    pooled = _pool(t, node, given, F.avg_pool2d)
    pooled.kwargs = {**pooled.kwargs, "count_include_pad": bool(given.get("count_include_pad", 0))}
    return pooled


def _clip(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    low, high = (float(t.array(node, i)) if len(node.input) > i and node.input[i] else None for i in (1, 2))
    return t.call(torch.clamp, t.value(node), low, high)


def _slice(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    starts, ends, axes = (t.array(node, i).tolist() for i in (1, 2, 3))
    steps = t.array(node, 4).tolist() if len(node.input) > 4 else [1] * len(starts)
    if min(steps) < 1 or min(axes) < 0:
        raise ValueError(f"a Slice along {axes} by steps of {steps} is not known: expected positive ones")
    taken = [slice(None)] * (max(axes) + 1)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        taken[axis] = slice(start, None if end >= END else end, step)
    return t.call(_taken, t.value(node), tuple(taken))


def _taken(x: torch.Tensor, part: tuple[slice, ...]) -> torch.Tensor:
    return x[part]


def _reshape(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    shape = t.array(node, 1).tolist()
    return t.call(_reshaped, t.value(node), tuple(shape))


def _reshaped(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def _hard_sigmoid(t: _Translation, node: NodeProto, given: Given) -> fx.Node:
    alpha, beta = given.get("alpha", 0.2), given.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return t.call(F.hardsigmoid, t.value(node))
    return t.call(_clamped_line, t.value(node), alpha, beta)


def _clamped_line(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    return (alpha * x + beta).clamp(0, 1)


def _simple(function: Callable[..., Any]) -> Translate:
    """An operator whose inputs are all that its function reads."""
    return lambda t, node, given: t.call(function, *(t.value(node, i) for i in range(len(node.input))))


OPERATORS: dict[str, Translate] = {
    "Add": _simple(operator.add),
    "AveragePool": _average,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda t, node, given: t.call(
        torch.cat, [t.value(node, i) for i in range(len(node.input))], given["axis"]
    ),
    "Conv": _conv,
    "Flatten": lambda t, node, given: t.call(torch.flatten, t.value(node), given.get("axis", 1)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda t, node, given: t.call(F.adaptive_avg_pool2d, t.value(node), 1),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _simple(F.hardswish),
    "Identity": lambda t, node, given: t.value(node),
    "MaxPool": lambda t, node, given: _pool(t, node, given, F.max_pool2d),
    "Mul": _simple(operator.mul),
    "Relu": _simple(F.relu),
    "Reshape": _reshape,
    "Sigmoid": _simple(torch.sigmoid),
    "Slice": _slice,
    "Sub": _simple(operator.sub),
    "Transpose": lambda t, node, given: t.call(torch.permute, t.value(node), given["perm"]),
}
