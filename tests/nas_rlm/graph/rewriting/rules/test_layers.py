"""Layers whose variants differ in the shape of an input or an output."""

import numpy as np
import onnx
import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, vectors


def test_a_bias_that_broadcasts_the_product_is_no_gemm():
    weights = {"w": (8, 1), "b": (5,)}
    text = from_onnx(small_model("m = MatMul(x, w) y = Add(m, b)", "float[4,8] x", weights))
    assert "=>(float[4,5] x1)" in text and "MatMul" in text and "Gemm" not in text


@pytest.mark.parametrize("leading", [(6, 1), (1, 6), (2, 3)])
@pytest.mark.parametrize("bias", [(5,), (1, 5), (1, 1), (6, 5), (6, 1)])
def test_the_shape_of_a_product_of_merged_rows_stays(leading, bias):
    weights = vectors(s=[6, 4]) | {"w": (4, 5), "b": bias}
    text = from_onnx(
        small_model("r = Reshape(x, s) y = Gemm(r, w, b)", f"float[{leading[0]},{leading[1]},4] x", weights)
    )
    assert "=>(float[6,5] x" in text and ("Gemm" in text) == (bias[0] == 6)


@pytest.mark.parametrize("scale", [1.0, 1.05, 1.1])
def test_a_resize_that_keeps_the_shape_is_only_dropped_for_scales_of_one(scale):
    scales = {"s": np.array([1, 1, scale, scale], np.float32)}
    text = from_onnx(small_model('y = Resize<mode="linear">(x, , s)', "float[1,2,6,6] x", scales))
    assert ("Resize" in text) == (scale != 1) and "=>(float[1,2,6,6] x1)" in text


@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_the_shape_of_a_pool_with_auto_pad_stays(mode, ceil, kernel):
    attributes = f'kernel_shape=[{kernel},{kernel}], strides=[4,4], auto_pad="{mode}", ceil_mode={ceil}'
    text = from_onnx(small_model(f"y = MaxPool<{attributes}>(x)", "float[1,2,6,6] x"))
    assert "=>(float[1,2,2,2] x1)" in text and text == from_onnx(onnx.parser.parse_model(text))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_the_value_of_a_pad_counts_for_the_mode_constant_only(mode):
    weights = vectors(p=[0, 0, 1, 1]) | {"v": np.array(3, np.float32)}
    plain, padded = (
        from_onnx(small_model(f'y = Pad<mode="{mode}">({args})', "float[4,4] x", weights))
        for args in ("x, p", "x, p, v")
    )
    assert plain == padded
