"""Normalization of ONNX models to the form that the builders of `search_spaces` write.

Exporters differ in their operator sets and write the same computation in different ways. Normalization drops
the values of weights, converts the model to one operator set, folds constants, and applies rewrite rules: a
mean over all image positions becomes GlobalAveragePool, Dropout is removed.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, version_converter

from nas_rlm.graph.folding import RewriteGraph, weight_without_values
from nas_rlm.graph.operator_checks import check_operator_shapes
from nas_rlm.graph.reader import MAX_FOLDED_ELEMENTS, OPSET
from nas_rlm.graph.rewrite_rules import RULES


def normalize_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an equivalent model in ONNX's operator set 21, with large weights that have no values.

    Args:
        model: model without local functions; it is not changed.

    Raises:
        ValueError: the model cannot be converted to that operator set, or its shapes contradict each other.
    """
    bare = _drop_weight_values(model)
    version = next((o.version for o in bare.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version != OPSET:
        try:
            bare = version_converter.convert_version(bare, OPSET)
        except (RuntimeError, version_converter.ConvertError) as error:
            raise ValueError(f"operator set {version} cannot be converted to {OPSET}: {error}") from None
    check_operator_shapes(bare)
    changed, initializer_names = True, {t.name for t in model.graph.initializer}
    while changed:  # shape inference on the rewritten model may enable more rules
        graph = RewriteGraph(bare, initializer_names)
        changed = graph.simplify(RULES)
        while graph.simplify(RULES):
            pass
        bare = graph.to_model()
    return bare


def check_model(model: onnx.ModelProto) -> None:
    """Check a model with ONNX's checker, without reading the values of weights in other files.

    Raises:
        onnx.checker.ValidationError: the model is not valid.
    """
    external = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if external:
        internal = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(internal)
        input_names = {i.name for i in copy.graph.input}
        copy.graph.input.extend(
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            for t in external
            if t.name not in input_names
        )
        model = copy
    onnx.checker.check_model(model)


def _drop_weight_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which large initialisers have a shape but no values."""
    graph = onnx.GraphProto(name=model.graph.name)
    for name in ("node", "output", "value_info"):
        getattr(graph, name).extend(getattr(model.graph, name))
    initializer_names = {t.name for t in model.graph.initializer}
    graph.input.extend(i for i in model.graph.input if i.name not in initializer_names)
    _set_open_batch_to_one(graph)
    for t in model.graph.initializer:
        is_large = int(np.prod(t.dims)) > MAX_FOLDED_ELEMENTS or t.data_location == TensorProto.EXTERNAL
        graph.initializer.append(weight_without_values(t.name, t.data_type, t.dims) if is_large else t)
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    copy.opset_import.extend(model.opset_import)
    copy.graph.CopyFrom(graph)
    return copy


def _set_open_batch_to_one(graph: onnx.GraphProto) -> None:
    """Set the batch dimension of each input, the first one, to 1 if its size is open."""
    open_first = set()
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            open_first.add(dims[0].dim_param)
            dims[0].dim_value = 1
    if not open_first:
        return
    del graph.value_info[:]  # shapes are inferred anew
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in open_first:
                dim.dim_value = 1
