"""Foreign models, brought to the form that the builders of `search_spaces` write.

Exporters differ in operator sets, in how they spell the same computation, and in what they leave behind.
Here a model loses its weights' values, is converted to one operator set, has its constants folded, and a few
spellings are replaced by one: a mean over all positions is a GlobalAveragePool, Dropout is nothing.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, version_converter

from nas_rlm.graph.folding import KnownGraph, bare_weight
from nas_rlm.graph.operator_checks import check_fit
from nas_rlm.graph.reader import FOLDED, OPSET
from nas_rlm.graph.rewrite_rules import RULES


def normalised(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that computes the same, in ONNX's operator set 21, its large weights without values.

    Args:
        model: flat, without local functions; it is left as it is.

    Raises:
        ValueError: it cannot be converted to that operator set, or shapes in it contradict each other.
    """
    bare = _without_values(model)
    version = next((o.version for o in bare.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version != OPSET:
        try:
            bare = version_converter.convert_version(bare, OPSET)
        except (RuntimeError, version_converter.ConvertError) as error:
            raise ValueError(f"operator set {version} cannot be converted to {OPSET}: {error}") from None
    check_fit(bare)
    changed, given = True, {t.name for t in model.graph.initializer}
    while changed:  # each round knows more shapes than the one before
        graph = KnownGraph(bare, given)
        changed = graph.simplify(RULES)
        while graph.simplify(RULES):
            pass
        bare = graph.model()
    return bare


def check(model: onnx.ModelProto) -> None:
    """Refuse a model that breaks ONNX's rules; values that lie in other files are not asked for.

    Raises:
        onnx.checker.ValidationError: it breaks one.
    """
    elsewhere = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if elsewhere:
        here = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(here)
        known = {i.name for i in copy.graph.input}
        copy.graph.input.extend(
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            for t in elsewhere
            if t.name not in known
        )
        model = copy
    onnx.checker.check_model(model)


def _without_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initialisers have a shape alone."""
    graph = onnx.GraphProto(name=model.graph.name)
    for name in ("node", "output", "value_info"):
        getattr(graph, name).extend(getattr(model.graph, name))
    held = {t.name for t in model.graph.initializer}
    graph.input.extend(i for i in model.graph.input if i.name not in held)
    _read_as_one(graph)
    for t in model.graph.initializer:
        is_large = int(np.prod(t.dims)) > FOLDED or t.data_location == TensorProto.EXTERNAL
        graph.initializer.append(bare_weight(t.name, t.data_type, t.dims) if is_large else t)
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    copy.opset_import.extend(model.opset_import)
    copy.graph.CopyFrom(graph)
    return copy


def _read_as_one(graph: onnx.GraphProto) -> None:
    """A batch of any size is read as one of a single example: the first dimension, where it is open."""
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
