import onnx
import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.onnx_models import FlatModel


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda g: g.op("Conv", "image", g.weight(8, 5, 3, 3)),
            "Conv: 1 group reads 8 channels .* expected 5 channels",
        ),
        (lambda g: g.op("Conv", "image", g.weight(9, 4, 3, 3), group=2), "expected groups of equal size"),
        (
            lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), group=0),
            "Conv: 0 groups .* expected groups of equal size",
        ),
        (lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), kernel_shape=[5, 5]), r"expected \[3, 3\]"),
        (
            lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), g.weight(7)),
            r"has a bias of shape \[7\]: expected \[8\]",
        ),
        (lambda g: g.op("Conv", "image", g.weight(8, 8, 64, 64)), "a window of 64 .* image of 16"),
        (lambda g: g.op("MaxPool", "image", kernel_shape=[50, 50]), "a window of 50 .* image of 16"),
        (lambda g: g.op("Add", "image", g.weight(1, 8, 15, 16)), "Add: shapes .* do not fit each other"),
        (lambda g: g.op("MatMul", "image", g.weight(8, 4)), "MatMul: matrices .* do not fit each other"),
        (lambda g: g.op("LeakyRelu", "image", alpha=float("nan")), "LeakyRelu: the attribute 'alpha' is nan"),
        (
            lambda g: g.op("Gemm", g.op("Flatten", "image"), g.weight(2048, 5), g.weight(7)),
            r"Gemm: a bias of shape \[7\]: expected \[5\]",
        ),
    ],
)
def test_operators_that_do_not_fit_their_inputs_are_refused(build, message):
    g = FlatModel()
    with pytest.raises(ValueError, match=message):
        from_onnx(g.build(g.op("Relu", build(g))))


def with_height(size):
    g = FlatModel()
    model = g.build(g.op("Relu", "image"))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = size
    return model


def test_values_that_are_too_large_are_refused():
    with pytest.raises(ValueError, match=r"input 'image' has the shape .* expected at most"):
        from_onnx(with_height(2**40))


@pytest.mark.parametrize("size", [-1, 0])
def test_a_size_without_a_positive_number_is_open(size):
    text = from_onnx(with_height(size))
    assert "float[1,8,N0,16] x0" in text and "float[1,8,N0,16] x1" in text
    assert from_onnx(with_height(size), {"image": [1, 8, 5, 16]}) == from_onnx(with_height(5))


def test_a_bias_for_all_rows_or_none_fits():
    g = FlatModel()
    flat = g.op("Flatten", "image")
    for bias in (g.weight(5), g.weight(1, 5), g.weight(1)):
        assert "Gemm" in from_onnx(g.build(g.op("Gemm", flat, g.weight(2048, 5), bias)))


def test_wrong_declared_output_shape_is_ignored():
    g = FlatModel()
    model = g.build(g.op("Relu", "image"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    assert "Relu" in from_onnx(model)


@pytest.mark.parametrize("kind", [".Relu", "Re.lu", "Relu.", "a.b.Relu"])
def test_names_with_a_dot_are_no_operators_of_onnx(kind):
    head = '<ir_version: 10, opset_import: ["": 21]>'
    model = onnx.parser.parse_model(f"{head} g (float[4] x) => (float[4] y) {{ y = Relu(x) }}")
    model.graph.node[0].op_type = kind
    with pytest.raises(ValueError, match="ONNX has no operator"):
        from_onnx(model)
