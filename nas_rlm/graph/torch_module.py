"""Conversion of ONNX models to trainable torch modules, for the operators that `search_spaces` writes."""

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

from nas_rlm.graph.onnx_graphs.loading import inline_functions

SLICE_END = 2**31 - 1  # a Slice to the end of an axis


def to_torch(model: onnx.ModelProto) -> fx.GraphModule:
    """Return the torch module of an ONNX model with weights.

    Examples:
        >>> import numpy as np, torch, search_spaces
        >>> space = search_spaces.get("nasbench201")
        >>> cell = space.sample(np.random.default_rng(0))
        >>> module = to_torch(space.to_onnx(cell, weights=True))
        >>> module(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Args:
        model: model of the operators in OPERATORS, with one input, one output, and weights as initialisers.

    Returns:
        A module in training mode for batches of any size, whose parameters are the model's weights.

    Raises:
        ValueError: the model has other inputs or outputs, or an unsupported operator or attribute.
    """
    return _Translator(inline_functions(model)).module()


class _Translator:
    """Translator of the nodes of a model to torch modules and functions.

    Args:
        model: model without local functions.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in self.arrays]
        self.outputs = [o.name for o in model.graph.output]
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            raise ValueError(
                f"the model has the inputs {self.inputs} and the outputs {self.outputs}:"
                " expected one input, weights as initialisers, and one output"
            )
        self.nodes = list(model.graph.node)
        self.root, self.graph = nn.Module(), fx.Graph()
        self.values: dict[str, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        """Return the translated model."""
        self.values[self.inputs[0]] = self.graph.placeholder("x")
        for node in self.nodes:
            if node.op_type == "Constant":
                self.arrays[node.output[0]] = _constant(node)
                continue
            translate = OPERATORS.get(node.op_type)
            if translate is None:
                supported = ", ".join(sorted(OPERATORS))
                raise ValueError(f"{node.op_type} is not supported: expected one of {supported}")
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            self.values[node.output[0]] = translate(self, node, attributes)
        self.graph.output(self.values[self.outputs[0]])
        return fx.GraphModule(self.root, self.graph)

    def operand(self, node: NodeProto, position: int = 0) -> Any:
        """Return an input of a node as an operand in torch: an fx node, a buffer, or a float for a scalar."""
        name = node.input[position]
        if name in self.values:
            return self.values[name]
        array = self.array(node, position)
        if array.ndim == 0:
            return float(array)
        buffer_name = f"constant{len(self.root._buffers)}"
        self.root.register_buffer(buffer_name, torch.from_numpy(array.copy()))
        return self.graph.get_attr(buffer_name)

    def array(self, node: NodeProto, position: int) -> np.ndarray:
        """Return an input of a node that must be constant."""
        name = node.input[position]
        if name not in self.arrays:
            raise ValueError(f"input {position} of {node.op_type} is computed: expected a constant")
        return self.arrays[name]

    def parameter(self, node: NodeProto, position: int) -> nn.Parameter:
        """Return an input of a node as a trainable parameter."""
        return nn.Parameter(torch.from_numpy(self.array(node, position).copy()))

    def layer(self, module: nn.Module, x: Any) -> fx.Node:
        """Add a module with weights and return its output."""
        name = f"{type(module).__name__.lower()}{len(self.root._modules)}"
        self.root.add_module(name, module)
        return self.graph.call_module(name, (x,))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Add the call of a function and return its output."""
        return self.graph.call_function(function, args, kwargs)


Attributes = dict[str, Any]  # attributes of a node by name
Translate = Callable[[_Translator, NodeProto, Attributes], fx.Node]  # adds a node to the torch graph


def _constant(node: NodeProto) -> np.ndarray:
    """Return the value of a Constant node."""
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    return np.array(value, dtype=np.float32 if "float" in attribute.name else np.int64)


def _split_padding(attributes: Attributes) -> tuple[tuple[int, int], list[int]]:
    """Return the symmetric padding of a layer, and asymmetric padding for `F.pad` before it if needed."""
    if attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise ValueError(f"auto_pad {attributes['auto_pad'].decode()} is not supported: expected pads")
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    if (top, left) == (bottom, right):
        return (top, left), []
    return (0, 0), [left, right, top, bottom]


def _conv(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate a 2-d convolution to `nn.Conv2d`, after `F.pad` if the padding is asymmetric."""
    weight = t.parameter(node, 1)
    if weight.ndim != 4:
        raise ValueError(f"a Conv has a weight of shape {list(weight.shape)}: expected a 2-d convolution")
    pads, extra_padding = _split_padding(attributes)
    groups = attributes.get("group", 1)
    layer = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        tuple(attributes.get("strides", (1, 1))),
        pads,
        tuple(attributes.get("dilations", (1, 1))),
        groups,
        bias=len(node.input) > 2,
    )
    layer.weight = weight
    if len(node.input) > 2:
        layer.bias = t.parameter(node, 2)
    x = t.operand(node)
    return t.layer(layer, t.call(F.pad, x, extra_padding) if extra_padding else x)


def _batch_norm(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate batch normalization to `nn.BatchNorm2d`."""
    scale = t.parameter(node, 1)
    layer = nn.BatchNorm2d(len(scale), attributes.get("epsilon", 1e-5), 1 - attributes.get("momentum", 0.9))
    layer.weight, layer.bias = scale, t.parameter(node, 2)
    layer.running_mean = t.parameter(node, 3).data
    layer.running_var = t.parameter(node, 4).data
    return t.layer(layer, t.operand(node))


def _gemm(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate a matrix product with a weight to `nn.Linear`."""
    if (
        attributes.get("transA", 0)
        or attributes.get("alpha", 1.0) != 1.0
        or attributes.get("beta", 1.0) != 1.0
    ):
        raise ValueError("a Gemm has transA, alpha or beta: expected a linear layer without them")
    weight = t.parameter(node, 1)
    weight = weight if attributes.get("transB", 0) else nn.Parameter(weight.data.T.contiguous())
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=len(node.input) > 2)
    layer.weight = weight
    if len(node.input) > 2:
        layer.bias = t.parameter(node, 2)
    return t.layer(layer, t.operand(node))


def _pool(t: _Translator, node: NodeProto, attributes: Attributes, function: Callable[..., Any]) -> fx.Node:
    """Translate a pool to `function`, such as `F.max_pool2d`."""
    pads, extra_padding = _split_padding(attributes)
    if extra_padding:
        raise ValueError(
            f"pads {list(attributes['pads'])} of {node.op_type} are asymmetric: expected equal ones"
        )
    options = {
        "kernel_size": tuple(attributes["kernel_shape"]),
        "stride": tuple(attributes.get("strides", (1, 1))),
        "padding": pads,
        "ceil_mode": bool(attributes.get("ceil_mode", 0)),
    }
    dilations = tuple(attributes.get("dilations", (1, 1)))
    if function is F.max_pool2d:
        options["dilation"] = dilations
    elif dilations != (1, 1):
        raise ValueError(f"dilations {list(dilations)} of {node.op_type} are not supported: expected none")
    return t.call(function, t.operand(node), **options)


def _average_pool(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate an average pool, which by default does not count padding."""
    pool = _pool(t, node, attributes, F.avg_pool2d)
    pool.kwargs = {**pool.kwargs, "count_include_pad": bool(attributes.get("count_include_pad", 0))}
    return pool


def _clip(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate Clip with constant bounds to `torch.clamp`."""
    low, high = (float(t.array(node, i)) if len(node.input) > i and node.input[i] else None for i in (1, 2))
    return t.call(torch.clamp, t.operand(node), low, high)


def _slice(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate Slice with constant bounds to an index."""
    starts, ends, axes = (t.array(node, i).tolist() for i in (1, 2, 3))
    steps = t.array(node, 4).tolist() if len(node.input) > 4 else [1] * len(starts)
    if min(steps) < 1 or min(axes) < 0:
        raise ValueError(f"a Slice has axes {axes} and steps {steps}: expected axes from 0 and steps from 1")
    index = [slice(None)] * (max(axes) + 1)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, None if end >= SLICE_END else end, step)
    return t.call(_index, t.operand(node), tuple(index))


def _index(x: torch.Tensor, index: tuple[slice, ...]) -> torch.Tensor:
    """Return the elements of a tensor at an index."""
    return x[index]


def _reshape(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate Reshape to a constant shape."""
    shape = t.array(node, 1).tolist()
    return t.call(_reshaped, t.operand(node), tuple(shape))


def _reshaped(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Reshape a tensor, where size 0 keeps the size of the same axis."""
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def _hard_sigmoid(t: _Translator, node: NodeProto, attributes: Attributes) -> fx.Node:
    """Translate HardSigmoid, to `F.hardsigmoid` if the slope is 1/6."""
    alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return t.call(F.hardsigmoid, t.operand(node))
    return t.call(_clamped_line, t.operand(node), alpha, beta)


def _clamped_line(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    """Return `alpha * x + beta`, clamped to the range from 0 to 1."""
    return (alpha * x + beta).clamp(0, 1)


def _elementwise(function: Callable[..., Any]) -> Translate:
    """Return the translation of an operator without attributes to a function of all its inputs."""
    return lambda t, node, attributes: t.call(function, *(t.operand(node, i) for i in range(len(node.input))))


OPERATORS: dict[str, Translate] = {
    "Add": _elementwise(operator.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda t, node, attributes: t.call(
        torch.cat, [t.operand(node, i) for i in range(len(node.input))], attributes["axis"]
    ),
    "Conv": _conv,
    "Flatten": lambda t, node, attributes: t.call(torch.flatten, t.operand(node), attributes.get("axis", 1)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda t, node, attributes: t.call(F.adaptive_avg_pool2d, t.operand(node), 1),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _elementwise(F.hardswish),
    "Identity": lambda t, node, attributes: t.operand(node),
    "MaxPool": lambda t, node, attributes: _pool(t, node, attributes, F.max_pool2d),
    "Mul": _elementwise(operator.mul),
    "Relu": _elementwise(F.relu),
    "Reshape": _reshape,
    "Sigmoid": _elementwise(torch.sigmoid),
    "Slice": _slice,
    "Sub": _elementwise(operator.sub),
    "Transpose": lambda t, node, attributes: t.call(torch.permute, t.operand(node), attributes["perm"]),
}
