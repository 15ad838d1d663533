"""A pool of signals has one text, whether or not an exporter pools images of height 1."""

import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model, vectors

AS_IMAGES = "u = Unsqueeze(x, a) p = GlobalAveragePool(u) s = Squeeze(p, a)"


@pytest.mark.parametrize("axis", [2, -2, 3])
@pytest.mark.parametrize("end", ["y = Flatten(s)", "y = Relu(s)"])
def test_a_pool_of_signals_is_no_pool_of_images(axis, end):
    plain = small_model(f"s = GlobalAveragePool(x) {end}", "float[2,5,8] x")
    model = small_model(f"{AS_IMAGES} {end}", "float[2,5,8] x", vectors(a=[axis]))
    assert from_onnx(model) == from_onnx(plain)


@pytest.mark.parametrize(
    ("shape", "axis", "kind"), [([2, 5, 8], 1, "GlobalAveragePool"), ([2, 5], 2, "GlobalAveragePool")]
)
def test_a_pool_over_other_axes_stays(shape, axis, kind):
    sizes = ",".join(map(str, shape))
    body = AS_IMAGES.replace("s = ", "y = ") if len(shape) > 2 else f"{AS_IMAGES} y = Relu(s)"
    text = from_onnx(small_model(body, f"float[{sizes}] x", vectors(a=[axis])))
    assert kind in text and "Unsqueeze" in text


def test_a_pool_whose_image_is_read_twice_stays():
    text = from_onnx(
        small_model(
            f"{AS_IMAGES} q = Add(p, u) y = Relu(s)", "float[2,5,8] x", vectors(a=[2]), "float y, float q"
        )
    )
    assert "Unsqueeze" in text and "Squeeze" in text
