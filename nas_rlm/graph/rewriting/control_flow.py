"""Control flow: branches with a known condition are inlined, other subgraphs get shapes of their own."""

from __future__ import annotations

import numpy as np

from nas_rlm.graph.limits import TimeLimitError
from nas_rlm.graph.onnx_graphs.flat_graph import FlatGraph, Op
from nas_rlm.graph.onnx_graphs.tensors import BOOL, INT64, Dim, Dims, Tensor
from nas_rlm.graph.rewriting.rewriter import Rewriter
from search_spaces.wording import counted


class OpenSizeError(ValueError):
    """A size that has to be known is open."""


def inline_constant_branch(normalizer: Rewriter, op: Op) -> list[Op] | None:
    """Return the operators of the branch that an If takes; None if its condition is not known.

    A branch whose operators do not fit the shapes of the inputs cannot run, so that the other one is taken.
    If both remain, they are normalized.

    Raises:
        ValueError: the condition depends on an open size.
    """
    if op.kind != "If":
        return None
    condition = normalizer.tensor(op, 0)
    value = None if condition is None else condition.array
    branches: list[FlatGraph] = [op.attributes["then_branch"], op.attributes["else_branch"]]
    if value is not None:
        return _inline(normalizer, op, branches[0 if bool(np.all(value)) else 1])
    if condition is not None and not _depends_on_data(normalizer, op.inputs[0]):
        raise OpenSizeError("the condition of If depends on a size that is open: give the shapes of inputs")
    valid = [b for b in branches if b.has_text_opset or _normalize_if_it_fits(normalizer, b)]
    return _inline(normalizer, op, valid[0]) if len(valid) == 1 else None


def _inline(normalizer: Rewriter, op: Op, branch: FlatGraph) -> list[Op]:
    """Return the operators of a branch in place of an If."""
    ops: list[Op] = []
    if branch.has_text_opset:
        ops = branch.ops
        normalizer.producers |= {v: inner for inner in ops for v in inner.outputs}
    else:
        for inner in branch.ops:
            ops += normalizer.read_op(inner, branch)
    if len(branch.outputs) < len(op.outputs):
        raise ValueError(f"a branch has {counted(len(branch.outputs), 'output')}: expected {len(op.outputs)}")
    for outer, inner_output in zip(op.outputs, branch.outputs, strict=False):
        normalizer.rename(outer, normalizer.resolve(inner_output))
    return ops


def _normalize_if_it_fits(normalizer: Rewriter, branch: FlatGraph) -> bool:
    """Normalize a branch; return False if its operators do not fit the shapes of their inputs."""
    renamed, copy = dict(normalizer.renamed), branch.copy()
    try:
        normalizer.normalize(copy)
    except (OpenSizeError, TimeLimitError):
        raise
    except ValueError:
        normalizer.renamed = renamed
        return False
    branch.replace(copy)
    return True


def _depends_on_data(normalizer: Rewriter, value: int | None) -> bool:
    """Return True if a value depends on the contents of an input, not on sizes alone."""
    stack, seen = [value], set()
    while stack:
        v = stack.pop()
        if v is None or v in seen or normalizer.tensors[v].is_static:
            continue
        seen.add(v)
        producer = normalizer.producers.get(v)
        if producer is None:
            return True
        if producer.kind not in ("Shape", "Size", "SequenceLength"):
            stack += producer.reads()
    return False


def infer_subgraphs(normalizer: Rewriter, op: Op) -> None:
    """Normalize the subgraphs of an operator, and record what is known of its outputs."""
    {"If": _infer_if, "Loop": _infer_loop, "Scan": _infer_scan, "SequenceMap": _infer_map}[op.kind](
        normalizer, op
    )


def _infer_if(normalizer: Rewriter, op: Op) -> None:
    branches = [op.attributes["then_branch"], op.attributes["else_branch"]]
    for branch in branches:
        if len(branch.outputs) != len(op.outputs):
            raise ValueError(
                f"a branch has {counted(len(branch.outputs), 'output')}: expected {len(op.outputs)}"
            )
        if not branch.has_text_opset:
            normalizer.normalize(branch)
    for k, v in enumerate(op.outputs):
        first, second = (normalizer.tensors[branch.outputs[k]] for branch in branches)
        normalizer.tensors[v] = Tensor(
            first.dtype, _merged(first.shape, second.shape), elements=first.elements
        )


def _merged(a: Dims | None, b: Dims | None) -> Dims | None:
    """Return a shape that fits both shapes."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple([x if x == y else None for x, y in zip(a, b, strict=True)])


def trip_count(normalizer: Rewriter, op: Op) -> int | None:
    """Return how often the body of a Loop or Scan runs; None if that is not known."""
    if op.kind == "Scan":
        num_states = len(op.inputs) - op.attributes["num_scan_inputs"]
        axes = op.attributes.get("scan_input_axes") or (0,)
        scanned = normalizer.tensor(op, num_states)
        shape = None if scanned is None else scanned.shape
        size = shape[axes[0]] if shape else None
        return size if type(size) is int else None
    if op.kind != "Loop":
        return None
    limit, condition = normalizer.tensor(op, 0), normalizer.tensor(op, 1)
    body = op.attributes["body"]
    if condition is not None and condition.array is not None and not np.all(condition.array):
        return 0
    stays = normalizer.tensors[body.outputs[0]].array
    ends = stays is not None and not np.all(stays)
    keeps_going = body.outputs[0] == body.inputs[1] or (stays is not None and not ends)
    starts = condition is None or condition.array is not None
    if not starts or not (keeps_going or ends):
        return None
    if limit is None:
        return 1 if ends else None
    if limit.array is None:
        return None
    times = max(0, int(limit.array.reshape(-1)[0]))
    return min(1, times) if ends else times


def _infer_loop(normalizer: Rewriter, op: Op) -> None:
    body, tensors = op.attributes["body"], normalizer.tensors
    carried = [tensors[v] for v in op.inputs[2:] if v is not None]
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) != 1 + len(op.outputs):
        raise ValueError("the body does not have the inputs and outputs of the loop")
    before = body.copy()
    shapes = [x.shape for x in carried]
    for _ in range(3):
        tensors[body.inputs[0]], tensors[body.inputs[1]] = Tensor(INT64, ()), Tensor(BOOL, ())
        for v, x, shape in zip(body.inputs[2:], carried, shapes, strict=True):
            tensors[v] = Tensor(x.dtype, shape, elements=x.elements)
        renamed = dict(normalizer.renamed)
        body.replace(before.copy())
        normalizer.normalize(body)
        results = [tensors[v].shape for v in body.outputs[1 : 1 + len(carried)]]
        merged = [_merged(a, b) for a, b in zip(shapes, results, strict=True)]
        if merged == shapes:
            break
        shapes = merged
        normalizer.renamed = renamed
    count = trip_count(normalizer, op)
    for k, v in enumerate(op.outputs):
        inner = tensors[body.outputs[1 + k]]
        if k < len(carried):
            tensors[v] = Tensor(inner.dtype, shapes[k], elements=inner.elements)
        else:
            tensors[v] = Tensor(inner.dtype, None if inner.shape is None else (count, *inner.shape))


def _infer_scan(normalizer: Rewriter, op: Op) -> None:
    body, tensors = op.attributes["body"], normalizer.tensors
    num_scans = op.attributes["num_scan_inputs"]
    num_states = len(op.inputs) - num_scans
    if not 0 < num_scans <= len(op.inputs) or len(body.inputs) != len(op.inputs):
        raise ValueError("the body does not have the inputs of the scan")
    if len(body.outputs) != len(op.outputs):
        raise ValueError("the body does not have the outputs of the scan")
    axes = op.attributes.get("scan_input_axes") or (0,) * num_scans
    for k, (v, outer) in enumerate(zip(body.inputs, op.inputs, strict=True)):
        x = tensors[outer]  # type: ignore[index]
        shape = x.shape
        if k >= num_states and shape is not None:
            axis = axes[k - num_states] % len(shape)
            shape = (*shape[:axis], *shape[axis + 1 :])
        tensors[v] = Tensor(x.dtype, shape)
    normalizer.normalize(body)
    count: Dim = trip_count(normalizer, op)
    output_axes = op.attributes.get("scan_output_axes") or (0,) * (len(op.outputs) - num_states)
    for k, v in enumerate(op.outputs):
        inner = tensors[body.outputs[k]]
        shape = inner.shape
        if k >= num_states and shape is not None:
            axis = output_axes[k - num_states] % (len(shape) + 1)
            shape = (*shape[:axis], count, *shape[axis:])
        tensors[v] = Tensor(inner.dtype, shape)


def _infer_map(normalizer: Rewriter, op: Op) -> None:
    body, tensors = op.attributes["body"], normalizer.tensors
    for v in body.inputs:
        tensors[v] = Tensor(tensors[v].dtype, None)
    normalizer.normalize(body)
    for v in op.outputs:
        tensors[v] = Tensor(-1, None)
