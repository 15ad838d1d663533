"""Weights that several operators share, and weights that are computed from others.

The parameters of a network are the elements of its stored weights, each counted once. A weight that an
operator reads may be a part of a stored one, such as a slice of a table, or computed from several; then its
own size is not the number of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

from nas_rlm.graph.limits import check_time
from nas_rlm.graph.onnx_graphs.flat_graph import FlatGraph
from nas_rlm.graph.onnx_graphs.quantization import INTEGER_WEIGHTS, QUANTIZATION_PARAMETERS
from nas_rlm.graph.onnx_graphs.tensors import FLOATS, Tensor, num_elements


class _Use(NamedTuple):
    """A weight that an operator reads.

    Args:
        key: operator and position of the input; for a value that a subgraph captures its number.
        size: number of elements.
        sources: stored values from which it is computed.
    """

    key: tuple[int, int] | int
    size: int
    sources: frozenset[int]


def weight_marks(
    graph: FlatGraph, tensors: Mapping[int, Tensor]
) -> dict[tuple[int, int] | int, tuple[int, int]]:
    """Return which weights are shared, and of how many learnt parameters they are computed.

    Exporters also share tensors that are equal by chance, such as the biases of an untrained network. A
    weight of equal elements, or a vector of unknown values, therefore does not count as shared.

    Args:
        graph: normalized graph.
        tensors: what is known of its values.

    Returns:
        `tie` and `learnt`, see `nas_rlm.graph.ir.Leaf`, for each weight where one is not 0. The key is the
        operator's `id` and the position of the input; for a weight that a subgraph reads its number.
    """
    marks: dict[tuple[int, int] | int, tuple[int, int]] = {}
    uses = []
    for use, tensor in _weight_uses(graph, tensors):
        if tensor.mark is not None:
            marks[use.key] = tensor.mark
        elif use.sources:
            uses.append(use)
    same = _equal_weights({s for use in uses for s in use.sources}, tensors)
    uses = [use._replace(sources=frozenset(same.get(s, s) for s in use.sources)) for use in uses]
    readers: dict[int, int] = {}
    for use in uses:
        for s in use.sources:
            readers[s] = readers.get(s, 0) + 1
    by_chance = {s for s, n in readers.items() if n > 1 and not _is_distinct(tensors[s])}
    tie = max((t for t, _ in marks.values()), default=0)
    for component in _components([use._replace(sources=use.sources - by_chance) for use in uses]):
        learnt = sum(
            num_elements(tensors[s].shape) or 0 for s in {s for use in component for s in use.sources}
        )
        used = [use.size for use in component]
        if len(component) == 1 or sum(used) == learnt:
            if len(component) == 1 and used[0] != learnt:
                marks[component[0].key] = 0, learnt
            continue
        tie += 1
        for use in component:
            marks[use.key] = tie, 0 if set(used) == {learnt} else learnt
    return marks


def _weight_uses(graph: FlatGraph, tensors: Mapping[int, Tensor]) -> Iterator[tuple[_Use, Tensor]]:
    """Yield the weights that operators read, those in subgraphs included."""
    for op in graph.ops:
        for k, v in enumerate(op.inputs):
            if v is None or not tensors[v].is_static or k in QUANTIZATION_PARAMETERS.get(op.kind, ()):
                continue
            tensor = tensors[v]
            if tensor.dtype in FLOATS or k in INTEGER_WEIGHTS.get(op.kind, ()):
                yield _Use((id(op), k), num_elements(tensor.shape) or 0, tensor.sources), tensor
        for v in [v for _, inner in op.subgraphs for v in _reads(inner)]:
            tensor = tensors[v]
            if tensor.is_static and tensor.dtype in FLOATS:
                yield _Use(v, num_elements(tensor.shape) or 0, tensor.sources), tensor


def _reads(graph: FlatGraph) -> Iterator[int]:
    """Yield the values that the operators of a subgraph read, once for each operator."""
    for op in graph.ops:
        yield from [v for v in op.inputs if v is not None]
        for _, inner in op.subgraphs:
            yield from _reads(inner)


def _components(uses: Iterable[_Use]) -> list[list[_Use]]:
    """Group uses that have a source in common, directly or through others."""
    group_of: dict[int, list[_Use]] = {}
    for use in uses:
        check_time()
        merged = [use] if use.sources else []
        for group in {id(g): g for s in use.sources if (g := group_of.get(s)) is not None}.values():
            merged = [*group, *merged]
        for s in {s for u in merged for s in u.sources}:
            group_of[s] = merged
    return list({id(g): g for g in group_of.values()}.values())


def _values(tensor: Tensor) -> np.ndarray | None:
    """Return the values of a stored tensor; None if they are not in the file."""
    source = tensor.source
    if source is None:
        return tensor.array
    return None if source.data_location == TensorProto.EXTERNAL else numpy_helper.to_array(source)


def _is_distinct(tensor: Tensor) -> bool:
    """Return True for a weight whose use by several operators is no chance."""
    values = _values(tensor)
    if values is None:
        return len(tensor.shape or ()) > 1
    return bool(values.size and (values != values.reshape(-1)[0]).any())


def _equal_weights(numbers: Iterable[int], tensors: Mapping[int, Tensor]) -> dict[int, int]:
    """Return the weights that are equal to another one or its transpose, such as a tied output layer."""
    groups: dict[Any, list[int]] = {}
    for number in sorted(numbers):
        tensor = tensors[number]
        source = tensor.source
        if source is None or source.data_location == TensorProto.EXTERNAL:
            continue  # values would be read from a file
        if tensor.is_large and source.raw_data:
            size = -(-len(source.raw_data) // max(1, num_elements(tensor.shape) or 1))
            raw = source.raw_data
            key = tensor.dtype, tuple(sorted(tensor.known_shape or ())), raw[:size], raw[-size:]
            groups.setdefault(key, []).append(number)
    same = {}
    for group in groups.values():
        if len(group) < 2:
            continue
        arrays = {number: numpy_helper.to_array(tensors[number].source) for number in group}  # type: ignore[arg-type]
        for k, number in enumerate(group):
            check_time()
            a = arrays[number]
            for other in group[:k]:
                b = arrays[other]
                if other not in same and (
                    (a.shape == b.shape and np.array_equal(a, b))
                    or (a.shape == b.T.shape and np.array_equal(a, b.T))
                ):
                    same[number] = other
                    break
    return same
