"""Constants that make a GELU, a HardSwish or an activation."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model

NUMBERS = {f"k{n}": np.array(n, np.float32) for n in (0, 1, 2, 3)} | {"half": np.array(0.5, np.float32)}
ROOT = {"root": np.array(2**0.5, np.float32), "inverse": np.array(0.5**0.5, np.float32)}
X = "float[2,3,4,6] x"

GELU = "d = Div(x, {root}) e = Erf(d) f = Add(e, {one}) h = Mul(x, f) y = Mul(h, {half})"


def gelu(root=2**0.5, one=1.0, half=0.5, shape=(), kind="float", body=GELU):
    """Return the text of the operators of a Gelu; the constant of 0.5 has the given shape."""
    number = TensorProto.DataType.Value(kind.upper())
    values = {
        "root": helper.make_tensor("root", number, (), [root]),
        "one": helper.make_tensor("one", number, (), [one]),
        "half": helper.make_tensor("half", number, shape, [half]),
    }
    return from_onnx(
        small_model(body.format(root="root", one="one", half="half"), f"{kind}[2,4] x", values, f"{kind} y")
    )


@pytest.mark.parametrize("kind", ["float", "float16", "double", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_gelu_has_rounded_constants_of_any_type(kind, shape):
    assert "=Gelu(x0)" in gelu(kind=kind, shape=shape)


def test_the_constant_of_a_gelu_may_be_the_first_factor():
    body = "d = Mul({root}, x) e = Erf(d) f = Add({one}, e) h = Mul({half}, x) y = Mul(f, h)"
    assert "=Gelu(x0)" in gelu(0.5**0.5, body=body)


@pytest.mark.parametrize(
    "changed", [{"root": 1.4153}, {"root": 1.41421}, {"one": 1.0005}, {"half": 0.5004}, {"half": 0.500001}]
)
def test_other_constants_are_no_gelu(changed):
    assert "Gelu" not in gelu(**changed)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("name", ["root", "one", "half"])
def test_constants_that_add_dimensions_are_no_gelu(name, shape):
    body = GELU.replace(f"{{{name}}}", "wide")
    weights = {"root": ROOT["root"], "one": NUMBERS["k1"], "half": NUMBERS["half"]}
    weights["wide"] = weights[name].reshape(shape)
    text = from_onnx(
        small_model(body.format(root="root", one="one", half="half"), "float[2,4] x", weights, "float y")
    )
    assert "Gelu" not in text and f"=>(float[{','.join(['1'] * (len(shape) - 2))},2,4] x" in text


@pytest.mark.parametrize(("alpha", "is_swish"), [(1 / 6, True), (0.16667, False), (0.166667, False)])
def test_a_hard_swish_has_a_slope_of_one_sixth(alpha, is_swish):
    body = f"h = HardSigmoid<alpha={alpha}, beta=0.5>(x) y = Mul(x, h)"
    assert ("HardSwish" in from_onnx(small_model(body, X))) == is_swish
