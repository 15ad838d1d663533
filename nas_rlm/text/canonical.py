"""Conversion of models and architectures to canonical ONNX text, which is equal for equal graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import onnx

from nas_rlm.graph.cache import clear_if_large, gc_paused
from nas_rlm.graph.normalization import check_model, normalize_model
from nas_rlm.graph.reader import MAX_BYTES, inline_functions, load, read_graph
from nas_rlm.text.architecture_graph import architecture_graph
from nas_rlm.text.layers import with_layer_calls
from nas_rlm.text.outline import outline
from nas_rlm.text.printer import format_network

if TYPE_CHECKING:
    from search_spaces import SearchSpace


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str], max_bytes: int = MAX_BYTES, outlined: bool = True
) -> str:
    """Return the canonical text of an ONNX model.

    Examples:
        >>> import numpy as np, search_spaces
        >>> space = search_spaces.get("nasbench201")
        >>> text = from_onnx(space.to_onnx(space.sample(np.random.default_rng(0))))
        >>> onnx.checker.check_model(onnx.parser.parse_model(text))

    Weights become inputs named by their shape, values are numbered in canonical order, names and attributes
    with default values are dropped, and repeated subgraphs become local functions (see
    `nas_rlm.text.outline`). In a graph with branches, values named `v` lie on a path from the input to the
    output, and values named `d` do not, because of a multiplication by zero.

    Args:
        model: a model, or the path of an ONNX file.
        max_bytes: maximum size of the file.
        outlined: write repeated subgraphs as local functions; pretrained models read only such text.

    Returns:
        ONNX text that `onnx.parser.parse_model` reads.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a valid ONNX model or too large, or the model has no operators or has
            control flow.
    """
    loaded = load(model, max_bytes)
    clear_if_large()
    try:
        check_model(loaded)
        flat = read_graph(normalize_model(inline_functions(loaded)))
        return (
            format_network(*outline(with_layer_calls(flat).canonical))
            if outlined
            else format_network(flat, {})
        )
    except (ValueError, TypeError, LookupError, RuntimeError, onnx.checker.ValidationError) as error:
        name = "the model" if isinstance(model, onnx.ModelProto) else repr(os.fspath(model))
        reason = str(error).strip() or type(error).__name__
        raise ValueError(f"{name} cannot be converted to text: {reason.splitlines()[0]}") from None


def from_architecture(space: SearchSpace[Any], architecture: Any) -> str:
    """Return the canonical text of an architecture.

    The text equals that of `from_onnx` for the architecture's network, but is written faster, since the
    builder of the space marks repeated blocks.

    Args:
        space: search space of the architecture.
        architecture: architecture of that space.
    """
    clear_if_large()
    return format_network(*outline(architecture_graph(space, architecture)))


def from_architectures(space: SearchSpace[Any], architectures: Iterable[Any]) -> list[str]:
    """Return the canonical text of each architecture.

    Args:
        space: search space of the architectures.
        architectures: architectures of that space.
    """
    with gc_paused():
        return [from_architecture(space, a) for a in architectures]
