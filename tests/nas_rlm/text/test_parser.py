from collections import Counter

import numpy as np
import onnx
import pytest

import search_spaces
from nas_rlm.graph.operators import Call
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.declarations import is_network_text
from nas_rlm.text.parser import parse_network
from search_spaces.graph import Graph


def flat(body):
    """The operators of a network and of its functions, in order."""
    return [o for s in body.steps for o in (flat(s.body) if isinstance(s, Call) else [s])]


@pytest.mark.parametrize("name", search_spaces.names())
def test_operators_equal_those_of_the_builder(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(1))
    batch = space.batch_size
    graph = Graph((batch, *space.shape(architecture)), checked=False, input_type=space.input_type)
    space.write(graph, architecture)
    written = Counter((o.kind, batch * int(np.prod(o.output.inner_shape))) for o in graph.ops())
    network = parse_network(from_architecture(space, architecture))
    found = Counter((o.kind, int(np.prod(o.shape))) for o in flat(network))
    assert len(network.inputs) == len(network.outputs) == 1
    assert found <= written if name.startswith("nds") else found == written  # what nothing reads is left out


def test_operands_are_values_weights_and_zeros():
    space = search_spaces.get("nasbench201")
    cell = space.parse("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    network = parse_network(from_architecture(space, cell))
    stem = network.steps[0]
    assert (stem.values, stem.outputs) == (network.inputs, network.steps[1].values)
    first, second = stem.body.steps
    assert (first.kind, first.values, first.weights, first.shape) == (
        "Conv",
        stem.body.inputs,
        ((16, 3, 3, 3),),
        (1, 16, 32, 32),
    )
    assert (second.values, second.weights, second.outputs) == (
        first.outputs,
        ((16,),) * 4,
        stem.body.outputs,
    )
    zeros = [o for o in flat(network) if o.is_zero]
    assert {o.kind for o in zeros} == {"Mul"}
    assert all(len(o.values) == 1 and not o.weights for o in zeros)
    assert len(zeros) == 15 * 5


def called(body):
    """What each call in a network does, those within functions among them."""
    return [b for s in body.steps if isinstance(s, Call) for b in (s.body, *called(s.body))]


def test_calls_with_equal_argument_types_share_a_body():
    """Five cells of each of three widths, and layers that another text has as well."""
    space = search_spaces.get("nasbench201")
    cells = [
        space.parse(f"|nor_conv_3x3~0|+|{operator}~0|none~1|+|nor_conv_3x3~0|none~1|skip_connect~2|")
        for operator in ("none", "skip_connect")
    ]
    first, second = (Counter(called(parse_network(from_architecture(space, c)))) for c in cells)
    layers = [n for body, n in first.items() if not any(isinstance(s, Call) for s in body.steps)]
    assert sorted(layers)[-3:] == [10, 11, 11]  # the widths but the first have one in the reduction as well
    assert len(first.keys() & second.keys()) > 3
    assert first.keys() != second.keys()


def test_groups_of_convolutions():
    space = search_spaces.get("fbnet")
    network = parse_network(from_architecture(space, space.sample(np.random.default_rng(0))))
    depthwise = [o for o in flat(network) if o.kind == "Conv" and o.group > 1]
    assert depthwise
    assert all(o.group * o.weights[0][1] == o.shape[1] or o.weights[0][1] > 1 for o in depthwise)


def test_network_of_an_exporter():
    """Constants that give shapes, several outputs, inputs left out, operators that are not ONNX's."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18, "their.own": 1]>
        g (float[1, 4, 6] x, float[6, 8] w) => (float[2, 16] y)
        {
          m = MatMul(x, w)
          shape = Constant<value_ints=[2, 16]>()
          r = Reshape(m, shape)
          a, b = Split<axis=1, num_outputs=2>(r)
          most = Constant<value_float=6.0>()
          c = Clip(a, , most)
          d = their.own.Fold(b)
          y = Concat<axis=1>(c, d)
        }""")
    found = {o.kind: o for o in flat(parse_network(from_onnx(model)))}
    assert found["Reshape"].shape == (2, 16)
    assert found["Reshape"].values == found["MatMul"].outputs
    assert len(found["Split"].outputs) == 2
    assert found["Split"].shape == found["Clip"].shape == (2, 8)
    assert found["their.own.Fold"].shape == ()
    assert set(found["Concat"].values) == {*found["Clip"].outputs, *found["their.own.Fold"].outputs}


def test_function_that_returns_its_argument():
    text = """<ir_version:10,opset_import:["":21,"f":1]>
main(float[1,4] v0,float[4,4] W4_4)=>(float[1,4] v2)
{
v1,W=f.same(v0,W4_4)
v2=MatMul(v1,W)
}
<domain:"f",opset_import:["":21,"f":1]>
same(x0,w0)=>(x0,w0)
{
x1=Relu(x0)
}
"""
    product = parse_network(text).steps[-1]
    assert product.kind == "MatMul"
    assert (product.values, product.weights) == (("v1",), ((4, 4),))


@pytest.mark.parametrize(
    "change",
    [
        ("main(float[1,3,32,32] ", "main(float[1,3,32,32] n"),
        ("=>", "=="),
        ("f.", "f.no"),
        ("x2=", "x2 = "),
        ("Conv<", "Convolve<"),
    ],
)
def test_text_that_is_not_canonical_is_refused(change):
    space = search_spaces.get("nats_size")
    text = from_architecture(space, space.sample(np.random.default_rng(0)))
    assert is_network_text(text)
    for broken in ("int main", text[: len(text) // 2], text.replace(*change)):
        with pytest.raises(ValueError, match="is not canonical ONNX text"):
            parse_network(broken)
