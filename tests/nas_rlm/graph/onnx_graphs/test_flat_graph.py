"""Functions, types of values, and models that break ONNX's rules."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, text_of

X = "float[2,8] x"


def function(head, body, imports='"": 21, "acme": 1'):
    return f'<domain: "acme", opset_import: [{imports}]> {head} {{ {body} }}'


@pytest.mark.parametrize(
    ("call", "alpha"),
    [
        ("acme.F(x)", 0.25),
        ("acme.F<alpha=0.5>(x)", 0.5),
        ("acme.G<slope=0.75>(x)", 0.75),
        ("acme.H(x)", 0.01),
    ],
)
def test_attributes_of_functions(call, alpha):
    """With a default, given by the call, passed on by another function, and missing."""
    functions = [
        function("F <alpha: float = 0.25> (a) => (b)", "b = LeakyRelu<alpha: float = @alpha>(a)"),
        function("G <slope> (a) => (b)", "b = acme.F<alpha: float = @slope>(a)"),
        function("H <alpha> (a) => (b)", "b = LeakyRelu<alpha: float = @alpha>(a)"),
    ]
    found = text_of(f"y = {call}", X, functions=" ".join(functions))
    assert found == text_of(f"y = LeakyRelu<alpha={alpha}>(x)", X)


def test_functions_are_inlined_with_omitted_inputs_and_outputs():
    clip = function("F (a, low, high) => (b, c)", "b = Clip(a, low, high) c = Relu(a)")
    found = text_of("y = acme.F(x, , k)", X, {"k": np.array(2, np.float32)}, functions=clip)
    assert found == text_of("y = Clip(x, , k)", X, {"k": np.array(2, np.float32)})
    found = text_of(", y = acme.F(x)", X, functions=clip)
    assert found == text_of("y = Relu(x)", X)


def test_nested_functions_and_names_that_repeat():
    functions = [
        function("F (x) => (y)", "t = Relu(x) y = Sigmoid(t)"),
        function("G (x) => (y)", "t = acme.F(x) y = acme.F(t)"),
    ]
    found = text_of("t = acme.G(x) y = acme.F(t)", X, functions=" ".join(functions))
    plain = " ".join(f"a{k} = Relu(s{k}) s{k + 1} = Sigmoid(a{k})" for k in range(3))
    assert found == text_of(f"s0 = Identity(x) {plain} y = Identity(s3)", X)


def test_functions_with_a_subgraph_read_the_attributes_of_the_call():
    head = "F <alpha: float = 0.5> (a, c) => (b)"
    branches = "then_branch = t () => (p) { p = LeakyRelu<alpha: float = @alpha>(a) }"
    branches += ", else_branch = e () => (q) { q = Relu(a) }"
    functions = function(head, f"b = If<{branches}>(c)")
    found = text_of("y = acme.F<alpha=0.125>(x, k)", X, {"k": np.array(True)}, functions=functions)
    assert found == text_of("y = LeakyRelu<alpha=0.125>(x)", X)


CUBE = "float[2,3,4] x"
# Statements whose meaning differs between operator sets 11 and 21, and those of set 21 with the same meaning.
OLD_STATEMENTS = {
    "softmax": ("b = Softmax(a)", "f = Flatten(x) s = Softmax(f) z = Shape(x) y = Reshape(s, z)"),
    "axes": ("b = ReduceSum<axes=[1]>(a)", "k = Constant<value_ints=[1]>() y = ReduceSum(x, k)"),
    "clip": (
        "m = Constant<value_float=0.5>() b = Clip(a, m)",
        "m = Constant<value_float=0.5>() y = Clip(x, m)",
    ),
}


@pytest.mark.parametrize("name", OLD_STATEMENTS)
def test_each_function_has_its_own_operator_set(name):
    old, expected = OLD_STATEMENTS[name]
    imports = '"": 11, "acme": 1'
    f = function("F (a) => (b)", old, imports)
    found = text_of(expected, CUBE)
    assert text_of("y = acme.F(x)", CUBE, functions=f) == found
    nested = function("G (a) => (b)", "b = acme.F(a)")
    assert text_of("y = acme.G(x)", CUBE, functions=f"{f} {nested}") == found
    branch = f"If<then_branch = t () => (b) {{ {old} }}, else_branch = e () => (q) {{ q = Identity(a) }}>(c)"
    conditional = function("H (a, c) => (y)", f"y = {branch}", imports)
    assert text_of("y = acme.H(x, k)", CUBE, {"k": np.array(True)}, functions=conditional) == found


@pytest.mark.parametrize(("outer", "inner"), [(11, 21), (21, 11), (11, 11), (21, 21), (12, 13)])
def test_operators_beside_a_function_have_the_operator_set_of_the_model(outer, inner):
    f = function("F (a) => (b)", "b = Softmax(a)", f'"": {inner}')
    statements = {
        True: "{0} = Softmax({1})",
        False: "f{0} = Flatten({1}) s{0} = Softmax(f{0}) {0} = Reshape(s{0}, z)",
    }
    parts = [
        statements[version >= 13].format(*names) for version, *names in ((outer, "p", "x"), (inner, "y", "r"))
    ]
    plain = f"z = Shape(x) {parts[0]} r = Relu(p) {parts[1]}"
    found = text_of("p = Softmax(x) r = Relu(p) y = acme.F(r)", CUBE, opset=outer, functions=f)
    assert found == text_of(plain, CUBE)


def test_a_function_that_imports_no_other_domain():
    old = function("F (a) => (b)", "b = Softmax(a)", imports='"": 21')
    assert text_of("y = acme.F(x)", X, functions=old) == text_of("y = Softmax(x)", X)


@pytest.mark.parametrize(
    ("body", "outputs", "identities"),
    [
        ("a = Relu(x) y = Identity(x)", "float[2,8] y, float[2,8] a", 1),
        ("a = Relu(x) y = Identity(w)", "float[2,8] y, float[2,8] a", 1),
        ("a = Relu(x) y = Identity(a) z = Identity(a)", "float[2,8] y, float[2,8] z", 1),
        ("a = Relu(x) y = Identity(x) z = Identity(x)", "float[2,8] y, float[2,8] z, float[2,8] a", 2),
        ("a = Relu(x) y = Shape(x)", "int64[2] y, float[2,8] a", 1),
    ],
)
def test_outputs_that_no_operator_of_its_own_computes(body, outputs, identities):
    """An input, a weight, a constant, and a value that is an output twice."""
    text = text_of(body, X, {"w": (2, 8)}, outputs=outputs)
    assert text.count("=Identity(") == identities


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("y = SequenceLength(x)", "seq(float[4]) x", "int64 y"),
        ("i = Constant<value_int=0>() y = SequenceAt(x, i)", "seq(float[4]) x", "float[4] y"),
        ("y = SequenceConstruct(x, x)", "float[4] x", "seq(float[4]) y"),
        (
            "a = SequenceInsert(x, z) y = ConcatFromSequence<axis=0>(a)",
            "seq(float[4]) x, float[4] z",
            "float[N] y",
        ),
        ("y = OptionalHasElement(x)", "optional(float[4]) x", "bool y"),
        ("y = OptionalGetElement(x)", "optional(float[4]) x", "float[4] y"),
        ("y = StringConcat(x, z)", "string[4] x, string[4] z", "string[4] y"),
        ("y = Equal(x, z)", "string[4] x, string[4] z", "bool[4] y"),
        (
            'y = ai.onnx.ml.DictVectorizer<string_vocabulary=["a","b"]>(x)',
            "map(string,float) x",
            "float[N,2] y",
        ),
    ],
)
def test_values_that_are_no_numeric_tensors(body, inputs, outputs):
    text = text_of(body, inputs, outputs=outputs)
    assert text.split("\n")[1].startswith(f"main({inputs.split(' ')[0]} ")
    assert f"=>({outputs.split('[')[0].split(' ')[0]}" in text


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, -3.4028235e38, 1e-45])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_constants_that_are_not_finite_or_extreme(value, dtype):
    if dtype == np.float16 and np.isfinite(value):
        value = 6e-8
    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    number = np.array(value, dtype)
    body = "y = Where(m, x, c)"
    text = text_of(body, f"{kind}[2,8] x, bool[2,8] m", {"c": number})
    constant = next(n for n in onnx.parser.parse_model(text).graph.node if n.op_type == "Constant")
    attribute = constant.attribute[0]
    is_float = attribute.name == "value_float"
    stored = np.float32(attribute.f) if is_float else numpy_helper.to_array(attribute.t)
    np.testing.assert_array_equal(stored, number)


def test_minus_infinity_has_one_text_however_it_is_stored():
    inputs = "float[2,8] x, bool[2,8] m"
    numbers = {"a": np.array(-1, np.float32), "b": np.array(0, np.float32)}
    texts = {
        text_of("y = Where(m, x, c)", inputs, {"c": np.array(-np.inf, np.float32)}),
        text_of("d = Div(a, b) y = Where(m, x, d)", inputs, numbers),
    }
    tensor = helper.make_tensor("c", TensorProto.FLOAT, [], [-np.inf])
    for value in ({"value": tensor}, {"value_float": -np.inf}):
        model = small_model("y = Where(m, x, c)", inputs)
        model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], **value))
        texts.add(from_onnx(model))
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a = Relu(x) a = Abs(x) y = Relu(a)", "defines 'a', which is already defined"),
        ("y = Relu(a)", "reads 'a', which no"),
        ("y = Add(x, a) a = Abs(b) b = Relu(y)", "which no earlier node defines"),
        ("z = Relu(x)", "output 'y' is computed by no node"),
        ("x = Relu(x) y = Abs(x)", "defines 'x', which is already defined"),
        ("y = Relu(x, x)", "Relu: 2 inputs: expected 1"),
        ("y = Relu()", "Relu: 0 inputs: expected 1"),
        ("y = Relu<alpha=1.0>(x)", "the attribute 'alpha' does not exist"),
        ("y = Concat<axis=1.5>(x, x)", "the attribute 'axis' is 1.5: expected an integer"),
        ("y = Concat(x, x)", "the attribute 'axis' is missing"),
        ("y = Transpose<perm=[0,0]>(x)", "Transpose"),
        ("y = Transpose<perm=[0,2]>(x)", "Transpose"),
        ("y = Softmax<axis=2>(x)", "Softmax: axis 2 is not one of 2 dimensions"),
    ],
)
def test_models_that_break_the_rules_get_one_line(body, message):
    with pytest.raises(ValueError, match=message) as caught:
        from_onnx(small_model(body, X))
    assert "\n" not in str(caught.value)


def test_the_order_of_nodes_does_not_matter():
    assert text_of("y = Relu(b) b = Abs(a) a = Exp(x)", X) == text_of("a = Exp(x) b = Abs(a) y = Relu(b)", X)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": [2, 8]}, "the model has no input 'z'; known: x"),
        ({"x": [2, 9]}, "of input 'x' has the size 9 in dimension 1, which is 8"),
        ({"x": [2]}, "has 1 size, and in the file 2"),
        ({"x": [0, 8]}, "expected integers of at least 1"),
    ],
)
def test_given_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(small_model("y = Relu(x)", "float[N,8] x"), shapes)


def test_a_given_size_holds_for_all_inputs_that_name_it():
    model = small_model("y = Add(x, z)", "float[2,N] x, float[2,N] z")
    text = from_onnx(model, {"x": [2, 5]})
    assert "(float[2,5] v0,float[2,5] v1)=>(float[2,5] v2)" in text
    with pytest.raises(ValueError, match=r"the size 6 and .* 5: expected one size, since both are 'N'"):
        from_onnx(model, {"x": [2, 5], "z": [2, 6]})
