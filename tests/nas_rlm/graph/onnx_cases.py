"""ONNX's own test models of its operators."""

import warnings
from functools import cache

from onnx.backend.test.case import node

# Operators in preview domains, whose shapes are not inferred.
PREVIEW = ("adagrad", "adam", "momentum", "nesterov", "flexattention", "causal_conv", "linear_attention")
OLD = ("not_2d", "not_3d", "not_4d", "scan_sum")  # of operator set 1, and Scan of operator set 8


@cache
def onnx_cases():
    """Return ONNX's test cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = node.collect_testcases(None)
    names = [c.name.removeprefix("test_") for c in found]
    return {n: c for n, c in zip(names, found, strict=True) if not n.startswith((*PREVIEW, *OLD))}


def has_empty_input(model):
    """Return True if an input has a size of 0, which means an open size in a file."""
    return any(d.dim_value == 0 for i in model.graph.input for d in i.type.tensor_type.shape.dim)
