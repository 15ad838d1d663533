"""Shapes of sequences, strings and the operators of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, shape_of
from nas_rlm.graph.onnx_graphs.tensors import (
    BOOL,
    FLOAT,
    INT64,
    NOT_A_TENSOR,
    STRING,
    Tensor,
    broadcast,
    product,
)


@shape_of("SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceEmpty", "SplitToSequence")
@shape_of("Optional", "ai.onnx.ml.ZipMap")
def _no_tensor(call: OperatorCall) -> list[Tensor]:
    first = call.optional(0)
    dtype = first.dtype if first is not None and first.dtype > 0 else call.attribute("dtype", FLOAT)
    if first is not None and first.dtype == NOT_A_TENSOR and call.kind.startswith("Sequence"):
        return [Tensor(NOT_A_TENSOR, None, elements=first.elements)]
    if call.kind.endswith("ZipMap"):
        labels = call.attribute("classlabels_int64s")
        values = helper.make_tensor_type_proto(FLOAT, [])
        keys = helper.make_map_type_proto(INT64 if labels else STRING, values)
        return [Tensor(NOT_A_TENSOR, None, elements=helper.make_sequence_type_proto(keys))]
    element = helper.make_tensor_type_proto(dtype, None)
    make = helper.make_optional_type_proto if call.kind == "Optional" else helper.make_sequence_type_proto
    return [Tensor(NOT_A_TENSOR, None, elements=make(element))]


@shape_of("SequenceAt", "ConcatFromSequence", "OptionalGetElement")
def _element(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.elements is None:
        return [x if call.kind == "OptionalGetElement" else Tensor(x.dtype, None)]
    is_optional = x.elements.HasField("optional_type")
    inner = x.elements.optional_type.elem_type if is_optional else x.elements.sequence_type.elem_type
    if inner.HasField("tensor_type"):
        return [Tensor(inner.tensor_type.elem_type, None)]
    return [Tensor(NOT_A_TENSOR, None, elements=inner)]


@shape_of("SequenceLength")
def _sequence_length(call: OperatorCall) -> list[Tensor]:
    return [Tensor(INT64, ())]


@shape_of("OptionalHasElement")
def _has_element(call: OperatorCall) -> list[Tensor]:
    return [Tensor(BOOL, ())]


@shape_of("StringConcat", "StringNormalizer", "com.microsoft.StringNormalizer")
def _strings(call: OperatorCall) -> list[Tensor]:
    shape = broadcast([call.shape(0), call.shape(1)]) if call.has(1) else None
    return [Tensor(STRING, shape)]


@shape_of("StringSplit")
def _string_split(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    return [Tensor(STRING, None if shape is None else (*shape, None)), Tensor(INT64, shape)]


@shape_of("RegexFullMatch")
def _regex(call: OperatorCall) -> list[Tensor]:
    return [Tensor(BOOL, call.shape(0))]


@shape_of("TfIdfVectorizer")
def _tf_idf(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    width = max(call.attribute("ngram_indexes", (0,)), default=0) + 1
    return [Tensor(FLOAT, None if shape is None else (*shape[:-1], width))]


@shape_of("ImageDecoder")
def _image_decoder(call: OperatorCall) -> list[Tensor]:
    channels = 1 if call.attribute("pixel_format", b"RGB") == b"Grayscale" else 3
    return [Tensor(TensorProto.UINT8, (None, None, channels))]


@shape_of("ai.onnx.ml.TreeEnsembleClassifier", "ai.onnx.ml.SVMClassifier", "ai.onnx.ml.LinearClassifier")
def _classifier(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    rows = shape[0] if shape and len(shape) > 1 else 1 if shape else None
    names = [
        k for k in call.attributes if k.startswith("classlabels_") and isinstance(call.attributes[k], tuple)
    ]
    labels = call.attributes[names[0]] if names else ()
    sizes = [v for k, v in call.attributes.items() if k.startswith("classlabels_") and k.endswith("_size")]
    has_strings = any("string" in k for k in call.attributes if k.startswith("classlabels_"))
    count = sizes[0] if sizes else len(labels) or None
    return [Tensor(STRING if has_strings else INT64, (rows,)), Tensor(FLOAT, (rows, count))]


@shape_of("ai.onnx.ml.TreeEnsembleRegressor", "ai.onnx.ml.SVMRegressor", "ai.onnx.ml.LinearRegressor")
@shape_of("ai.onnx.ml.TreeEnsemble")
def _regressor(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    rows = shape[0] if shape and len(shape) > 1 else 1 if shape else None
    dtype = call.input(0).dtype if call.kind.endswith("TreeEnsemble") else FLOAT
    return [Tensor(dtype, (rows, call.attribute("n_targets", call.attribute("targets", 1))))]


@shape_of("ai.onnx.ml.Scaler", "ai.onnx.ml.Normalizer", "ai.onnx.ml.Imputer")
def _scaler(call: OperatorCall) -> list[Tensor]:
    dtype = call.input(0).dtype if call.kind.endswith("Imputer") else FLOAT
    return [Tensor(dtype, call.shape(0))]


@shape_of("ai.onnx.ml.LabelEncoder", "ai.onnx.ml.CategoryMapper")
def _label_encoder(call: OperatorCall) -> list[Tensor]:
    kinds = {"strings": STRING, "int64s": INT64, "floats": FLOAT}
    dtype = next((t for name, t in kinds.items() if call.attribute(f"values_{name}")), None)
    if dtype is None:
        table = call.attribute("values_tensor")
        dtype = STRING if call.input(0).dtype == INT64 else INT64
        if isinstance(table, np.ndarray):
            dtype = helper.np_dtype_to_tensor_dtype(table.dtype)
    return [Tensor(dtype, call.shape(0))]


@shape_of("ai.onnx.ml.ArrayFeatureExtractor")
def _feature_extractor(call: OperatorCall) -> list[Tensor]:
    x, indices = call.input(0), call.shape(1)
    count = product(indices) if indices is not None else None
    return [Tensor(x.dtype, None if x.shape is None else (*(x.shape[:-1] or (1,)), count))]


@shape_of("ai.onnx.ml.FeatureVectorizer")
def _feature_vectorizer(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    widths = call.attribute("inputdimensions")
    return [Tensor(FLOAT, (shape[0] if shape else None, sum(widths) if widths else None))]


@shape_of("ai.onnx.ml.OneHotEncoder")
def _one_hot_encoder(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    count = len(call.attribute("cats_int64s", ()) or call.attribute("cats_strings", ()))
    return [Tensor(FLOAT, None if shape is None else (*shape, count))]


@shape_of("com.microsoft.CropAndResize")
def _crop_and_resize(call: OperatorCall) -> list[Tensor]:
    x, rois, sides = call.shape(0, rank=4), call.shape(1), call.input(3).integers
    return [
        Tensor(
            call.input(0).dtype, (rois[0] if rois else None, x[1] if x else None, *(sides or (None, None)))
        )
    ]
