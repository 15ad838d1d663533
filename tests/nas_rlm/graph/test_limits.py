import time

import onnx
import pytest

from nas_rlm.graph.limits import Limits, check_time, time_limit
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model


def chain(length):
    statements = " ".join(f"t{k + 1} = Relu(t{k})" for k in range(length))
    return small_model(f"t0 = Sigmoid(x) {statements} y = Tanh(t{length})", "float[4] x")


def nested(depth):
    """Branches within branches."""
    body = "p = Relu(x)"
    for k in range(depth):
        other = f"else_branch = e{k} () => (q) {{ q = Abs(x) }}"
        body = f"p = If<then_branch = t{k} () => (p) {{ {body} }}, {other}>(c)"
    return small_model(f"s = ReduceSum<keepdims=0>(x) c = Cast<to=9>(s) {body} y = Relu(p)", "float[4] x")


def test_number_of_nodes():
    assert from_onnx(chain(8), limits=Limits(max_nodes=10))
    with pytest.raises(ValueError, match="more nodes than the limit of 10"):
        from_onnx(chain(9), limits=Limits(max_nodes=10))


def test_nodes_of_functions_and_subgraphs_count():
    functions = '<domain: "acme", opset_import: ["": 21]> F (a) => (b) { c = Relu(a) b = Abs(c) }'
    model = small_model("t = acme.F(x) u = acme.F(t) y = acme.F(u)", "float[4] x", functions=functions)
    assert from_onnx(model, limits=Limits(max_nodes=6))
    with pytest.raises(ValueError, match="more nodes than the limit of 5"):
        from_onnx(model, limits=Limits(max_nodes=5))
    with pytest.raises(ValueError, match="more nodes than the limit of 5"):
        from_onnx(nested(1), limits=Limits(max_nodes=5))


def test_depth():
    assert from_onnx(nested(4), limits=Limits(max_depth=4))
    with pytest.raises(ValueError, match="nested deeper than the limit of 3"):
        from_onnx(nested(4), limits=Limits(max_depth=3))


def test_a_function_that_calls_itself_is_refused():
    functions = '<domain: "acme", opset_import: ["": 21, "acme": 1]> F (a) => (b) { b = acme.F(a) }'
    with pytest.raises(ValueError, match="nested deeper than the limit of 32"):
        from_onnx(small_model("y = acme.F(x)", "float[4] x", functions=functions))


def test_size_of_the_file(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(chain(3), path)
    size = path.stat().st_size
    assert from_onnx(path, limits=Limits(max_bytes=size))
    with pytest.raises(ValueError, match=rf"m\.onnx' has {size} bytes, more than the limit of {size - 1}"):
        from_onnx(path, limits=Limits(max_bytes=size - 1))


def test_time():
    with pytest.raises(ValueError, match="takes longer than the limit of 1e-09 s"):
        from_onnx(chain(3), limits=Limits(max_seconds=1e-9))
    check_time()  # there is no limit outside of a conversion


def residual_blocks(number):
    statements = " ".join(
        f"a{k} = Relu(t{k}) b{k} = Sigmoid(a{k}) t{k + 1} = Add(t{k}, b{k})" for k in range(number)
    )
    return small_model(f"t0 = Tanh(x) {statements} y = Neg(t{number})", "float[4] x")


def twins(number):
    """Operators that read the same values, twice each, so that their order has to be decided."""
    statements = " ".join(f"t{k} = Relu(x)" for k in range(number))
    names = ", ".join(f"t{k}" for k in range(number))
    body = f"{statements} a = Sum({names}) b = Max({names}) y = Add(a, b)"
    return small_model(body, "float[4] x")


def loops(depth, growth="Relu({0})", carried=1):
    """Loops within loops, which carry values that move by one position in each iteration."""
    body = f"r0 = {growth.format(f'a0_{carried - 1}')}"
    for k in range(depth):
        own = [f"a{k}_{j}" for j in range(carried)]
        types = ", ".join(f"float[N{k}_{j}] {name}" for j, name in enumerate(own))
        source = [f"a{k + 1}_{j}" for j in range(carried)] if k + 1 < depth else ["x"] * carried
        results = ", ".join([*[f"u{k}_{j}" for j in range(1, carried)], f"o{k}"])
        head = f"b{k} (int64 i{k}, bool c{k}, {types}) => (bool d{k}, {', '.join([*own[1:], f'r{k}'])})"
        loop = f"Loop<body = {head} {{ d{k} = Identity(c{k}) {body} }}>"
        body = f"{results} = {loop}(n, , {', '.join(source)}) r{k + 1} = {growth.format(f'o{k}')}"
    body = f"n = Constant<value_int=3>() {body} y = Relu(r{depth})"
    return small_model(body, "float[4] x")


GROWTH = "Concat<axis=0>({0}, {0})"


@pytest.mark.parametrize(
    "model",
    [nested(28), loops(28), loops(28, GROWTH)],
    ids=["branches", "loops", "loops with sizes that grow"],
)
def test_nested_control_flow_takes_little_time(model):
    text = from_onnx(model, limits=Limits(max_seconds=5))
    assert text.count("=If<") + text.count("=Loop<") == 28


@pytest.mark.parametrize(
    "model",
    [chain(6000), residual_blocks(3000), twins(2000), loops(28, GROWTH, 3)],
    ids=["chain", "residual blocks", "twins", "loops"],
)
def test_time_holds_in_all_steps(model):
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"takes longer than the limit of 0\.3 s"):
        from_onnx(model, limits=Limits(max_seconds=0.3))
    assert time.monotonic() - start < 6


def test_the_inner_time_limit_ends_with_its_block():
    with time_limit(60):
        with time_limit(1e-6):
            time.sleep(0.001)
            with pytest.raises(ValueError, match="1e-06 s"):
                check_time()
        check_time()


@pytest.mark.parametrize("name", ["max_bytes", "max_nodes", "max_depth", "max_seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_positive(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*: expected a positive number"):
        Limits(**{name: value})
