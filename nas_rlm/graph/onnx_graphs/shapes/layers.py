"""Shapes of recurrent layers, embeddings and losses."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import Dims, Tensor

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "com.microsoft.DynamicQuantizeLSTM": 4}


@shape_of("LSTM", "GRU", "RNN", "com.microsoft.DynamicQuantizeLSTM")
def _recurrent(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0, rank=3), call.input(0).dtype
    directions = 2 if call.attribute("direction", b"forward") == b"bidirectional" else 1
    r = call.shape(2)
    hidden = call.attribute("hidden_size") or (r[-1] if r else None)
    steps, batch = (x[0], x[1]) if x else (None, None)
    w = call.shape(1)
    gates = GATES[call.kind]
    if call.kind in ("LSTM", "GRU", "RNN") and w is not None and type(hidden) is int and x is not None:
        if len(w) != 3 or w[1] not in (gates * hidden, None) or w[0] not in (directions, None):
            raise ValueError(f"a weight of shape {list(w)}: expected [{directions},{gates * hidden},inputs]")
        if type(w[2]) is int and type(x[2]) is int and w[2] != x[2]:
            raise ValueError(f"inputs of size {x[2]} with a weight of shape {list(w)}")
    if call.attribute("layout", 0):
        steps, batch = batch, steps
        state: Dims = (batch, directions, hidden)
        sequence: Dims = (batch, steps, directions, hidden)
    else:
        state, sequence = (directions, batch, hidden), (steps, directions, batch, hidden)
    return [Tensor(dtype, sequence), Tensor(dtype, state), Tensor(dtype, state)][: call.num_outputs]


@shape_of("com.microsoft.EmbedLayerNormalization")
def _embed_layer_norm(call: OperatorCall) -> list[Tensor]:
    ids, table = call.shape(0, rank=2), call.shape(2, rank=2)
    width = table[1] if table else None
    dtype = call.input(2).dtype
    batch = ids[0] if ids else None
    outputs = [Tensor(dtype, (*(ids or (None, None)), width)), Tensor(TensorProto.INT32, (batch,))]
    return [*outputs, Tensor(dtype, (*(ids or (None, None)), width))][: call.num_outputs]


@shape_of("com.microsoft.GatherBlockQuantized")
def _gather_quantized(call: OperatorCall) -> list[Tensor]:
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None:
        return [Tensor(call.input(2).dtype, None)]
    axis = checked_axis(call.attribute("gather_axis", 0), len(data))
    return [Tensor(call.input(2).dtype, (*data[:axis], *indices, *data[axis + 1 :]))]


@shape_of("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(call: OperatorCall) -> list[Tensor]:
    x, labels, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    reduced = call.attribute("reduction", b"mean") != b"none"
    return [Tensor(dtype, () if reduced else labels), Tensor(dtype, x)][: call.num_outputs]
