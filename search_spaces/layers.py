"""Layers that several spaces share; each function adds one to a graph and returns its output."""

from __future__ import annotations

from search_spaces.graph import Constant, Graph, Value


def conv_bn(
    graph: Graph,
    x: Value,
    channels: int,
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    groups: int = 1,
    bias: bool = False,
) -> Value:
    """Write a convolution and batch norm."""
    return graph.batch_norm(graph.conv(x, channels, kernel, stride, groups, bias))


def conv_bn_relu(
    graph: Graph, x: Value, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> Value:
    """Write a convolution, batch norm and ReLU."""
    return graph.op("Relu", conv_bn(graph, x, channels, kernel, stride, groups))


def relu_conv_bn(graph: Graph, x: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
    """Write ReLU, a convolution and batch norm."""
    return conv_bn(graph, graph.op("Relu", x), channels, kernel, stride)


def conv_bn_relu6(
    graph: Graph,
    x: Value,
    channels: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
) -> Value:
    """Write a convolution, batch norm and ReLU6."""
    return relu6(graph, conv_bn(graph, x, channels, kernel, stride, groups, bias))


def relu6(graph: Graph, x: Value) -> Value:
    """Write ReLU6: clip to the range from 0 to 6."""
    return graph.op("Clip", x, Constant(0.0), Constant(6.0))


def separable(
    graph: Graph, x: Value, channels: int, kernel: int, stride: int = 1, bias: bool = False
) -> Value:
    """Write a convolution along each axis, each with batch norm and ReLU6; the first one has the stride."""
    y = conv_bn_relu6(graph, x, channels, (1, kernel), stride, bias=bias)
    return conv_bn_relu6(graph, y, channels, (kernel, 1), bias=bias)


def pool_bn(graph: Graph, x: Value, kind: str, stride: int = 1) -> Value:
    """Write a padded 3x3 pool and batch norm."""
    return graph.batch_norm(graph.pool(kind, x, 3, stride, padded=True))


def add(graph: Graph, *values: Value) -> Value:
    """Write the sum of values of one shape."""
    total = values[0]
    for v in values[1:]:
        total = graph.op("Add", total, v)
    return total


def concat(graph: Graph, *values: Value) -> Value:
    """Write the concatenation of the channels of values; a single value is returned unchanged."""
    if len(values) == 1:
        return values[0]
    return graph.op("Concat", *values, channels=sum(v.channels for v in values), axis=1)
