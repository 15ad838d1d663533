"""Axes have one form."""

import numpy as np
import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, vectors

X = "float[2,3,4,6] x"


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_a_mean_of_integers_is_no_global_pool(kind):
    weights = vectors(a=[2, 3])
    text = from_onnx(small_model("y = ReduceMean(x, a)", f"{kind}[1,2,4,4] x", weights, f"{kind} y"))
    assert "ReduceMean" in text


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("y = ArgMax<axis={a}>(x)", {}),
        ("y = Softmax<axis={a}>(x)", {}),
        ("y = LpNormalization<axis={a}>(x)", {}),
        ("y = GatherElements<axis={a}>(x, i)", vectors(i=np.zeros((2, 3, 4, 6)))),
        ("y = ScatterElements<axis={a}>(x, i, x)", vectors(i=np.zeros((2, 3, 4, 6)))),
        ("y = Compress<axis={a}>(x, c)", {"c": np.array([True, False])}),
        ("y = Unique<axis={a}>(x)", {}),
        ("s = SplitToSequence<axis={a}>(x) y = SequenceAt(s, z)", {"z": np.array(0)}),
        ("q = QuantizeLinear<axis={a}>(x, s, z) y = DequantizeLinear<axis={a}>(q, s, z)", {}),
        ("y = MeanVarianceNormalization<axes=[{a}]>(x)", {}),
        ("y = CenterCropPad<axes=[{a}]>(x, t)", vectors(t=[2])),
        ("y = CumSum(x, a)", {}),
        ("y = ReduceL2(x, v)", {}),
        ("y = ReduceLogSumExp<keepdims=0>(x, v)", {}),
        ("y = ReduceSumSquare(x, v)", {}),
    ],
)
def test_axes_are_counted_from_one_end(body, weights):
    def text(axis):
        size = (2, 3, 4, 6)[axis]
        own = {"a": np.array(axis), "v": np.array([axis])} if "a)" in body or "v)" in body else {}
        scales = {"s": (size,), "z": np.zeros(size, np.int8)} if "Quantize" in body else {}
        own = {n: v for n, v in own.items() if f", {n})" in body}
        return from_onnx(small_model(body.format(a=axis), X, weights | own | scales))

    texts = [{text(axis), text(axis - 4)} for axis in range(4)]
    assert [len(same) for same in texts] == [1] * 4
    assert len(set.union(*texts)) == 4


def test_the_new_axis_of_one_hot_vectors_counts():
    weights = {"d": np.array(5), "v": np.array([0, 1], np.float32)}
    same, other = (
        {from_onnx(small_model(f"y = OneHot<axis={a}>(x, d, v)", "int64[2,3] x", weights)) for a in axes}
        for axes in ((-1, 2), (-3, 0))
    )
    assert len(same) == len(other) == 1 and same != other
