import onnx
import onnx.parser
import pytest
import torch

from nas_rlm.graph.torch_module import to_torch
from nas_rlm.graph.torch_modules.fixed_sizes import fix_sizes

HEAD = '<ir_version: 8, opset_import: ["":17]> g (float[N,4,5,6] x) => (float[A,B,C,D] y) '
ONE = "one = Constant<value_ints=[1]>() four = Constant<value_ints=[4]>() zero = Constant<value_ints=[0]>() "
# Pads as PyTorch exports them: sizes that are computed with tensors.
PAD = """{
    two = Constant<value_int=2>() seven = Constant<value_int=7>() s = Shape(x) h = Gather(s, two)
    m = Mod(h, seven) r = Sub(seven, m) e = Unsqueeze(r, zero)
    pads = Concat<axis=0>(zero, zero, zero, zero, zero, zero, e, one) y = Pad(x, pads)
}"""
SCALE = """{
    s = Shape(x) f = Cast<to=1>(s) t = ReduceSum<keepdims=0>(f) r = Sqrt(t) y = Div(x, r)
}"""


@pytest.mark.parametrize(
    ("body", "shape"), [(PAD, (2, 4, 7, 7)), (SCALE, (2, 4, 5, 6))], ids=["pad", "scale"]
)
def test_sizes_are_constants_and_outputs_the_same(body, shape):
    model = onnx.parser.parse_model(HEAD + body.replace("{", "{" + ONE, 1))
    x = torch.randn(2, 4, 5, 6)
    expected = to_torch(model)(x)
    module = fix_sizes(to_torch(model), [x])
    assert torch.equal(module(x), expected) and expected.shape == shape
    assert module.to("meta")(x.to("meta")).shape == shape  # a copy to the host would fail
