import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nas_rlm.graph.onnx_graphs.input_shapes import (
    apply_input_shapes,
    check_input_shapes,
    input_shapes,
    parse_input_shape,
)
from tests.nas_rlm.devices.networks import encoder, model_of

IMAGES = (
    "g (float[batch, 3, height, width] images) => (float[batch, 3, height, width] y) { y = Relu(images) }"
)
TWO = "g (float[{}] a, float[{}] b) => (float[m, n] y, float[k] z) {{ y = Identity(a) z = Identity(b) }}"


def output_shapes(model):
    return [
        tuple(d.dim_value or d.dim_param for d in output.type.tensor_type.shape.dim)
        for output in model.graph.output
    ]


def two_inputs(a, b):
    """A model whose inputs have shapes given as text; the outputs have no shapes."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {TWO.format(a, b)}')
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("images:1x3x224x224", ("images", (1, 3, 224, 224))),
        ("tokens:128", ("tokens", (128,))),
        ("serving_default_x:0:1x3", ("serving_default_x:0", (1, 3))),
        ("model.encoder/x y:2x03", ("model.encoder/x y", (2, 3))),
        ("a:1x2:3x4", ("a:1x2", (3, 4))),
    ],
)
def test_the_shape_is_after_the_last_colon(text, expected):
    assert parse_input_shape(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "images",
        "images:",
        ":1x3",
        "1x3",
        "images:axb",
        "images:0x3",
        "images:1x",
        "images:1x-3",
        "images:1.5",
        "images:1X3",
        "images: 1x3",
        "images:1,3",
        "images:?x3",
        "images:1xx3",
        "images:٣",
        f"images:{10**12}",
    ],
)
def test_malformed_shapes_are_refused(text):
    with pytest.raises(ValueError, match="is not the shape of an input: expected NAME:SIZES, with x"):
        parse_input_shape(text)


def test_given_shapes_are_set_in_inputs_and_outputs():
    model = model_of(IMAGES)
    before = model.SerializeToString()
    closed = apply_input_shapes(model, {"images": (1, 3, 64, 32)})
    assert input_shapes(closed) == {"images": (1, 3, 64, 32)}
    assert output_shapes(closed) == [(1, "output0_1", 64, 32)]
    assert model.SerializeToString() == before
    assert apply_input_shapes(closed, {"images": np.array([1, 3, 64, 32])}) is closed
    assert apply_input_shapes(closed, None, batch=8) is closed


@pytest.mark.parametrize(
    ("shapes", "batch", "expected"),
    [
        (None, 1, (1, 3, None, None)),
        (None, 8, (8, 3, None, None)),
        ({"images": (1, 3, 9, 9)}, 8, (8, 3, 9, 9)),
        ({"images": (8, 3, 9, 9)}, 8, (8, 3, 9, 9)),
        ({"images": (4, 3, 9, 9)}, 1, (4, 3, 9, 9)),
    ],
)
def test_an_open_batch_is_that_of_the_device(shapes, batch, expected):
    assert input_shapes(apply_input_shapes(model_of(IMAGES), shapes, batch)) == {"images": expected}


@pytest.mark.parametrize(
    ("a", "b", "shapes", "expected"),
    [
        ("N, 5", "N", None, [(2, 5), (2,)]),  # lengths of the examples of a batch
        ("N, 5", "M", None, [(2, 5), (None,)]),  # audio samples, not a batch
        ("my_batch", "7", None, [(2,), (7,)]),
        ("N, seq", "seq, N, 4", {"a": (1, 9)}, [(1, 9), (9, 1, 4)]),  # ambiguous: no dimension is a batch
        ("N, seq", "seq, 4", None, [(2, None), (None, 4)]),
        ("N, seq", "N, seq, 4", {"b": (1, 9, 4)}, [(2, 9), (2, 9, 4)]),
        ("N, seq", "N, seq, 4", {"a": (3, 9)}, None),
        ("N, seq", "5, N, 4", {"a": (1, 9), "b": (5, 1, 4)}, [(2, 9), (5, 2, 4)]),  # a recurrent state
        ("?, 3", "?, 4", {"a": (1, 3)}, [(2, 3), (2, 4)]),
        ("1, 3", "?, 4", None, [(1, 3), (2, 4)]),
    ],
)
def test_equal_symbols_have_equal_sizes(a, b, shapes, expected):
    model = two_inputs(a, b)
    if expected is None:
        with pytest.raises(ValueError, match="input 'a' has a batch of 3 in the given shapes, expected 1 or"):
            apply_input_shapes(model, shapes, 2)
    else:
        assert list(input_shapes(apply_input_shapes(model, shapes, 2)).values()) == expected


def test_shapes_of_inner_values_and_outputs_are_not_stale():
    model = encoder()
    closed = apply_input_shapes(model, {"input_ids": (1, 16)})
    assert [shape[0] for shape in output_shapes(closed)] == [1, 1]
    onnx.checker.check_model(closed, full_check=True)
    reshaped = model_of(
        "g (float[n, c, h, w] x) => (float[n, k] y) <int64[2] s = {1, -1}> { z = Relu(x) y = Reshape(z, s) }"
    )
    reshaped.graph.value_info.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, 8, 8]))
    reshaped.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 192  # of the shape 1x3x8x8
    closed = apply_input_shapes(reshaped, {"x": (1, 3, 16, 16)})
    assert output_shapes(closed) == [(1, "output0_1")]
    assert not closed.graph.value_info
    onnx.checker.check_model(closed, full_check=True)


def test_initialisers_are_no_inputs():
    model = model_of("g (float[n, 4] x, float[4] w) => (float[n, 4] y) { y = Mul(x, w) }", w=(4,))
    assert input_shapes(apply_input_shapes(model, None)) == {"x": (1, 4)}
    with pytest.raises(ValueError, match="no input 'w'; known: x"):
        apply_input_shapes(model, {"w": (4,)})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"image": (1, 3, 8, 8)}, "the model has no input 'image'; did you mean images"),
        ({"images": (1, 3, 8)}, "1x3x8 of input 'images' has 3 sizes, and in the file 4: .*:1x3x224x224"),
        ({"images": (1, 1, 8, 8)}, "size 1 in dimension 1, which is 3 in the file: .* images:1x3x8x8"),
        ({"images": (1, 3, 0, 8)}, "expected integers of at least 1"),
        ({"images": ()}, "of input 'images' has 0 sizes, and in the file 4"),
        ({"images": (1, 3, 8.5, 8)}, "expected integers of at least 1"),
        ({"images": "1x3"}, "expected integers of at least 1"),
        ({"images": (1, 3, 2**40, 8)}, "expected integers of at least 1"),
    ],
)
def test_shapes_that_contradict_the_model_are_refused(shapes, message):
    with pytest.raises(ValueError, match=message):
        apply_input_shapes(model_of(IMAGES), shapes)


def test_shapes_that_contradict_each_other_are_refused():
    shapes = {"input_ids": (1, 16), "segments": (1, 8)}
    with pytest.raises(ValueError, match=r"the size 8 and .* 16: expected one size, since both are 'length'"):
        apply_input_shapes(encoder(), shapes)
    with pytest.raises(ValueError, match="in the file 0: expected no shape, since it is a scalar"):
        apply_input_shapes(encoder(), {"scale": (1,)})


@pytest.mark.parametrize(
    ("a", "message"),
    [
        ("1, 3, height, 8", r"dimension 2 \('height'\): give --input-shape a:1x3x224x8"),
        ("batch, ?, h, w", "dimension 0 .'batch'.: give --input-shape a:1x3x224x224"),
        ("2, ?", "dimension 1: give --input-shape a:2x128"),
        ("samples", r"dimension 0 \('samples'\): give --input-shape a:128"),
    ],
)
def test_an_open_dimension_is_an_error_that_shows_the_option(a, message):
    with pytest.raises(ValueError, match=f"input 'a' has an open {message}"):
        check_input_shapes(two_inputs(a, "3"))
    assert check_input_shapes(two_inputs("2, 3", "3")) is None


def test_the_options_for_all_inputs_are_shown_at_once():
    with pytest.raises(ValueError, match=r"give --input-shape a:1x3x224x224 --input-shape b:128$"):
        check_input_shapes(two_inputs("1, 3, height, width", "length"))
    with pytest.raises(ValueError, match=r"give --input-shape a:1x128$"):
        check_input_shapes(two_inputs("1, length", "length"))


def test_inputs_without_shape_get_the_given_one():
    model = two_inputs("2, 3", "3")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ValueError, match="input 'a' has no shape: give --input-shape a:"):
        check_input_shapes(apply_input_shapes(model, None))
    assert input_shapes(apply_input_shapes(model, {"a": (5, 6, 7)}))["a"] == (5, 6, 7)


def test_negative_sizes_are_open():
    model = two_inputs("2, 3", "3")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = -1
    assert input_shapes(apply_input_shapes(model, None, 4))["a"] == (4, None)
    assert input_shapes(apply_input_shapes(model, {"a": (1, 6)}, 4))["a"] == (4, 6)


def test_inputs_that_are_no_tensors_have_no_shape():
    value = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = onnx.ModelProto(graph=onnx.GraphProto(input=[value]))
    assert input_shapes(apply_input_shapes(model, {})) == {"s": None}
    check_input_shapes(model)
    with pytest.raises(ValueError, match="input 's' is not a tensor"):
        apply_input_shapes(model, {"s": (1,)})
