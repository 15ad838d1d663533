import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from nas_rlm.graph.onnx_graphs.evaluation import evaluate
from nas_rlm.graph.onnx_graphs.tensors import constant
from nas_rlm.graph.rewriting.normalization import normalize_model
from tests.nas_rlm.graph.onnx_cases import onnx_cases


def all_constant(case):
    """The model of a case with all inputs as initialisers; None if an input or output is no array."""
    inputs, outputs = case.data_sets[0]
    if not all(isinstance(a, np.ndarray | np.generic) and a.dtype != object for a in (*inputs, *outputs)):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.input[:]
    for value, array in zip(case.model.graph.input, inputs, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
    return model


def test_folded_values_are_those_of_onnx():
    wrong, num_folded = [], 0
    for name, case in onnx_cases().items():
        model = all_constant(case)
        if model is None:
            continue
        normal = normalize_model(model)
        for value, expected in zip(normal.graph.outputs, case.data_sets[0][1], strict=True):
            found = normal.tensors[value].array if normal.tensors[value].is_static else None
            if found is None:
                continue
            num_folded += 1
            if found.dtype != expected.dtype or found.shape != expected.shape:
                wrong.append((name, found.dtype, found.shape))
            elif expected.dtype.kind in "fiub" and not np.allclose(
                found.astype(np.float64), expected.astype(np.float64), 1e-3, 1e-5, equal_nan=True
            ):
                wrong.append((name, found, expected))
    assert wrong == []
    assert num_folded > 600


@pytest.mark.parametrize(
    ("kind", "attributes", "inputs", "expected"),
    [
        ("Div", {}, [[-7, 7, 8], [2, 2, 3]], [-3, 3, 2]),
        ("Mod", {}, [[-7, 7, 8], [3, -3, 3]], [2, -2, 2]),
        ("Slice", {}, [[0, 1, 2, 3, 4], [-1], [-(2**31)], [0], [-2]], [4, 2, 0]),
        ("Slice", {}, [[0, 1, 2, 3, 4], [1], [2**62]], [1, 2, 3, 4]),
        ("Gather", {}, [[5, 6, 7], [-1, 0]], [7, 5]),
        ("Range", {}, [3, 10, 3], [3, 6, 9]),
        ("Range", {}, [3, -1, -2], [3, 1]),
        ("ConstantOfShape", {"value": np.array([7])}, [[3]], [7, 7, 7]),
        ("ReduceProd", {"keepdims": 0}, [[2, 3, 4]], 24),
        ("Concat", {"axis": -1}, [[1], [2, 3]], [1, 2, 3]),
        ("Where", {}, [[True, False], [1, 2], [3, 4]], [1, 4]),
        ("Clip", {}, [[1, 5, 9], 2], [2, 5, 9]),
        ("Pow", {}, [[2, 3], [3, 2]], [8, 9]),
        ("Flatten", {"axis": 0}, [[1, 2, 3]], [[1, 2, 3]]),
        ("Expand", {}, [[1, 2], [2, 1]], [[1, 2], [1, 2]]),
    ],
)
def test_values_of_integer_operators(kind, attributes, inputs, expected):
    tensors = [constant(np.array(values)) for values in inputs]
    (found,) = evaluate(kind, attributes, tensors, 1)
    assert found.tolist() == expected


def test_uneven_parts_of_a_split():
    parts = evaluate("Split", {"num_outputs": 3}, [constant(np.arange(8))], 3)
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    parts = evaluate("Split", {}, [constant(np.arange(8)), constant(np.array([1, 5, 2]))], 3)
    assert [p.tolist() for p in parts] == [[0], [1, 2, 3, 4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("Div", [[1], [0]]),
        ("Gather", [[1, 2], [5]]),
        ("Reshape", [[1, 2, 3], [2, 2]]),
        ("Concat", [[1], [2]]),
        ("NoSuchOperator", [[1]]),
    ],
)
def test_what_cannot_be_computed_has_no_value(kind, inputs):
    assert evaluate(kind, {}, [constant(np.array(v)) for v in inputs], 1) is None
