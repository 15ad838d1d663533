import numpy as np
import onnx
import pytest

from nas_rlm.devices.example_inputs import describe_inputs, example_inputs
from nas_rlm.graph.onnx_graphs.input_shapes import apply_input_shapes
from tests.nas_rlm.devices.networks import SPACE, cells, encoder, model_of


def test_every_kind_of_input_has_its_type_and_shape():
    inputs = example_inputs(apply_input_shapes(encoder(), {"input_ids": (1, 64)}, 4))
    types = {name: (x.dtype.name, x.shape) for name, x in inputs.items()}
    assert types == {
        "input_ids": ("int64", (4, 64)),
        "segments": ("int32", (4, 64)),
        "attention_mask": ("int64", (4, 64)),
        "keep": ("bool", (4, 64)),
        "scale": ("float32", ()),
    }
    assert 0 <= inputs["input_ids"].min() < inputs["input_ids"].max() < 50
    assert set(np.unique(inputs["segments"])) == {0, 1}
    assert inputs["attention_mask"].min() == 1
    assert inputs["keep"].all()
    assert all(isinstance(x, np.ndarray) for x in inputs.values())


@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
def test_floats_are_random(dtype):
    (x,) = example_inputs(model_of(f"g ({dtype}[1, 100] x) => ({dtype}[1, 100] y) {{ y = Neg(x) }}")).values()
    assert x.dtype == np.dtype({"float": "float32", "double": "float64"}.get(dtype, dtype))
    assert 0.5 < x.std() < 1.5


@pytest.mark.parametrize(
    ("dtype", "lowest", "highest"),
    [("uint8", 0, 255), ("int8", -128, 127), ("int16", 1, 1), ("uint32", 1, 1), ("int64", 1, 1)],
)
def test_bytes_are_random_and_other_integers_ones(dtype, lowest, highest):
    model = model_of(f"g ({dtype}[100, 100] x) => (float[100, 100] y) {{ y = Cast<to=1>(x) }}")
    (x,) = example_inputs(model).values()
    assert (x.dtype.name, x.min(), x.max()) == (dtype, lowest, highest)


@pytest.mark.parametrize(
    ("graph", "bound"),
    [
        ("g (int64[400] x) => (float[400, 3] y) { y = Gather(w, x) }", 7),
        ("g (int64[400] x) => (float[7, 400] y) { y = Gather<axis=1>(w, x) }", 3),
        ("g (int64[400] x) => (float[7, 400] y) { y = Gather<axis=-1>(w, x) }", 3),
        ("g (int64[400] x) => (float[400, 3] y, float[400, 2] z) { y = Gather(w, x) z = Gather(v, x) }", 2),
        ("g (uint8[400] x) => (float[400, 3] y) { i = Cast<to=7>(x) j = Identity(i) y = Gather(w, j) }", 7),
        ("g (int64[400] x) => (float[400, 3] y) { v2 = Relu(w) y = Gather(v2, x) }", 7),
        ("g (int64[400, 3] x) => (float[400, 3] y) { y = GatherElements(w, x) }", 7),
        (
            "g (int64[1, 400] x) => (float[1, 3] y)"
            " <int64 o={0}> { i = Gather<axis=1>(x, o) y = Gather(w, i) }",
            7,
        ),
        (
            "g (int64[400] x, bool c) => (float[400, 3] y) { y = If (c) <"
            " then_branch = g1 () => (float[400, 3] a) { a = Gather(w, x) },"
            " else_branch = g2 () => (float[400, 3] b) { b = Gather(w, x) }> }",
            7,
        ),
        ("g (int64[400, 1] x) => (float[400, 3] y) { y = GatherND(w, x) }", 1),
    ],
)
def test_indices_are_valid(graph, bound):
    x = example_inputs(model_of(graph, w=(7, 3), v=(2, 2)))["x"]
    assert (x.min(), x.max()) == (0, bound - 1)


def test_indices_of_a_table_of_unknown_size_are_zeros():
    model = model_of(
        "g (float[9] f, int64[4] x) => (float[4] y) { n = NonZero(f) t = Squeeze(n)"
        " u = Cast<to=1>(t) y = Gather(u, x) }"
    )
    assert not example_inputs(model)["x"].any()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("g (float[1, n] x) => (float[1, n] y) { y = Neg(x) }", r"open dimension 1 \('n'\)"),
        ("g (string[1, 3] x) => (string[1, 3] y) { y = Identity(x) }", "input 'x' has the type string"),
        ("g (bfloat16[1, 3] x) => (float[1, 3] y) { y = Cast<to=1>(x) }", "'x' has the type bfloat16"),
        ("g (complex64[1, 3] x) => (complex64[1, 3] y) { y = Identity(x) }", "'x' has the type complex64"),
        ("g (seq(float[3]) x) => (float[3] y) { y = ConcatFromSequence<axis=0>(x) }", "'x' is not a tensor"),
        ("g () => (float[7, 3] y) { y = Neg(w) }", "the model has no inputs"),
    ],
)
def test_inputs_without_example_are_refused(graph, message):
    with pytest.raises(ValueError, match=message):
        example_inputs(model_of(graph, w=(7, 3)))


def test_weights_as_inputs_are_refused():
    with pytest.raises(
        ValueError, match=r"reads the weight W.* as an input: expected weights as initialisers"
    ):
        example_inputs(onnx.inliner.inline_local_functions(SPACE.to_onnx(cells(1)[0])))


def test_inputs_are_described_for_errors():
    assert describe_inputs({"x": np.zeros((1, 3), np.float16), "n": np.array(3)}) == (
        "x (float16[1, 3]), n (int64[])"
    )
