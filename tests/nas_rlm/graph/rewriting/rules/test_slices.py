"""Slices of the same elements have one text."""

import numpy as np
import onnx
import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, vectors

# Bounds of slices of x[2,8] along the last axis: start, end and step; each row selects the same elements.
SLICES = [
    [(7, 8, 1), (-1, 8, 1), (-1, 2**31 - 1, 1), (7, 2**63 - 1, 1), (7, 100, 3), (7, 6, -1), (-1, -2, -1)],
    [(0, 3, 1), (-8, 3, 1), (-100, -5, 1), (-(2**63), 3, 1)],
    [(0, 8, 2), (0, 7, 2), (-8, -1, 2), (-20, 20, 2)],
    [(1, 6, 2), (1, -2, 2), (-7, 7, 2)],
    [(-1, -9, -1), (7, -(2**63), -1), (100, -(2**31), -1)],
    [(5, 2, -1), (-3, -6, -1)],
    [(5, 1, -2), (5, 2, -2), (-3, -6, -2)],
    [(3, 2, 1), (8, 100, 1), (0, 0, 1), (5, -5, 2), (2, 5, -1)],
    [(0, 8, 1), (-8, 8, 1), (0, 2**63 - 1, 1), (-100, 100, 1)],
]


def slice_text(bounds, axis=1, inputs="float[2,8] x", statement="y = Slice(x, s, e, a, k)"):
    start, end, step = bounds
    weights = vectors(s=[start], e=[end], a=[axis], k=[step])
    used = {n: v for n, v in weights.items() if f", {n}" in statement}
    return from_onnx(small_model(statement, inputs, used))


def test_slices_of_the_same_elements_have_one_text():
    texts = [{slice_text(bounds, axis) for bounds in row for axis in (1, -1)} for row in SLICES]
    assert [len(row) for row in texts] == [1] * len(SLICES)
    assert len(set.union(*texts)) == len(SLICES)
    for (text,) in texts:
        assert from_onnx(onnx.parser.parse_model(text)) == text


def test_optional_inputs_of_a_slice_that_change_nothing_are_left_out():
    statements = ("y = Slice(x, s, e, a, k)", "y = Slice(x, s, e, a)", "y = Slice(x, s, e)")
    assert len({slice_text((1, 4, 1), 0, "float[8,2] x", text) for text in statements}) == 1


def test_the_order_and_type_of_the_axes_of_a_slice_do_not_matter():
    x, body = "float[4,8] x", "y = Slice(x, s, e, a)"
    first = from_onnx(small_model(body, x, vectors(s=[1, 2], e=[3, 5], a=[0, 1])))
    turned = vectors(s=[2, 1], e=[5, 3], a=[1, 0])
    small = {name: value.astype(np.int32) for name, value in turned.items()}
    assert first == from_onnx(small_model(body, x, turned)) == from_onnx(small_model(body, x, small))


@pytest.mark.parametrize("bounds", [(-3, 2**31 - 1, 1), (2, -1, 1), (-1, -5, -1), (0, 4, 2)])
def test_bounds_of_a_slice_of_unknown_size_stay(bounds):
    other = (bounds[0] + 1, *bounds[1:])
    assert slice_text(bounds, 1, "float[2,n] x") != slice_text(other, 1, "float[2,n] x")
