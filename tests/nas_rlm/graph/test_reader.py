"""What of a model is part of its text: sizes, values of small constants, types, and no names."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import float16, int4, integers, small_model, text_of

X = "float[2,8] x"


@pytest.mark.parametrize(
    ("body", "inputs", "values", "is_part"),
    [
        ("y = Mul(x, c)", X, [np.array(0.5, np.float32), np.array(0.25, np.float32)], True),
        ("y = Mul(x, c)", X, [np.full(8, 0.5, np.float32), np.arange(8, dtype=np.float32)], False),
        ("y = Gather(x, c)", X, [np.array([0, 1]), np.array([1, 1])], True),
        ("y = Gather(x, c)", X, [np.arange(64) % 2, np.arange(64) % 3 % 2], True),
        ("y = Gather(x, c)", X, [np.arange(65) % 2, np.arange(65) % 3 % 2], False),
        ("y = Resize(x, , c)", X, [np.array([1, 2], np.float32), np.array([2, 1], np.float32)], True),
        ("y = MatMulInteger(x, c)", "uint8[2,8] x", [integers(8, 3), integers(8, 3) + np.int8(1)], False),
        ("y = Where(c, x, x)", X, [np.array([True] * 7 + [False]), np.array([False] * 7 + [True])], True),
    ],
)
def test_values_of_scalars_and_small_integers_are_part_of_the_text(body, inputs, values, is_part):
    first, second = (text_of(body, inputs, {"c": value}) for value in values)
    assert (first != second) == is_part


@pytest.mark.parametrize(("dtype", "kind"), [(np.complex64, "complex64"), (np.complex128, "complex128")])
@pytest.mark.parametrize(("shape", "size"), [((), ""), ((1,), "[1]"), ((2,), "[2]")])
def test_complex_constants_have_real_and_imaginary_parts(dtype, kind, shape, size):
    array = np.full(shape, 1.5 - 2j, dtype)
    model = small_model("y = acme.F(x)", X)
    model.graph.node[0].attribute.append(helper.make_attribute("a", onnx.numpy_helper.from_array(array)))
    text = from_onnx(model)
    assert f"a={kind}{size}{{{','.join(['1.5,-2.0'] * array.size)}}}" in text
    assert from_onnx(onnx.parser.parse_model(text)) == text
    assert kind in text_of("y = Add(x, c)", f"{kind}[2] x", {"c": array})


OPERANDS = ["Pow", "Max", "Min", "Mod<fmod=1>", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]


@pytest.mark.parametrize("kind", ["float", "float16", "double", "bfloat16"])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (8,)])
@pytest.mark.parametrize("body", [f"y = {op}({args})" for op in OPERANDS for args in ("x, c", "c, x")])
def test_values_of_floats_that_decide_behaviour_are_part_of_the_text(body, shape, kind):
    number, size = TensorProto.DataType.Value(kind.upper()), int(np.prod(shape))
    constants = [helper.make_tensor("c", number, shape, [v] * size) for v in (0.5, 1.25)]
    is_comparison = any(name in body for name in ("Less", "Greater", "Equal"))
    outputs = f"{'bool' if is_comparison else kind} y"
    first, second = (text_of(body, f"{kind}[2,8] x", {"c": c}, outputs) for c in constants)
    assert first != second


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "PRelu"])
@pytest.mark.parametrize("shape", [(8,), (2, 8)])
def test_operands_that_may_be_learnt_are_weights(op, shape):
    values = [np.full(shape, v, np.float32) for v in (0.5, 1.25)]
    first, second = (text_of(f"y = {op}(x, c)", X, {"c": c}) for c in values)
    assert first == second


@pytest.mark.parametrize(
    ("body", "inputs", "constants", "outputs"),
    [
        ("y = Clip(x, c)", "double[2,8] x", [np.array([-1.0]), np.array([-2.0])], "double y"),
        *[
            (
                "y = Where(b, x, c)",
                f"{X}, bool[2,8] b",
                [np.full(s, v, np.float32) for v in (0, 1)],
                "float y",
            )
            for s in ((1,), (1, 1))
        ],
        ("y = Pad(x, p, c)", X, [np.array([2], np.float32), np.array([3], np.float32)], "float y"),
        ("y = OneHot(x, d, c)", "int64[3] x", [np.array([0, 1.0]), np.array([0, 2.0])], "double[3,5] y"),
        (
            "y = NonMaxSuppression(x, s, n, c)",
            "float[1,6,4] x, float[1,1,6] s",
            [np.array([0.5], np.float32), np.array([0.6], np.float32)],
            "int64[n,3] y",
        ),
        (
            "y = NonMaxSuppression(x, s, n, , c)",
            "float[1,6,4] x, float[1,1,6] s",
            [np.array([0.5], np.float32), np.array([0.6], np.float32)],
            "int64[n,3] y",
        ),
    ],
)
def test_values_of_bounds_and_thresholds_are_part_of_the_text(body, inputs, constants, outputs):
    others = {"p": np.array([0, 1, 0, 1]), "d": np.array(5), "n": np.array([3])}
    texts = [text_of(body, inputs, others | {"c": c}, outputs) for c in constants]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("exponents", [(2.0, 3.0), (0.5, -0.5)])
def test_values_that_a_subgraph_reads_are_part_of_the_text(exponents):
    branches = (
        "then_branch = t () => (float[2,8] a) { a = Pow(x, c) },"
        " else_branch = e () => (float[2,8] b) { b = Relu(x) }"
    )
    first, second = (
        text_of(f"y = If<{branches}>(k)", f"{X}, bool k", {"c": np.array([v], np.float32)}) for v in exponents
    )
    assert first != second


@pytest.mark.parametrize("count", [2, 65, 300])
def test_sizes_of_many_parts_are_part_of_the_text(count):
    sizes = np.array([2] + [1] * (count - 1))
    names = [f"y{k}" for k in range(count)]
    outputs = ", ".join(f"float {name}" for name in names)
    body = f"{', '.join(names)} = Split(x, s)"
    texts = [text_of(body, f"float[{count + 1}] x", {"s": s}, outputs) for s in (sizes, sizes[::-1].copy())]
    assert texts[0] != texts[1]
    assert not any("W" in text.split("{")[0] or "int64" in text.split("{")[0] for text in texts)


def test_too_many_integers_that_decide_a_shape():
    model = small_model("s = SplitToSequence(x, c) y = SequenceAt(s, i)", "float[5000] x")
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.INT64, [5000], [1] * 5000))
    model.graph.initializer.append(helper.make_tensor("i", TensorProto.INT64, [], [0]))
    with pytest.raises(ValueError, match="input 1 has 5,000 elements: expected at most 4,096"):
        from_onnx(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [(1e300, 1e301), (1.00000001, 1.0), (1 / 3, float(np.float32(1 / 3))), (5e-324, 0.0), (np.inf, 1e308)],
)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_constants_of_type_double_have_all_digits(values, shape):
    x = "double[2,3] x"
    texts = [text_of("y = Max(x, c)", x, {"c": np.full(shape, v)}, "double y") for v in values]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "producer_name", "tool"),
        lambda m: setattr(m, "model_version", 7),
        lambda m: setattr(m.graph, "name", "other"),
        lambda m: setattr(m.graph.node[0], "name", "first"),
        lambda m: setattr(m.graph.node[0], "doc_string", "text\nof two lines"),
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [5, 5])),
        lambda m: m.metadata_props.append(onnx.StringStringEntryProto(key="a", value="b")),
        lambda m: m.opset_import.append(helper.make_opsetid("unused", 3)),
        lambda m: setattr(m, "ir_version", 8),
        lambda m: setattr(m.opset_import[0], "domain", "ai.onnx"),
        lambda m: setattr(m.graph.node[0], "domain", "ai.onnx"),
    ],
)
def test_names_and_metadata_are_no_part_of_the_text(change):
    model = small_model("a = MatMul(x, w) y = Relu(a)", X, {"w": (8, 8)})
    expected = from_onnx(model)
    change(model)
    assert from_onnx(model) == expected


@pytest.mark.parametrize(
    ("kind", "name"),
    [("float", "W8_4"), ("float16", "float16_8_4"), ("double", "double_8_4"), ("bfloat16", "bfloat16_8_4")],
)
def test_weights_are_named_by_type_and_shape(kind, name):
    number = TensorProto.DataType.Value(kind.upper())
    weight = helper.make_tensor("w", number, [8, 4], np.linspace(0, 1, 32).tolist())
    text = text_of("y = MatMul(x, w)", f"{kind}[2,8] x", {"w": weight})
    assert f"{kind}[8,4] {name})" in text


def test_weights_of_few_bits():
    scale = np.array([0.5], np.float32)
    text = text_of("d = DequantizeLinear(w, s) y = MatMul(x, d)", X, {"w": int4("w", 8, 4), "s": scale})
    assert "int4[8,4] int4_8_4" in text
    assert "float16[4] float16_4" in text_of("y = Mul(x, w)", "float16[2,4] x", {"w": float16("w", 4)})


def test_open_sizes_are_numbered_in_order():
    text = text_of("a = Relu(x) y = Add(a, z)", "float[2,width,height] x, float[2,width,height] z")
    assert "(float[2,N0,N1] v0,float[2,N0,N1] v1)=>(float[2,N0,N1] v3)" in text
    swapped = "float[2,height,width] x, float[2,height,width] z"
    assert text_of("a = Relu(x) y = Add(a, z)", swapped) == text


@pytest.mark.parametrize("dims", ["N,8", "2,N"])
def test_an_input_without_a_name_for_its_open_size(dims):
    model = small_model("y = Relu(x)", f"float[{dims}] x")
    expected = from_onnx(model)
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.ClearField("dim_param")
    assert from_onnx(model) == expected


@pytest.mark.parametrize(
    "value",
    ["plain", 'with "quotes"', "back\\slash", "line\nbreak", "tab\t", "naïve ✓", "<x>(y)=z, a@b", "", "\x00"],
)
def test_strings_in_attributes(value):
    model = small_model("y = acme.Magic(x)", X, outputs="float[2,8] y")
    model.graph.node[0].attribute.append(helper.make_attribute("text", value))
    text = from_onnx(model)
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == text
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize("domain", ["a b", "f", "1a", "a..b", "ä", 'x"y', "com.", "x\ny"])
def test_domains_that_the_text_cannot_have(domain):
    model = small_model("y = acme.Magic(x)", X)
    model.graph.node[0].domain = domain
    with pytest.raises(ValueError, match="cannot be written: expected a dotted name") as caught:
        from_onnx(model)
    assert "\n" not in str(caught.value)


def test_omitted_inputs_keep_their_positions():
    both = text_of("y = Clip(x, a, b)", X, {"a": np.array(0, np.float32), "b": np.array(1, np.float32)})
    upper = text_of("y = Clip(x, , b)", X, {"b": np.array(1, np.float32)})
    lower = text_of("y = Clip(x, a)", X, {"a": np.array(1, np.float32)})
    assert len({both, upper, lower}) == 3
    assert "Clip(x0,,F1p0)" in upper


STRINGS = ["a", "b", "", " ", "a,b", '"', "\\", "\t", "\n", "}{>()", "=@g1", "é", b"\xff", b"\xfe", "x" * 300]


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 2)])
def test_constants_of_strings_are_part_of_the_text(shape):
    def text(value):
        array = np.full(shape, value, object)
        values = [v if isinstance(v, bytes) else v.encode() for v in array.reshape(-1)]
        constant = helper.make_tensor("c", TensorProto.STRING, shape, values)
        return text_of("y = Equal(x, c)", "string[3,2] x", {"c": constant}, "bool y")

    texts = [text(value) for value in STRINGS]
    assert len(set(texts)) == len(STRINGS)
    assert not any("string" in line.partition(")=>")[0].replace("string[3,2] x0", "") for line in texts)


def test_more_strings_than_the_text_has_are_a_table():
    constant = helper.make_tensor("c", TensorProto.STRING, [100], [b"a"] * 100)
    text = text_of("y = Gather(c, x)", "int64[3] x", {"c": constant}, "string y")
    assert "string[100] string_100" in text


@pytest.mark.parametrize(
    "body",
    [
        'y = StringNormalizer<stopwords=["{s}"]>(x)',
        'y, n = StringSplit<delimiter="{s}">(x)',
        'y = RegexFullMatch<pattern="{s}">(x)',
        'y = ai.onnx.ml.LabelEncoder<keys_strings=["{s}", "k"], values_int64s=[1, 2]>(x)',
        'y = ai.onnx.ml.LabelEncoder<keys_strings=["k"], values_strings=["v"], default_string="{s}">(x)',
        'y = ai.onnx.ml.CategoryMapper<cats_strings=["{s}", "k"], cats_int64s=[1, 2]>(x)',
        'y = TfIdfVectorizer<mode="TF", max_gram_length=1, min_gram_length=1, max_skip_count=0,'
        ' ngram_counts=[0], ngram_indexes=[0], pool_strings=["{s}"]>(x)',
        'y = acme.Split<pattern="{s}">(x)',
    ],
)
def test_attributes_of_strings_are_part_of_the_text(body):
    strings = ["a", "b", "a b", "a\tb", "a\rb", "a\x0bb"]
    texts = []
    for s in strings:
        model = small_model(body.replace("{s}", "PLACE"), "string[3] x")
        for attribute in model.graph.node[0].attribute:
            attribute.s = attribute.s.replace(b"PLACE", s.encode())
            replaced = [v.replace(b"PLACE", s.encode()) for v in attribute.strings]
            del attribute.strings[:]
            attribute.strings.extend(replaced)
        texts.append(from_onnx(model))
        assert from_onnx(onnx.parser.parse_model(texts[-1])) == texts[-1]
    assert len(set(texts)) == len(strings)
