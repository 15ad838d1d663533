"""Networks written in several operator sets have one text."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, version_converter

from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model

INPUTS = "float[1,3,16,16] x"
WEIGHTS = {
    "BatchNormalization": dict.fromkeys("sbmv", (8,)),
    "Add along an axis": {"s": (8,)},
    "Gemm": {"g": (10, 8), "h": (10,)},
}
# Parts of a network: the statements of each operator set, from the set that introduced them.
PARTS = {
    "Squeeze": {6: "y = Squeeze<axes=[2,3]>(x)", 13: "a = Constant<value_ints=[2,3]>() y = Squeeze(x, a)"},
    "Unsqueeze": {
        6: "y = Unsqueeze<axes=[0,4]>(x)",
        11: "y = Unsqueeze<axes=[0,-2]>(x)",
        13: "a = Constant<value_ints=[4,0]>() y = Unsqueeze(x, a)",
    },
    "Split": {
        6: "p, y = Split<axis=1, split=[2,6]>(x)",
        13: "n = Constant<value_ints=[2,6]>() p, y = Split<axis=1>(x, n)",
    },
    "equal Split": {
        6: "p, y = Split<axis=1>(x)",
        18: "p, y = Split<axis=1, num_outputs=2>(x)",
        19: "p, y = Split<axis=-3, num_outputs=2>(x)",
    },
    "Clip": {
        6: "y = Clip<min=0.0, max=6.0>(x)",
        11: "a = Constant<value=float {0.0}>() b = Constant<value=float {6.0}>() y = Clip(x, a, b)",
    },
    "Clip above": {6: "y = Clip<max=6.0>(x)", 11: "b = Constant<value=float {6.0}>() y = Clip(x, , b)"},
    "Slice": {
        6: "y = Slice<starts=[1,0], ends=[5,3], axes=[1,2]>(x)",
        10: "s = Constant<value=int64[2]{1,0}>() e = Constant<value=int64[2]{5,3}>()"
        " a = Constant<value=int64[2]{1,2}>() y = Slice(x, s, e, a)",
    },
    "Slice of all axes": {
        6: "y = Slice<starts=[0,1], ends=[1,3]>(x)",
        10: "s = Constant<value=int64[2]{0,1}>() e = Constant<value=int64[2]{1,3}>() y = Slice(x, s, e)",
    },
    "Pad": {
        6: "y = Pad<pads=[0,0,1,1,0,0,2,2]>(x)",
        11: "p = Constant<value=int64[8]{0,0,1,1,0,0,2,2}>() y = Pad(x, p)",
        18: "p = Constant<value_ints=[1,1,2,2]>() a = Constant<value_ints=[2,3]>() y = Pad(x, p, , a)",
    },
    "Pad with a value": {
        6: "y = Pad<pads=[0,0,1,1,0,0,1,1], value=2.5>(x)",
        11: "p = Constant<value=int64[8]{0,0,1,1,0,0,1,1}>() v = Constant<value=float {2.5}>()"
        " y = Pad(x, p, v)",
    },
    "TopK": {
        6: "y, i = TopK<k=3>(x)",
        10: "k = Constant<value=int64[1]{3}>() y, i = TopK(x, k)",
        11: "k = Constant<value=int64[1]{3}>() y, i = TopK<largest=1, sorted=1>(x, k)",
    },
    "Upsample": {
        7: 'y = Upsample<scales=[1.0,1.0,2.0,2.0], mode="nearest">(x)',
        9: 's = Constant<value=float[4]{1.0,1.0,2.0,2.0}>() y = Upsample<mode="nearest">(x, s)',
        10: "s = Constant<value=float[4]{1.0,1.0,2.0,2.0}>() y = Resize(x, s)",
        11: "s = Constant<value=float[4]{1.0,1.0,2.0,2.0}>()"
        ' y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , s)',
    },
    "Softmax over the last axes": {
        6: "y = Softmax(x)",
        13: "f = Flatten(x) p = Softmax(f) s = Shape(x) y = Reshape(p, s)",
    },
    "Softmax over the last axis": {6: "y = Softmax<axis=3>(x)", 13: "y = Softmax(x)"},
    "Dropout": {
        6: "d = Dropout<ratio=0.3>(x) y = Relu(d)",
        12: "r = Constant<value=float {0.3}>() d = Dropout(x, r) y = Relu(d)",
    },
    "ReduceMean": {
        6: "y = ReduceMean<axes=[1], keepdims=0>(x)",
        18: "a = Constant<value_ints=[-3]>() y = ReduceMean<keepdims=0>(x, a)",
    },
    "ReduceSum": {
        6: "y = ReduceSum<axes=[1,2]>(x)",
        13: "a = Constant<value_ints=[2,1]>() y = ReduceSum(x, a)",
    },
    "ReduceMax of all": {6: "y = ReduceMax<keepdims=0>(x)", 18: "y = ReduceMax<keepdims=0>(x)"},
    "BatchNormalization": {
        6: "y = BatchNormalization<is_test=1>(x, s, b, m, v)",
        7: "y = BatchNormalization<momentum=0.5>(x, s, b, m, v)",
        9: "y = BatchNormalization(x, s, b, m, v)",
        15: "y = BatchNormalization<momentum=0.8, training_mode=0>(x, s, b, m, v)",
    },
    "Add along an axis": {
        6: "y = Add<broadcast=1, axis=1>(x, s)",
        7: "a = Constant<value=int64[3]{8,1,1}>() t = Reshape(s, a) y = Add(x, t)",
    },
    "Gemm": {
        6: "f = Flatten(x) y = Gemm<transB=1, broadcast=1>(f, g, h)",
        7: "f = Flatten(x) y = Gemm<transB=1>(f, g, h)",
    },
}
SIDES = {"Squeeze": 1, "Gemm": 1}
OPSETS = (6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22)


def network(part, opset):
    """The part in an operator set; None if the part does not exist in it."""
    variants = [(since, body) for since, body in PARTS[part].items() if since <= opset]
    if not variants:
        return None
    side = SIDES.get(part, 6)
    body = max(variants)[1]
    return small_model(body, f"float[1,8,{side},{side}] x", WEIGHTS.get(part), opset=opset)


@pytest.mark.parametrize("part", PARTS)
def test_all_operator_sets_give_one_text(part):
    texts = {}
    for opset in OPSETS:
        model = network(part, opset)
        if model is not None:
            texts.setdefault(from_onnx(model), []).append(opset)
    assert len(texts) == 1, list(texts.items())


@pytest.mark.parametrize("part", sorted(PARTS.keys() - {"Add along an axis", "Upsample"}))
@pytest.mark.parametrize("target", [13, 18, 21])
def test_a_model_that_onnx_converts_keeps_its_text(part, target):
    """Without the two parts that onnx converts to other computations."""
    model = network(part, min(PARTS[part]))
    try:
        converted = version_converter.convert_version(model, target)
    except (RuntimeError, version_converter.ConvertError) as error:
        pytest.skip(f"onnx does not convert it: {error}")
    assert from_onnx(converted) == from_onnx(model)


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("Clip", ("6.0", "5.0")),
        ("Pad", ("2,2]", "2,3]")),
        ("TopK", ("k=3", "k=4")),
        ("Upsample", ("2.0,2.0", "2.0,3.0")),
        ("Softmax over the last axis", ("axis=3", "axis=2")),
        ("ReduceMean", ("axes=[1]", "axes=[2]")),
        ("Slice", ("starts=[1", "starts=[2")),
        ("Split", ("[2,6]", "[3,5]")),
    ],
)
def test_other_attributes_give_other_texts(part, changed):
    oldest = min(PARTS[part])
    body = PARTS[part][oldest]
    assert body.replace(*changed) != body
    plain = small_model(body, "float[1,8,6,6] x", opset=oldest)
    other = small_model(body.replace(*changed), "float[1,8,6,6] x", opset=oldest)
    assert from_onnx(plain) != from_onnx(other)


def test_upsampling_doubles_the_sides():
    for opset in (7, 9, 10, 11, 21):
        normal = normalize_model(network("Upsample", opset))
        assert normal.tensors[normal.graph.outputs[0]].shape == (1, 8, 12, 12)


@pytest.mark.parametrize("opset", [1, 5, 1000])
def test_other_operator_sets_are_refused(opset):
    model = small_model("y = Relu(x)", INPUTS)
    model.opset_import[0].version = opset
    with pytest.raises(ValueError, match=f"operator set {opset}: expected 6 to"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("body", "opset", "message"),
    [
        ("y = Upsample<scales=[1.0,1.0,2.0,2.0]>(x)", 21, "no operator 'Upsample'"),
        ("y = NoSuchOperator(x)", 17, "no operator 'NoSuchOperator'"),
        ("y = Squeeze<axes=[0]>(x)", 13, "the attribute 'axes' does not exist"),
        ("y = Clip(x, a)", 6, "2 inputs: expected 1"),
    ],
)
def test_an_operator_has_to_exist_in_the_operator_set_of_the_file(body, opset, message):
    model = small_model(body, INPUTS, {"a": np.array(0.0, np.float32)}, opset=opset)
    with pytest.raises(ValueError, match=message):
        from_onnx(model)


@pytest.mark.parametrize(
    ("body", "opset", "expected"),
    [
        ("y = Relu(x)", 21, 21),
        ("y = Relu(x)", 24, 21),
        ("y = Swish(x)", 24, 24),
        ("y = RMSNormalization(x, s)", 23, 23),
        ("y = RMSNormalization(x, s)", 24, 23),
        ("y = Attention(x, x, x)", 23, 23),
        ("a = RMSNormalization(x, s) y = Swish<alpha=1.5>(a)", 24, 24),
    ],
)
def test_new_operators_put_their_operator_set_into_the_header(body, opset, expected):
    weights = {"s": (16,)} if "(x, s)" in body else {}
    text = from_onnx(small_model(body, INPUTS, weights, opset=opset))
    assert f'opset_import:["":{expected}]' in text.splitlines()[0]
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == text


def test_integer_types_of_new_operator_sets():
    value = helper.make_tensor("k", TensorProto.INT4, [2], [3, -4])
    text = from_onnx(small_model("c = Cast<to=1>(k) y = Mul(x, c)", "float[2] x", {"k": value}))
    assert onnx.parser.parse_model(text).graph.node[-1].op_type == "Mul"
