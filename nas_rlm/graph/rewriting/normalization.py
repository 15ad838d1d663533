"""Normalization of models to the form that the builders of `search_spaces` write.

Exporters differ in their operator sets and write the same computation in different ways. Normalization drops
the values of weights, converts operators to one operator set, infers shapes, folds constants and control flow
with a known condition, and applies rewrite rules: a mean over all image positions becomes GlobalAveragePool,
Dropout is removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx

from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits, TimeLimitError, check_time
from nas_rlm.graph.onnx_graphs.evaluation import evaluate
from nas_rlm.graph.onnx_graphs.flat_graph import CONTROL_FLOW, MAX_OPSET, FlatGraph, Network, Op, read_network
from nas_rlm.graph.onnx_graphs.operator_checks import check_operator, schema_of
from nas_rlm.graph.onnx_graphs.shapes import SHAPE_FUNCTIONS, OperatorCall
from nas_rlm.graph.onnx_graphs.stored_tensors import constant_value
from nas_rlm.graph.onnx_graphs.tensors import (
    COMPUTED,
    MAX_FOLDED_ELEMENTS,
    NO_SOURCES,
    STORED,
    Tensor,
    check_shape,
    constant,
    num_elements,
)
from nas_rlm.graph.rewriting.control_flow import OpenSizeError, infer_subgraphs, inline_constant_branch
from nas_rlm.graph.rewriting.operator_versions import upgrade
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules import RULES

_RANDOM = {
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}
# Operators whose result on weights is no weight, since they decide the precision.
_KEPT = {"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"}
MAX_PASSES = 32


def normalize_model(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None, limits: Limits = DEFAULT_LIMITS
) -> Normalizer:
    """Return the normal form of a model: its graph, and what is known of its values.

    Args:
        model: the model; it is not changed.
        shapes: shapes of inputs with open sizes, by name.
        limits: limits on the number and depth of nodes.

    Raises:
        ValueError: the model is not valid, or exceeds a limit.
    """
    return Normalizer(read_network(model, shapes, limits))


class Normalizer(Rewriter):
    """The normal form of a network: `graph`, and what is known of its values in `tensors`.

    Args:
        network: the network.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.normalize(self.graph)

    def normalize(self, graph: FlatGraph) -> None:
        """Bring a graph into its normal form, in place."""
        outer = self.readers, self.producers
        self.readers, self.producers = Counter(), {}
        ops: list[Op] = []
        for op in graph.ops:
            check_time()
            ops += self.read_op(op, graph)
        graph.ops, graph.has_text_opset = ops, True
        for _ in range(MAX_PASSES):
            check_time()
            if not self._apply_rules(graph):
                break
        self.remove_dead_code(graph)
        self.readers, self.producers = outer

    def _apply_rules(self, graph: FlatGraph) -> bool:
        """Apply the rewrite rules once to each operator; return True if anything changed."""
        self._count_readers(graph)
        changed, ops = False, []
        for op in graph.ops:
            op = self._with_new_names(op)
            rule = RULES.get(op.kind)
            replacement = rule(self, op) if rule is not None else None
            if replacement is None and op.inputs and self._reads_static(op.inputs[0]):
                replacement = self._folded(op)
            if replacement is None:
                ops.append(op)
                continue
            changed = True
            for new in replacement:
                kept = self.infer(new)
                self.producers |= {v: k for k in kept for v in k.outputs}
                ops += kept
        graph.ops = ops
        return changed

    def _folded(self, op: Op) -> list[Op] | None:
        """Return what replaces an operator on a constant or weight, which another rule may have created.

        Bodies of loops are not inferred anew for each pass, since nested ones would take exponential time.
        """
        if op.kind in CONTROL_FLOW:
            return inline_constant_branch(self, op) if op.kind == "If" else None
        return None if self.infer(op) else []

    def _reads_static(self, value: int | None) -> bool:
        """Return True for a constant or weight, which another rule may have created."""
        return value is not None and self.tensors[value].is_static

    def _count_readers(self, graph: FlatGraph) -> None:
        """Remove dead code, and record the readers and producers of the values of a graph."""
        self.remove_dead_code(graph)
        readers = Counter(graph.outputs)
        for op in graph.ops:
            for v in op.inputs if not op.attributes else op.reads():
                if v is not None:
                    readers[v] += 1
        self.readers = readers
        self.producers = {v: op for op in graph.ops for v in op.outputs}

    def remove_dead_code(self, graph: FlatGraph) -> None:
        """Remove operators that no output depends on, and unused optional outputs."""
        graph.ops = [self._with_new_names(op) for op in graph.ops]
        graph.outputs = [self.resolve(v) for v in graph.outputs]
        needed, live = set(graph.outputs), []
        for op in reversed(graph.ops):
            if needed.isdisjoint(op.outputs):
                continue
            needed.update(op.reads())
            minimum = _min_outputs(op.kind)
            while len(op.outputs) > minimum and op.outputs[-1] not in needed:
                op = Op(op.kind, op.attributes, op.inputs, op.outputs[:-1])
            live.append(op)
        graph.ops = live[::-1]

    def _with_new_names(self, op: Op) -> Op:
        """Return an operator that reads the replacements of its inputs."""
        renamed = self.renamed
        if not renamed:
            return op
        for _, subgraph in op.subgraphs if op.kind in CONTROL_FLOW else ():
            subgraph.ops = [self._with_new_names(inner) for inner in subgraph.ops]
            subgraph.outputs = [self.resolve(v) for v in subgraph.outputs]
        for v in op.inputs:
            if v in renamed:
                inputs = tuple([v if v is None else self.resolve(v) for v in op.inputs])
                return Op(op.kind, op.attributes, inputs, op.outputs, op.opset)
        return op

    def read_op(self, op: Op, graph: FlatGraph) -> list[Op]:
        """Return the operators that replace an operator of a graph, and record their producers."""
        op = self._with_new_names(op)
        ops = self.infer(op) if graph.has_text_opset else self.inferred(op)
        self.producers |= {v: k for k in ops for v in k.outputs}
        return ops

    def inferred(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator of the file, and record what their outputs are."""
        kind = op.kind
        try:
            if kind == "Constant":
                self.tensors[op.outputs[0]] = tensor = constant_value(op.attributes)
                if tensor.may_be_learnt:
                    tensor.sources = frozenset((op.outputs[0],))
                return []
            if kind == "Identity" and op.inputs:
                self.rename(op.outputs[0], op.inputs[0])
                return []
            is_own = "." not in kind
            if is_own:
                opset = op.opset or self.opset
                check_operator(op, opset)
                upgraded = upgrade(self, op, opset)
            else:
                upgraded = [op]
            return [kept for o in upgraded for kept in self.infer(o)]
        except (OpenSizeError, TimeLimitError):
            raise
        except ValueError as error:
            if str(error).startswith(f"{kind}: "):
                raise
            raise ValueError(f"{kind}: {error}") from None
        except (KeyError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"{kind} has attributes or inputs of a wrong type or number: {error!r}"
            ) from None

    def infer(self, op: Op) -> list[Op]:
        """Record what is known of the outputs of an operator; return it, or nothing if it was folded."""
        tensors = self.tensors
        inputs = [None if v is None else tensors[v] for v in op.inputs]
        if op.kind in CONTROL_FLOW:
            inlined = inline_constant_branch(self, op)
            if inlined is not None:
                return inlined
            infer_subgraphs(self, op)
            return [op]
        function = SHAPE_FUNCTIONS.get(op.kind)
        if op.subgraphs:
            raise ValueError("an operator with a subgraph: expected If, Loop, Scan or SequenceMap")
        if function is None:
            for v in op.outputs:
                tensors[v] = Tensor(0, None)
            return [op]
        found = function(OperatorCall(op.kind, op.attributes, inputs, len(op.outputs)))
        if len(found) < len(op.outputs):
            found = [*found, *[Tensor(0, None)] * (len(op.outputs) - len(found))]
        for v, tensor in zip(op.outputs, found, strict=False):
            if tensor.shape is not None:
                check_shape(tensor.shape, "the output")
            tensors[v] = tensor
        return [] if self._fold(op, inputs) else [op]

    def _fold(self, op: Op, inputs: list[Tensor | None]) -> bool:
        """Replace the outputs of an operator on constants or weights; return False for others."""
        kind = op.kind
        first = self.tensors[op.outputs[0]]
        if first.sizes is not None:
            sizes = first.sizes
            for d in sizes:
                if type(d) is not int:
                    break
            else:
                array = np.array(sizes, dtype=np.int32 if first.dtype == 6 else np.int64)
                self.tensors[op.outputs[0]] = constant(
                    array.reshape(first.known_shape or () if array.size else (0,))
                )
                return True
        for x in inputs:
            if x is not None and not x.is_static:
                return False
        if kind in _RANDOM or kind in _KEPT or "." in kind:
            return False
        outputs = [self.tensors[v] for v in op.outputs]
        sizes_of = [num_elements(x.shape) for x in outputs]
        if all(n is not None and n <= MAX_FOLDED_ELEMENTS for n in sizes_of) and all(
            x is None or x.is_constant for x in inputs
        ):
            values = evaluate(kind, op.attributes, inputs, len(op.outputs))
            if values is not None and all(a.size <= MAX_FOLDED_ELEMENTS for a in values):
                origin, sources = _origin(inputs)
                for v, array in zip(op.outputs, values, strict=False):
                    self.tensors[v] = constant(array, origin)
                    self.tensors[v].sources = sources
                return True
        if any(n is None for n in sizes_of) or any(x.dtype <= 0 for x in outputs) or not op.inputs:
            return False
        origin, sources = _origin(inputs)
        for v, x in zip(op.outputs, outputs, strict=True):
            self.tensors[v] = Tensor(x.dtype, x.shape, origin=origin, sources=sources)
        return True


def _origin(inputs: Sequence[Tensor | None]) -> tuple[int, frozenset[int]]:
    """Return the origin and the sources of the result of an operator on static tensors."""
    learnt = [x for x in inputs if x is not None and x.may_be_learnt and num_elements(x.shape) != 1]
    sources = learnt[0].sources if learnt else NO_SOURCES
    return STORED if learnt else COMPUTED, sources.union(*[x.sources for x in learnt[1:]])


@lru_cache(maxsize=1024)
def _min_outputs(kind: str) -> int:
    """Return how many outputs an operator always has."""
    if kind in ("Split", *CONTROL_FLOW) or "." in kind:
        return 1 << 30
    schema = schema_of(kind, MAX_OPSET)
    return 1 << 30 if schema is None else max(1, schema.min_outputs)
