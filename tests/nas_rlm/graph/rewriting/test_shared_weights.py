"""Parameters of networks whose weights are shared, or computed from others; counted by hand."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nas_rlm.data.synthetic import graph_features
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import costs, float16, small_model

TABLE = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)


def params(*args, **options):
    return costs(small_model(*args, **options))[1]


def test_a_weight_that_two_operators_read_counts_once():
    body = "e = Gather(w, x) t = Transpose(w) y = MatMul(e, t)"
    assert params(body, "int64[1,7] x", {"w": (100, 16)}) == 1600
    body = "a = MatMul(x, w) b = Relu(a) y = MatMul(b, w)"
    assert params(body, "float[2,8] x", {"w": (8, 8)}) == 64


def test_both_layouts_of_a_shared_weight_have_one_text():
    shared = "e = Gather(w, x) t = Transpose(w) y = MatMul(e, t)"
    one = from_onnx(small_model(shared, "int64[1,7] x", {"w": TABLE}))
    two = from_onnx(
        small_model("e = Gather(w, x) y = MatMul(e, v)", "int64[1,7] x", {"w": TABLE, "v": TABLE.T.copy()})
    )
    assert one == two
    assert graph_features(one)["params"] == 6400


@pytest.mark.parametrize("zeros", [True, False])
def test_copies_count_once_unless_they_are_equal_by_chance(zeros):
    table = np.zeros_like(TABLE) if zeros else TABLE
    weights = {"w": table, "v": table.T.copy()}
    found = params("e = Gather(w, x) y = MatMul(e, v)", "int64[1,7] x", weights)
    assert found == (12800 if zeros else 6400)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_elements_that_two_layers_read_count_for_each(value):
    """Exporters store one vector for all biases of an untrained network."""
    weights = {"w": (8, 8, 1, 1), "v": (8, 8, 1, 1), "b": np.full(8, value, np.float32)}
    body = "a = Conv(x, w, b) y = Conv(a, v, b)"
    assert params(body, "float[1,8,4,4] x", weights) == 2 * 64 + 2 * 8


def test_unequal_weights_are_not_shared():
    weights = {"w": TABLE, "v": TABLE.T + np.float32(1)}
    assert params("e = Gather(w, x) y = MatMul(e, v)", "int64[1,7] x", weights) == 12800


def test_parts_of_one_table_count_as_the_table():
    weights = {"w": (16, 96), "n": np.array([32, 64])}
    body = "a, b = Split<axis=1>(w, n) p = MatMul(x, a) q = MatMul(x, b) y = Concat<axis=1>(p, q)"
    assert params(body, "float[2,16] x", weights) == 16 * 96


def test_a_slice_of_a_table_counts_as_the_whole_table():
    weights = {"w": (16, 96), "s": np.array([0]), "e": np.array([32]), "k": np.array([1])}
    assert params("a = Slice(w, s, e, k) y = MatMul(x, a)", "float[2,16] x", weights) == 16 * 96


def test_overlapping_slices_count_once():
    weights = {
        "w": (16, 96),
        "s": np.array([0]),
        "e": np.array([64]),
        "k": np.array([1]),
        "l": np.array([96]),
    }
    parts = "a = Slice(w, s, e, k) b = Slice(w, n, l, k)"
    body = f"{parts} p = MatMul(x, a) q = MatMul(x, b) y = Concat<axis=1>(p, q)"
    assert params(body, "float[2,16] x", weights | {"n": np.array([32])}) == 16 * 96


def test_standardized_weights_count_as_what_is_stored():
    weights = {"w": (8, 3, 3, 3), "g": (8, 1, 1, 1), "k": np.array([1, 2, 3])}
    body = "m = ReduceMean(w, k) c = Sub(w, m) s = Mul(c, g) y = Conv(x, s)"
    assert costs(small_model(body, "float[1,3,8,8] x", weights)) == (8 * 36 * 27, 8 * 27 + 8)


def test_an_adapter_counts_its_own_parameters():
    weights = {"w": (32, 48), "a": (32, 4), "b": (4, 48)}
    body = "d = MatMul(a, b) u = Add(w, d) y = MatMul(x, u)"
    assert costs(small_model(body, "float[2,32] x", weights)) == (2 * 32 * 48, 32 * 48 + 4 * 80)


def test_running_statistics_are_no_parameters():
    weights = {"w": (8, 3, 3, 3), "a": (8,), "b": (8,), "m": (8,), "v": (8,)}
    body = "c = Conv(x, w) y = BatchNormalization(c, a, b, m, v)"
    assert params(body, "float[1,3,8,8] x", weights) == 8 * 27 + 16


@pytest.mark.parametrize("form", ["initialiser", "Constant", "Constant without tensor", "sparse", "float16"])
def test_each_form_of_a_stored_weight_counts(form):
    array = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    body, inputs, weights = "y = MatMul(x, w)", "float[2,8] x", {"w": array}
    if form == "Constant without tensor":
        body, inputs, weights = "y = Mul(x, w)", "float[2,40] x", {}
    if form == "float16":
        inputs, weights = "float16[2,8] x", {"w": float16("w", 8, 5)}
    model = small_model(body, inputs, {} if form in ("Constant", "sparse") else weights)
    if form.startswith("Constant"):
        value = {"value": numpy_helper.from_array(array)}
        if form == "Constant without tensor":
            value = {"value_floats": array.reshape(-1).tolist()}
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], **value))
    if form == "sparse":
        values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
        indices = helper.make_tensor("i", TensorProto.INT64, [3], [0, 4, 20])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [8, 5]))
    assert costs(model)[1] == 40


def test_missing_external_data_do_not_matter(tmp_path):
    model = small_model("e = Gather(w, x) t = Transpose(w) y = MatMul(e, t)", "int64[1,7] x", {"w": TABLE})
    expected = from_onnx(model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert from_onnx(tmp_path / "m.onnx") == expected
    assert graph_features(expected)["params"] == 6400


def test_a_weight_that_a_subgraph_and_the_graph_read_counts_once():
    body = (
        "a = MatMul(x, w) s = ReduceSum<keepdims=0>(x) c = Cast<to=9>(s)"
        " y = If<then_branch = t () => (p) { p = MatMul(a, w) },"
        " else_branch = e () => (q) { r = MatMul(a, w) q = Relu(r) }>(c)"
    )
    found = costs(small_model(body, "float[2,8] x", {"w": (8, 8)}))
    assert found == (2 * 2 * 64, 64)
