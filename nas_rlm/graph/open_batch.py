"""ONNX models that take batches of any size."""

from __future__ import annotations

import onnx
import torch

from nas_rlm.graph.onnx_graphs.input_shapes import forget_computed_shapes
from nas_rlm.graph.torch_module import to_torch

BATCH = "batch"  # name of the open dimension
FACTOR = 2  # between the batches that are compared
RELATIVE_ERROR, ABSOLUTE_ERROR = 1e-3, 1e-5  # of float32 in another order of additions
TORCH_TYPES = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.INT64: torch.int64}


def with_open_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model whose batch is open, where the model computes the same for each example.

    Examples:
        >>> import numpy as np, search_spaces
        >>> space = search_spaces.get("nasbench201")
        >>> model = with_open_batch(space.to_onnx(space.sample(np.random.default_rng(0)), weights=True))
        >>> [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        ['batch', 3, 32, 32]

    Args:
        model: a model with weights and one input of fixed sizes.

    Returns:
        The copy; the model itself where its sizes or results depend on the batch, as with a reshape to a
        constant size, or where `to_torch` cannot run it or its shapes cannot be inferred.
    """
    (value,) = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if not _gives_equal_results(model, shape, TORCH_TYPES[value.type.tensor_type.elem_type]):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.input[0].type.tensor_type.shape.dim[0].dim_param = BATCH
    forget_computed_shapes(copy)
    try:
        inferred = onnx.shape_inference.infer_shapes(copy, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return model
    first_dims = [output.type.tensor_type.shape.dim[:1] for output in inferred.graph.output]
    is_open = all(dims and dims[0].dim_param == BATCH for dims in first_dims)
    return inferred if is_open else model


@torch.no_grad()
def _gives_equal_results(model: onnx.ModelProto, shape: list[int], dtype: torch.dtype) -> bool:
    """Whether a larger batch has the same outputs as its parts.

    Args:
        model: the model.
        shape: sizes of its input, with the batch.
        dtype: type of its input.
    """
    try:
        module = to_torch(model).eval()
    except ValueError:
        return False  # an operator without a torch module
    generator = torch.Generator().manual_seed(0)
    larger = [FACTOR * shape[0], *shape[1:]]
    inputs = (
        torch.randn(larger, generator=generator)
        if dtype.is_floating_point
        else torch.randint(2, larger, generator=generator)
    )
    try:
        parts, together = [module(part) for part in inputs.split(shape[0])], module(inputs)
    except RuntimeError:
        return False
    if not isinstance(together, torch.Tensor):
        return False
    expected = torch.cat(parts)
    has_shape = together.shape == expected.shape
    return has_shape and torch.allclose(together, expected, RELATIVE_ERROR, ABSOLUTE_ERROR)
