"""Graphs as ONNX text: one text for all models that compute the same graph."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import onnx

from nas_rlm.graph.cache import tidy, undisturbed
from nas_rlm.graph.normalization import check, normalised
from nas_rlm.graph.reader import MAX_BYTES, inlined, load, read
from nas_rlm.text.architecture_graph import network
from nas_rlm.text.layers import layered
from nas_rlm.text.outline import outline
from nas_rlm.text.printer import printed

if TYPE_CHECKING:
    from search_spaces import SearchSpace


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str], max_bytes: int = MAX_BYTES, outlined: bool = True
) -> str:
    """The text of an ONNX model.

    >>> import numpy as np, search_spaces
    >>> space = search_spaces.get("nasbench201")
    >>> text = from_onnx(space.to_onnx(space.sample(np.random.default_rng(0))))
    >>> onnx.checker.check_model(onnx.parser.parse_model(text))

    Weights become inputs named by their shape, values are numbered in an order that depends on the graph
    alone, attributes at their defaults and all names are dropped, and repeated parts become local functions
    (see `nas_rlm.text.outline`). Value names tell what matters: in a graph that forks, `v` values carry the
    input to the output and `d` values are computed but cut off from one of the two by a product with zero.

    Args:
        model: a model, or a path to an ONNX file.
        max_bytes: files larger than this are refused.
        outlined: without it, the graph stays flat: no model has read such texts, but they can be compared.

    Returns:
        Text in ONNX's own syntax: `onnx.parser.parse_model` reads it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not an ONNX file, too large, without operators, or with control flow.
    """
    loaded = load(model, max_bytes)
    tidy()
    try:
        check(loaded)
        flat = read(normalised(inlined(loaded)))
        return printed(*outline(layered(flat).canonical)) if outlined else printed(flat, {})
    except (ValueError, TypeError, LookupError, RuntimeError, onnx.checker.ValidationError) as error:
        name = "the model" if isinstance(model, onnx.ModelProto) else repr(os.fspath(model))
        reason = str(error).strip() or type(error).__name__
        raise ValueError(f"{name} has no text: {reason.splitlines()[0]}") from None


def from_architecture(space: SearchSpace[Any], architecture: Any) -> str:
    """The text of an architecture of a search space: what `from_onnx` gives for its network, but quicker.

    The space's builder marks what it repeats, so that each of its blocks is looked into once.
    """
    tidy()
    return printed(*outline(network(space, architecture)))


def from_architectures(space: SearchSpace[Any], architectures: Iterable[Any]) -> list[str]:
    """The text of each architecture."""
    with undisturbed():
        return [from_architecture(space, a) for a in architectures]
