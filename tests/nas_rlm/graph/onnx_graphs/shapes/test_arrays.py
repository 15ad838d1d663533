"""Shapes that values of unknown sizes describe."""

import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model

BODIES = {
    "Reshape": "z = Reshape(x, s)",
    "Expand": "z = Expand(x, s)",
    "ConstantOfShape": "z = ConstantOfShape(s)",
    "Col2Im": "z = Col2Im(x, s, s)",
}


def model_of(kind, length):
    """A model whose operator reads as many sizes as `length`, which are inputs of the network."""
    return small_model(f"{BODIES[kind]} y = Relu(z)", f"float[1,4,4] x, int64[{length}] s")


@pytest.mark.parametrize(
    ("kind", "length", "shape"),
    [
        ("Reshape", 2, "N0,N1"),
        ("Reshape", 4, "N0,N1,N2,N3"),
        ("Expand", 2, "N0,N1,N2"),
        ("Expand", 4, "N0,N1,N2,N3"),
        ("ConstantOfShape", 2, "N0,N1"),
        ("ConstantOfShape", 64, ",".join(f"N{k}" for k in range(64))),
        ("Col2Im", 2, "1,N0,N1,N2"),
        ("Col2Im", 3, "1,N0,N1,N2,N3"),
    ],
)
def test_a_shape_has_as_many_open_sizes_as_its_vector(kind, length, shape):
    assert f"=>(float[{shape}] " in from_onnx(model_of(kind, length))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("length", [65, 10**6, 2**31])
def test_a_shape_of_too_many_sizes_is_refused(kind, length):
    with pytest.raises(ValueError, match=r"a shape of [\d,]+ sizes: expected at most 64"):
        from_onnx(model_of(kind, length))
