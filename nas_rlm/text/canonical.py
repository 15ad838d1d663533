"""Conversion of models and architectures to canonical ONNX text, which is equal for equal graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx

from nas_rlm.graph.cache import clear_if_large, gc_paused
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits, time_limit
from nas_rlm.graph.onnx_graphs.input_shapes import (
    apply_input_shapes,
    check_input_shapes,
    check_mapping,
    inputs_only,
    select_shapes,
)
from nas_rlm.graph.onnx_graphs.loading import NotOnnxError, load
from nas_rlm.graph.reader import read_graph
from nas_rlm.graph.rewriting.control_flow import OpenSizeError
from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.text.architecture_graph import architecture_graph
from nas_rlm.text.layers import with_layer_calls
from nas_rlm.text.outline import outline
from nas_rlm.text.parser import parse_network
from nas_rlm.text.printer import format_network
from nas_rlm.utils.faults import Faults
from nas_rlm.utils.progress import progress_bar

if TYPE_CHECKING:
    from search_spaces import SearchSpace


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    outlined: bool = True,
    limits: Limits = DEFAULT_LIMITS,
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
        shapes: shapes of inputs that have open sizes in the file, by name. An open first size is a batch of
            1; other open sizes stay open in the text.
        outlined: write repeated subgraphs as local functions; pretrained models read only such text.
        limits: limits on size, nodes, depth and time.

    Returns:
        ONNX text that `onnx.parser.parse_model` reads.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a valid ONNX model or exceeds a limit, or the model has no operators or
            control flow that depends on an open size.
    """
    return _text(load(model, limits), _describe(model), shapes, outlined, limits)


def _text(
    model: onnx.ModelProto,
    name: str,
    shapes: Mapping[str, Sequence[int]] | None,
    outlined: bool,
    limits: Limits,
) -> str:
    """Return the canonical text of a model; `name` is its name in messages."""
    check_mapping(shapes)
    clear_if_large()
    try:
        with time_limit(limits.max_seconds), gc_paused():
            flat, opset = read_graph(normalize_model(model, shapes, limits))
            main, bodies = outline(with_layer_calls(flat).canonical) if outlined else (flat, {})
            return format_network(main, bodies, opset)
    except OpenSizeError as error:
        raise ValueError(f"{name}: {error}{_open_size(model, shapes)}") from None
    except (ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip() or type(error).__name__
        raise ValueError(f"{name} cannot be converted to text: {reason.splitlines()[0]}") from None


def _describe(model: onnx.ModelProto | str | os.PathLike[str]) -> str:
    """Return the name of a model for a message."""
    return "the model" if isinstance(model, onnx.ModelProto) else repr(os.fspath(model))


def _open_size(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None) -> str:
    """Return the first open size of a model for a message; empty if all are known."""
    try:
        check_input_shapes(apply_input_shapes(inputs_only(model), shapes))
    except ValueError as error:
        return f"; {error}"
    return ""


def check_costs(
    text: str,
    model: onnx.ModelProto | str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Check that the costs of a network are known, on which predictions depend.

    Args:
        text: text of the network.
        model: the model, or the path of its file.
        shapes: shapes of inputs that have open sizes in the file, by name.

    Raises:
        ValueError: the multiply-accumulates depend on a size that is open; the message names the input and
            the dimension. Or they depend on data, or an operator is not known.
    """
    try:
        compute_costs(parse_network(text)).totals()
    except ValueError as error:
        check_input_shapes(apply_input_shapes(inputs_only(load(model)), shapes))
        raise error


def costed_text(
    model: onnx.ModelProto | str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> str:
    """Return the canonical text of a model whose costs are known, see `from_onnx` and `check_costs`."""
    loaded = load(model, limits)
    text = _text(loaded, _describe(model), shapes, True, limits)
    try:
        with time_limit(limits.max_seconds):
            check_costs(text, loaded, shapes)
    except ValueError as error:
        raise ValueError(f"{_describe(model)}: {error}") from None
    return text


def costed_texts(
    models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
    shapes: Mapping[str, Sequence[int]] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[str]:
    """Return the text of each model, see `costed_text`.

    Args:
        models: models, or paths of ONNX files.
        shapes: shapes of inputs, by name; each is used for all models with such an input.
        limits: limits on each model.

    Raises:
        FileNotFoundError: a file does not exist.
        NotOnnxError: a file is not an ONNX model.
        ValueError: models cannot be read, or their costs are not known; the message names the first ones.
    """
    pairs = zip(models, shapes_of_models(models, shapes), strict=True)
    texts, faults = [], Faults()
    for model, own in progress_bar(pairs, desc="text", total=len(models), unit="net", delay=2):
        try:
            texts.append(costed_text(model, own, limits))
        except NotOnnxError:
            raise
        except ValueError as error:
            faults.add(str(error))
    faults.check()
    return texts


def shapes_of_models(
    models: Sequence[onnx.ModelProto | str | os.PathLike[str]], shapes: Mapping[str, Sequence[int]] | None
) -> list[dict[str, Sequence[int]]]:
    """Return for each model the shapes of its own inputs.

    Args:
        models: models, or paths of ONNX files.
        shapes: shapes of inputs, by name; each is used for all models with such an input.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not an ONNX model, no model has an input of a name, or shapes are not given by
            name.
    """
    check_mapping(shapes)
    return select_shapes([inputs_only(load(m)) for m in models], shapes) if shapes else [{} for _ in models]


def from_architecture(space: SearchSpace[Any], architecture: Any) -> str:
    """Return the canonical text of an architecture.

    Examples:
        >>> import search_spaces
        >>> text = from_architecture(search_spaces.get("nats_size"), "8:16:24:32:64")

    The text equals that of `from_onnx` for the architecture's network, but is written faster, since the
    builder of the space marks repeated blocks.

    Args:
        space: search space of the architecture.
        architecture: architecture of that space, or its text in the benchmark's notation.

    Raises:
        ValueError: the text is malformed, or the network of a user's own space is not valid.
    """
    clear_if_large()
    if isinstance(architecture, str):
        architecture = space.parse(architecture)
    with gc_paused():
        graph = architecture_graph(space, architecture)
        if graph is not None:
            return format_network(*outline(graph))
    return _text(space.to_onnx(architecture), f"{architecture} of {space.name}", None, True, DEFAULT_LIMITS)


def from_architectures(space: SearchSpace[Any], architectures: Iterable[Any]) -> list[str]:
    """Return the canonical text of each architecture.

    Args:
        space: search space of the architectures.
        architectures: architectures of that space, or their texts in the benchmark's notation.
    """
    with gc_paused():
        return [from_architecture(space, a) for a in architectures]
