"""Conversion of ONNX models to trainable torch modules."""

from __future__ import annotations

import onnx
from torch import fx

from nas_rlm.graph.onnx_graphs.loading import inline_functions
from nas_rlm.graph.torch_modules import (
    elementwise,
    indexing,
    layers,
    pools,
    recurrent,
    resizing,
    shapes,
    sizes,
)
from nas_rlm.graph.torch_modules.registry import Translate
from nas_rlm.graph.torch_modules.translator import Translator

OPERATORS: dict[str, Translate] = {
    **elementwise.OPERATORS,
    **indexing.OPERATORS,
    **layers.OPERATORS,
    **recurrent.OPERATORS,
    **pools.OPERATORS,
    **resizing.OPERATORS,
    **shapes.OPERATORS,
    **sizes.OPERATORS,
}


def to_torch(model: onnx.ModelProto) -> fx.GraphModule:
    """Return the torch module of an ONNX model with weights.

    Examples:
        >>> import numpy as np, torch, search_spaces
        >>> space = search_spaces.get("nasbench201")
        >>> cell = space.sample(np.random.default_rng(0))
        >>> module = to_torch(space.to_onnx(cell, weights=True))
        >>> module(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Args:
        model: model of the operators in OPERATORS, of operator set 11 or later, with weights as initialisers.

    Returns:
        A module in training mode that takes the inputs of the model in their order. It returns a tensor, or a
        tuple if the model has several outputs. Shapes that the model computes are computed when the module
        runs, so that batches may have any size that the model allows. Float initialisers with dimensions are
        parameters, except the statistics of batch norm; other constants are buffers. Weights that several
        nodes read stay shared. Nodes whose inputs are all constants are computed once.

    Raises:
        ValueError: the model has weights as inputs, or an unsupported operator or attribute.
    """
    return Translator(inline_functions(model), OPERATORS, sizes.SIZE_OPERATORS).module()
