import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.onnx_models import FlatModel


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g: g.op("Conv", "image", g.weight(8, 5, 3, 3)), "reads 8 channels .* expected 5 channels"),
        (lambda g: g.op("Conv", "image", g.weight(9, 4, 3, 3), group=2), "expected groups of equal size"),
        (lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), group=0), "a Conv of 0 groups"),
        (lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), kernel_shape=[5, 5]), r"expected \[3, 3\]"),
        (
            lambda g: g.op("Conv", "image", g.weight(8, 8, 3, 3), g.weight(7)),
            r"has a bias of shape \[7\]: expected \[8\]",
        ),
        (lambda g: g.op("Conv", "image", g.weight(8, 8, 64, 64)), "expected sizes of at least 1"),
        (lambda g: g.op("MaxPool", "image", kernel_shape=[50, 50]), "expected sizes of at least 1"),
        (lambda g: g.op("Add", "image", g.weight(1, 8, 15, 16)), "shapes contradict each other: .*Add"),
        (lambda g: g.op("MatMul", "image", g.weight(8, 4)), "shapes contradict each other: .*MatMul"),
        (lambda g: g.op("LeakyRelu", "image", alpha=float("nan")), "alpha of LeakyRelu is nan"),
        (
            lambda g: g.op("Gemm", g.op("Flatten", "image"), g.weight(2048, 5), g.weight(7)),
            r"a Gemm .* has a bias of shape \[7\]: expected \[5\]",
        ),
    ],
)
def test_operators_that_do_not_fit_their_inputs_are_refused(build, message):
    g = FlatModel()
    with pytest.raises(ValueError, match=message):
        from_onnx(g.build(g.op("Relu", build(g))))


@pytest.mark.parametrize("size", [-1, 0, 2**40])
def test_values_that_are_too_large_are_refused(size):
    g = FlatModel()
    model = g.build(g.op("Relu", "image"))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = size
    with pytest.raises(ValueError, match="value 'image' has the shape"):
        from_onnx(model)


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
