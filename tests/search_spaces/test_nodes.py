import numpy as np
import pytest
from onnx import TensorProto

from search_spaces.nodes import Constant


@pytest.mark.parametrize(
    ("given", "value", "dtype"),
    [
        (np.float32(0.5), 0.5, TensorProto.FLOAT),
        (np.int64(3), 3, TensorProto.INT64),
        (np.array([1, 2]), (1, 2), TensorProto.INT64),
        ([1, 0.5], (1.0, 0.5), TensorProto.FLOAT),
        ((np.int32(4), -1), (4, -1), TensorProto.INT64),
        ((), (), TensorProto.INT64),
    ],
)
def test_numbers_of_numpy_are_plain_ones(given, value, dtype):
    constant = Constant(given)
    assert constant == Constant(value) and constant.info.dtype == dtype
    elements = constant.value if isinstance(constant.value, tuple) else [constant.value]
    assert all(type(element) in (int, float) for element in elements)
