"""Rewrite rules that replace the variants which exporters write for one computation by a single form.

A rule returns the operators that replace an operator, or None if it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules import arithmetic, axes, common, layers, shapes, slices

Rule = Callable[[Rewriter, Op], list[Op] | None]

_ACTIVATIONS = (
    "Elu",
    "Gelu",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Tanh",
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ACTIVATIONS, layers.activation),
    "Add": arithmetic.add,
    "ArgMax": axes.count_axis,
    "ArgMin": axes.count_axis,
    "AveragePool": layers.average_pool,
    "BatchNormalization": layers.batch_norm,
    "Cast": arithmetic.cast,
    "CastLike": arithmetic.cast_like,
    "CenterCropPad": axes.count_axes,
    "Clip": arithmetic.clip,
    "Compress": axes.count_axis,
    "Concat": axes.concat,
    "Conv": layers.conv,
    "CumProd": axes.count_axis_input,
    "CumSum": axes.count_axis_input,
    "DFT": axes.count_axis_input,
    "DequantizeLinear": axes.scalar_scale,
    "Div": arithmetic.multiply,
    "Dropout": layers.dropout,
    "Expand": shapes.expand,
    "Flatten": shapes.flatten,
    "GRU": layers.recurrent,
    "Gemm": layers.gemm,
    "Gather": axes.count_axis,
    "GatherElements": axes.count_axis,
    "Hardmax": axes.count_axis,
    "Identity": common.drop,
    "LSTM": layers.recurrent,
    "LayerNormalization": axes.count_axis,
    "LogSoftmax": axes.count_axis,
    "LpNormalization": axes.count_axis,
    "MaxPool": layers.pad_of_pool,
    "MeanVarianceNormalization": axes.count_axes,
    "Mul": arithmetic.multiply,
    "OneHot": axes.count_axis,
    "Pad": layers.pad,
    "QuantizeLinear": axes.scalar_scale,
    "RMSNormalization": axes.count_axis,
    "RNN": layers.recurrent,
    "ReduceL1": axes.reduce_axes,
    "ReduceL2": axes.reduce_axes,
    "ReduceLogSum": axes.reduce_axes,
    "ReduceLogSumExp": axes.reduce_axes,
    "ReduceMax": axes.reduce_axes,
    "ReduceMean": axes.reduce_mean,
    "ReduceMin": axes.reduce_axes,
    "ReduceProd": axes.reduce_axes,
    "ReduceSum": axes.reduce_axes,
    "ReduceSumSquare": axes.reduce_axes,
    "Reshape": shapes.reshape,
    "Resize": layers.resize,
    "ScatterElements": axes.count_axis,
    "Slice": slices.rewrite_slice,
    "Softmax": axes.count_axis,
    "Split": axes.split,
    "SplitToSequence": axes.count_axis,
    "Squeeze": shapes.squeeze,
    "Sub": arithmetic.drop_neutral,
    "TensorScatter": axes.count_axis,
    "Tile": shapes.expand,
    "TopK": axes.count_axis,
    "Transpose": shapes.transpose,
    "Unique": axes.count_axis,
    "Unsqueeze": shapes.squeeze,
    "Where": arithmetic.where,
}
