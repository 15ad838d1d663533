"""Types and sizes that are inferred for ONNX's own test models of its operators."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.onnx_cases import has_empty_input, onnx_cases

# Operators whose values decide the size of an output.
DATA_DEPENDENT = (
    *("compress", "image_decoder", "loop11", "nonmaxsuppression", "nonzero", "string_split", "strnormalizer"),
    "unique",
)


def declared_types(model):
    """The element type and shape of each output that is a tensor; None for others."""
    found = []
    for output in model.graph.output:
        tensor = output.type.tensor_type
        sizes = tuple([d.dim_value for d in tensor.shape.dim])
        found.append((tensor.elem_type, sizes) if output.type.HasField("tensor_type") else None)
    return found


def with_constant_inputs(case):
    """The model with the values of all inputs but the first float as initialisers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays, kept = case.data_sets[0][0], []
    for value, array in zip(case.model.graph.input, arrays, strict=True):
        is_tensor = isinstance(array, np.ndarray | np.generic) and array.dtype != object
        is_float = value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16)
        if not is_tensor or (is_float and array.ndim and not kept):
            kept.append(value)
        else:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def differences(name, model, allow_unknown):
    """Where inferred types and sizes are not the declared ones."""
    normal, found = normalize_model(model), []
    for value, declared in zip(normal.graph.outputs, declared_types(model), strict=True):
        tensor = normal.tensors[value]
        if declared is None:
            continue
        dtype, sizes = declared
        shape = tensor.shape
        if allow_unknown and shape is None:
            continue
        unequal = shape is None or len(shape) != len(sizes)
        unequal = unequal or any(
            a != b and not (allow_unknown and type(a) is not int) for a, b in zip(shape, sizes, strict=True)
        )
        if tensor.dtype != dtype or unequal:
            found.append((name, dtype, sizes, tensor.dtype, shape))
    return found


def test_types_and_known_sizes_are_the_declared_ones():
    assert len(onnx_cases()) > 1500
    wrong = []
    for name, case in onnx_cases().items():
        if not has_empty_input(case.model):
            wrong += differences(name, case.model, allow_unknown=True)
    assert wrong == []


def test_all_sizes_are_known_if_they_do_not_depend_on_the_first_input():
    wrong = []
    for name, case in onnx_cases().items():
        if not has_empty_input(case.model) and not name.startswith(DATA_DEPENDENT):
            wrong += differences(name, with_constant_inputs(case), allow_unknown=False)
    assert wrong == []


def test_each_model_has_a_valid_text_that_is_its_own_canonical_form():
    wrong = []
    for name, case in onnx_cases().items():
        text = from_onnx(case.model)
        parsed = onnx.parser.parse_model(text)
        onnx.checker.check_model(parsed)
        if from_onnx(parsed) != text:
            wrong.append(name)
    assert wrong == []
