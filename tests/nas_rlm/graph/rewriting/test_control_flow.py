"""Branches, loops and scans: their texts and costs."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from nas_rlm.data.synthetic import graph_features
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import costs, small_model, text_of

DATA = "total = ReduceSum<keepdims=0>(x) c = Cast<to=9>(total)"  # a condition that depends on data
X = "float[2,8] x"
W = {"w": (8, 8)}


def if_else(then, other):
    """An If whose branches compute `p` and `q`."""
    return f"If<then_branch = t () => (p) {{ {then} }}, else_branch = e () => (q) {{ {other} }}>(c)"


def squeeze_on_one(shape):
    """The network that torch exports for a `squeeze` of dimension 2."""
    body = (
        "c = Conv(x, w) s = Shape(c) n = Gather(s, two) b = Equal(n, one)"
        " q = If<then_branch = t () => (a) { a = Squeeze(c, axes) },"
        " else_branch = e () => (d) { d = Identity(c) }>(b) y = Relu(q)"
    )
    constants = {"axes": np.array([2]), "two": np.array(2), "one": np.array(1)}
    return small_model(body, f"float[{shape}] x", {"w": (8, 3, 1, 1), **constants}, opset=17)


PLAIN = small_model(
    "c = Conv(x, w) q = Squeeze(c, axes) y = Relu(q)",
    "float[1,3,1,64] x",
    {"w": (8, 3, 1, 1), "axes": np.array([2])},
)


@pytest.mark.parametrize("shape", ["1,3,1,64", "N,3,1,64"])
def test_a_condition_on_known_sizes_chooses_a_branch(shape):
    assert from_onnx(squeeze_on_one(shape)) == from_onnx(PLAIN)
    other = from_onnx(squeeze_on_one("1,3,2,64"))
    assert "Squeeze" not in other and "If" not in other


def test_a_condition_on_an_open_size_is_refused():
    with pytest.raises(ValueError, match="If depends on a size that is open: give the shapes"):
        from_onnx(squeeze_on_one("N,3,H,64"))
    given = from_onnx(squeeze_on_one("N,3,H,64"), {"x": [1, 3, 1, 64]})
    assert given == from_onnx(PLAIN)


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_of_a_stored_condition_is_inlined(flag):
    body = f"y = {if_else('p = MatMul(x, w)', 'q = Relu(x)')}"
    found = text_of(body, X, W | {"c": np.array(flag)})
    assert found == text_of("y = MatMul(x, w)" if flag else "y = Relu(x)", X, W if flag else {})


def test_nested_branches_are_inlined():
    inner = if_else("p = Relu(x)", "q = Sigmoid(x)").replace("(c)", "(d)")
    body = f"y = {if_else(f'p = {inner}'.replace('p =', 'k =', 1) + ' p = Tanh(k)', 'q = Exp(x)')}"
    found = text_of(body, X, {"c": np.array(True), "d": np.array(False)})
    assert found == text_of("k = Sigmoid(x) y = Tanh(k)", X)


def test_a_constant_branch_within_a_branch_that_data_choose():
    inner = if_else("p = Relu(x)", "q = Sigmoid(x)").replace("(c)", "(d)")
    body = f"{DATA} y = {if_else('k = ' + inner + ' p = Tanh(k)', 'q = Exp(x)')}"
    found = text_of(body, X, {"d": np.array(False)})
    assert found == text_of(f"{DATA} y = {if_else('k = Sigmoid(x) p = Tanh(k)', 'q = Exp(x)')}", X)


def test_branches_that_data_choose_cost_what_each_costs_if_equal():
    body = f"{DATA} y = {if_else('p = MatMul(x, w)', 'r = MatMul(x, v) q = Relu(r)')}"
    assert costs(small_model(body, X, W | {"v": (8, 8)})) == (2 * 64, 128)


def test_branches_of_different_cost_are_not_counted():
    body = f"{DATA} y = {if_else('p = MatMul(x, w)', 'q = Relu(x)')}"
    text = text_of(body, X, W)
    with pytest.raises(ValueError, match="branches of If have 0 and 128 multiply-accumulates"):
        graph_features(text)


def loop(body, carried="v", opset=21, weights=None, inputs=X, iterations=5):
    """A Loop of a constant number of iterations over a value `v`."""
    statements = f"y = Loop<body = b (i, c, {carried}) => (d, z) {{ d = Identity(c) {body} }}>(n, t, x)"
    known = {"n": np.array(iterations), "t": np.array(True)}
    return small_model(statements, inputs, known | (weights or {}), opset=opset)


def test_a_loop_costs_its_body_for_each_iteration():
    assert costs(loop("z = MatMul(v, w)", weights=W)) == (5 * 2 * 64, 64)
    assert costs(loop("z = MatMul(v, w)", weights=W, iterations=0)) == (0, 64)


def test_a_loop_without_a_limit_is_not_counted_if_it_multiplies():
    body = (
        "y = Loop<body = b (i, c, v) => (d, z)"
        " { z = MatMul(v, w) s = ReduceSum<keepdims=0>(z) d = Cast<to=9>(s) }>(, t, x)"
    )
    text = text_of(body, X, W | {"t": np.array(True)})
    with pytest.raises(ValueError, match="data decide how often the body of Loop runs"):
        graph_features(text)
    text = text_of(body.replace("MatMul(v, w)", "Relu(v)"), X, {"t": np.array(True)})
    assert graph_features(text)["flops"] == 0


@pytest.mark.parametrize(("limit", "times"), [("n", 1), ("", 1), ("z", 0)])
def test_a_loop_whose_condition_ends_it_runs_once(limit, times):
    model = small_model(
        "n = Constant<value_int=10>() z = Constant<value_int=0>()"
        f" y = Loop<body = b (int64 i, bool c, float[2,8] s) => (bool d, float[2,8] t)"
        f" {{ d = Constant<value = bool {{0}}>() t = MatMul(s, w) }}>({limit}, , x)",
        X,
        W,
    )
    assert costs(model) == (times * 2 * 64, 64)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("fits", [True, False])
def test_nested_branches_that_cannot_run_are_left_out(depth, fits):
    body = "p = MatMul(x, w)"
    for _ in range(depth):
        body = f"p = {if_else(body, 'q = MatMul(x, w)' if fits else 'q = MatMul(w, x)')}"
    model = small_model(f"{DATA} {body} y = Relu(p)", X, W)
    assert costs(model) == (2 * 64, 64)
    assert from_onnx(model).count("If<") == (depth if fits else 0)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_branch_in_a_loop_with_a_size_that_grows(depth):
    body = "p = Concat<axis=0>(s, s)"
    for _ in range(depth):
        body = f"p = {if_else(body, 'q = Identity(s)')}"
    loop = f"b (int64 i, bool k, float[n,8] s) => (bool d, p) {{ d = Identity(k) {body} }}"
    statements = f"{DATA} m = Constant<value_int=3>() r = Loop<body = {loop}>(m, , x) y = MatMul(r, w)"
    text = text_of(statements, X, W)
    assert text.count("If<") == depth and "=>(float[N0,8] " in text


def test_nested_loops_multiply_their_iterations():
    inner = "Loop<body = b (j, e, u) => (f, k) { f = Identity(e) k = MatMul(u, w) }>(m, t, v)"
    found = costs(loop(f"z = {inner}", weights=W | {"m": np.array(3)}))
    assert found == (5 * 3 * 2 * 64, 64)


@pytest.mark.parametrize("opset", [11, 12])
def test_the_operator_set_of_a_body_does_not_matter(opset):
    """The trip count is constant, so that the loop is normalized a second time."""
    old = loop("u = Unsqueeze<axes=[0]>(v) s = Softmax(u) z = Squeeze<axes=[0]>(s)", opset=opset)
    assert "Flatten" in from_onnx(old)
    old = loop("u = Unsqueeze<axes=[0]>(v) s = Relu(u) z = Squeeze<axes=[0]>(s)", opset=opset)
    new = loop("u = Unsqueeze(v, a) s = Relu(u) z = Squeeze(s, a)", weights={"a": np.array([0])})
    assert from_onnx(old) == from_onnx(new)


def test_a_carried_value_whose_size_grows_has_an_open_size():
    model = loop("z = Concat<axis=0>(v, v)")
    text = from_onnx(model)
    assert "float[N0,8] x1" in text
    assert from_onnx(onnx.parser.parse_model(text)) == text


def test_a_scan_costs_its_body_for_each_step():
    body = (
        "h, y = Scan<num_scan_inputs=1, body = b (s, v) => (n, o)"
        " { p = MatMul(v, w) q = MatMul(s, u) r = Add(p, q) n = Tanh(r) o = Identity(n) }>(z, x)"
    )
    weights = {"w": (4, 8), "u": (8, 8), "z": np.zeros((2, 8), np.float32)}
    macs, params = costs(small_model(body, "float[7,2,4] x", weights))
    assert macs == 7 * 2 * 8 * (4 + 8)
    assert params == 32 + 64 + 16


def test_axes_along_which_a_scan_reads_and_writes():
    axes = "num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]"
    text = text_of(f"y = Scan<{axes}, body = b (k) => (o) {{ o = Relu(k) }}>(x)", "float[2,7,4] x")
    assert "=>(float[2,7,4] x1)" in text


def test_a_scan_within_a_loop():
    scan = "Scan<num_scan_inputs=1, body = b (k) => (o) { o = MatMul(k, w) }>(v)"
    assert costs(loop(f"z = {scan}", weights=W, inputs="float[7,2,8] x")) == (5 * 7 * 2 * 64, 64)


def test_weights_of_all_layers_that_a_scan_reads_are_parameters():
    body = "y, u = Scan<num_scan_inputs=1, body = b (s, v) => (n, o) { n = MatMul(s, v) o = Relu(n) }>(x, w)"
    assert costs(small_model(body, X, {"w": (6, 8, 8)})) == (6 * 2 * 64, 6 * 64)


@pytest.mark.parametrize("shared", [True, False])
def test_a_weight_that_both_branches_read_counts_once(shared):
    other = f"r = MatMul(x, {'w' if shared else 'v'}) q = Relu(r)"
    body = f"{DATA} y = {if_else('p = MatMul(x, w)', other)}"
    weights = W if shared else W | {"v": (8, 8)}
    assert costs(small_model(body, X, weights)) == (2 * 64, 64 if shared else 128)


def test_a_weight_that_a_body_reads_twice_counts_once():
    assert costs(loop("r = MatMul(v, w) z = MatMul(r, w)", weights=W)) == (5 * 2 * 2 * 64, 64)


def test_a_map_over_a_sequence():
    body = (
        "a = SequenceConstruct(x, x) b = SequenceMap<body = m (float[2,8] e) => (float[2,8] f)"
        " { f = MatMul(e, w) }>(a) y = ConcatFromSequence<axis=0>(b)"
    )
    text = text_of(body, X, W, outputs="float[A,B] y")
    assert "SequenceMap<body=" in text
    with pytest.raises(ValueError, match="SequenceMap"):
        graph_features(text)


def test_captured_values_weights_and_constants():
    """Values of the graph, weights, and integer constants may be read by a branch under any name."""
    then = "k = MatMul(h, w) p = Slice(k, s, n, a)"
    body = f"{DATA} h = Relu(x) y = {if_else(then, 'q = Slice(h, s, n, a)')}"
    constants = {"s": np.array([0]), "n": np.array([1]), "a": np.array([0])}
    text = text_of(body, X, W | constants)
    renamed = small_model(body, X, W | constants)
    for node in renamed.graph.node:
        node.name = "named"
    renamed.graph.node[-1].attribute[0].g.name = "other"
    assert from_onnx(renamed) == text
    changed = text_of(body, X, W | constants | {"n": np.array([2])})
    assert changed != text


def test_initialisers_of_a_subgraph_are_weights():
    body = f"{DATA} y = {if_else('p = MatMul(x, w)', 'q = Relu(x)')}"
    inner = small_model(body, X)
    branch = inner.graph.node[-1].attribute[0].g
    array = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    branch.initializer.append(numpy_helper.from_array(array, "w"))
    assert from_onnx(inner) == text_of(body, X, W)


def test_other_branches_have_other_texts():
    texts = {
        text_of(f"{DATA} y = {if_else(f'p = {a}(x)', f'q = {b}(x)')}", X)
        for a in ("Relu", "Sigmoid")
        for b in ("Relu", "Sigmoid")
    }
    assert len(texts) == 4
    assert from_onnx(loop("z = Relu(v)", iterations=3)) != from_onnx(loop("z = Relu(v)", iterations=4))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{DATA} y = If<then_branch = t () => (p) {{ p = Relu(x) }}>(c)", "'else_branch' is missing"),
        (f"{DATA} y, z = {if_else('p = Relu(x)', 'q = Relu(x)')}", "a branch has 1 output: expected 2"),
        (
            "y = Loop<body = b (i, c) => (d, z) { d = Identity(c) z = Relu(x) }>(, , x)",
            "the body does not have",
        ),
        ("y = Scan<num_scan_inputs=2, body = b (v) => (o) { o = Relu(v) }>(x)", "the body does not have"),
        (f"{DATA} y = {if_else('p = Relu(k)', 'q = Relu(x)')}", "reads 'k', which no earlier node defines"),
    ],
)
def test_control_flow_that_breaks_the_rules(body, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(small_model(body, X))
