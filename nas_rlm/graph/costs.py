"""Costs of a network, summed over its operators: multiply-accumulates, parameters and activations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from nas_rlm.graph.multiplications import multiply_accumulates, table_size
from nas_rlm.graph.onnx_graphs.flat_graph import CONTROL_FLOW, FlatGraph, Op
from nas_rlm.graph.onnx_graphs.quantization import INTEGER_WEIGHTS, QUANTIZATION_PARAMETERS
from nas_rlm.graph.onnx_graphs.shapes import OperatorCall
from nas_rlm.graph.onnx_graphs.tensors import FLOATS, Tensor, num_elements
from nas_rlm.graph.operators import Body, Call, Operator, OperatorCosts, image_side
from nas_rlm.graph.rewriting.control_flow import trip_count
from nas_rlm.graph.rewriting.normalization import Normalizer

OPERATOR_KINDS = ("convs", "pointwise", "depthwise", "pools")  # operators that mix positions or channels
MAX_COST = 10**300  # of nested loops; floats are not much larger
COST_NAMES = ("macs", "params", "activations", "sides", "roots", "logs")


def operator_kind(op: Operator) -> int | None:
    """Return an operator's index in OPERATOR_KINDS; None for any other one, such as a sum or linear layer."""
    if op.kind in ("MaxPool", "AveragePool"):
        return OPERATOR_KINDS.index("pools")
    shape = op.kernel
    if not shape or op.kind.startswith("ConvTranspose"):
        return None
    if math.prod(shape[2:]) == 1:
        return OPERATOR_KINDS.index("pointwise")
    return OPERATOR_KINDS.index("depthwise" if shape[1] == 1 and op.group > 1 else "convs")


class Costs:
    """Running sums of costs over operators, for all inputs of the batch.

    Args:
        scale: factor of the multiply-accumulates and activations in totals, such as 1/8 for those of one
            input of a batch of 8.

    Attributes:
        network_sums: multiply-accumulates, parameters and activations of all operators, as exact integers.
        shared: elements of each weight that several operators read.
        problem: reason why the multiply-accumulates are not known; empty if they are.
        kind_sums: for each kind of OPERATOR_KINDS, the costs of COST_NAMES.
        layer_sums: for each layer type and image side in pixels, the number of layers, their activations,
            multiply-accumulates and square roots of multiply-accumulates.
        max_side: longest image side in pixels.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.network_sums = [0] * 3
        self.shared: dict[str, int] = {}
        self.problem = ""
        self.kind_sums = [[0.0] * len(COST_NAMES) for _ in OPERATOR_KINDS]
        self.layer_sums: dict[tuple[str, int], list[float]] = {}
        self.max_side = 0

    def add_operator(self, op: Operator) -> None:
        """Add the costs of one operator."""
        costs, kind = op.costs, operator_kind(op)
        macs, activations = self.scale * float(costs.macs or 0), self.scale * float(costs.activations)
        if costs.macs is None:
            self.problem = self.problem or costs.problem
        self.shared |= dict(costs.shared)
        _add(self.network_sums, (costs.macs or 0, costs.params, costs.activations))
        if kind is not None:
            height = float(op.shape[2]) if len(op.shape) > 2 else 0.0
            logs = math.log2(macs) if macs else 0.0
            params = float(costs.params + sum(n for _, n in costs.shared))
            _add(self.kind_sums[kind], (macs, params, activations, height, math.sqrt(macs), logs))
        if kind is not None or macs:
            kernel = "x".join(map(str, op.kernel[2:]))
            side = image_side(op)
            self.max_side = max(self.max_side, side if kind is not None else 0)
            key = f"{'Conv' if kernel else op.kind}{kernel}{'g' if op.group > 1 else ''}", side
            _add(self.layer_sums.setdefault(key, [0.0] * 4), (1.0, activations, macs, math.sqrt(macs)))

    def add_costs(self, costs: Costs, times: int) -> None:
        """Add other sums, multiplied by `times`."""
        self.problem = self.problem or costs.problem
        self.shared |= costs.shared
        _add(self.network_sums, costs.network_sums, times)
        for sums, terms in zip(self.kind_sums, costs.kind_sums, strict=True):
            _add(sums, terms, times)
        for key, terms in costs.layer_sums.items():
            _add(self.layer_sums.setdefault(key, [0.0] * 4), terms, times)
        self.max_side = max(self.max_side, costs.max_side)

    def sums(self) -> tuple[int | None, int, int]:
        """Return multiply-accumulates, None if they are not known, parameters and activations, unscaled."""
        macs, params, activations = self.network_sums
        return None if self.problem else macs, params + sum(self.shared.values()), activations

    def totals(self) -> dict[str, float]:
        """Return the network's `flops`, `params` and `activations`, and the costs `KIND/COST` of each kind.

        KIND is one of OPERATOR_KINDS and COST one of COST_NAMES. `flops` and `macs` are multiply-accumulates,
        `sides` sums the heights of outputs in pixels, `roots` and `logs` sum the square roots and binary
        logarithms of the operators' multiply-accumulates.

        Raises:
            ValueError: the multiply-accumulates are not known, because a size is open or depends on data.
        """
        if self.problem:
            raise ValueError(self.problem)
        macs, params, activations = self.sums()
        totals = {
            "flops": self.scale * float(macs or 0),
            "params": float(params),
            "activations": self.scale * float(activations),
        }
        for kind, sums in zip(OPERATOR_KINDS, self.kind_sums, strict=True):
            totals |= {f"{kind}/{cost}": value for cost, value in zip(COST_NAMES, sums, strict=True)}
        return totals

    def layer_totals(self) -> dict[str, float]:
        """Return the costs `LAYER@STAGE:COST` of layers of one operator, kernel and stage.

        An example is `Conv3x3@1:macs`. The stage is the number of times that the image side was halved. COST
        is `number`, `activations`, `macs` or `roots`, see `totals`. A network's latency is nearly a linear
        function of these costs.
        """
        totals: dict[str, float] = {}
        for (name, side), sums in self.layer_sums.items():
            stage = f"@{round(math.log2(self.max_side / side))}" if self.max_side and side else ""
            for cost, value in zip(("number", "activations", "macs", "roots"), sums, strict=True):
                key = f"{name}{stage}:{cost}"
                totals[key] = totals.get(key, 0.0) + value
        return totals


_Number = TypeVar("_Number", int, float)


def _add(sums: list[_Number], terms: Sequence[_Number], times: int = 1) -> None:
    """Add `times` times the terms to the sums, in place."""
    for k, value in enumerate(terms):
        sums[k] += value * times


def compute_costs(body: Body, scale: float = 1.0) -> Costs:
    """Return the costs of a network or function, including the functions that it calls.

    Args:
        body: the network or function.
        scale: factor of the multiply-accumulates and activations in totals, see `Costs`.
    """
    costs = Costs(scale)
    num_calls: Counter[Body] = Counter()
    for step in body.steps:
        if isinstance(step, Call):
            num_calls[step.body] += 1
        else:
            costs.add_operator(step)
    for function, times in num_calls.items():
        costs.add_costs(_function_costs(function, scale), times)
    return costs


_function_costs = lru_cache(maxsize=1 << 12)(
    compute_costs
)  # functions repeat between networks, networks do not


def operator_costs(call: OperatorCall, output: Tensor, weights: Mapping[int, str]) -> OperatorCosts:
    """Return the costs of an operator.

    Args:
        call: the operator with what is known of its inputs.
        output: what is known of its first output.
        weights: for each input that is a weight its position, and a text such as `3:4096`: a number that is
            the same for all operators that share the weight, and the number of learnt parameters if that is
            not its size; empty for an ordinary weight.
    """
    params, shared = 0, []
    parameters = QUANTIZATION_PARAMETERS.get(call.kind, ())
    integers = INTEGER_WEIGHTS.get(call.kind, ())
    for position, name in weights.items():
        weight = call.inputs[position]
        assert weight is not None
        size = num_elements(weight.shape) or 0
        if position in parameters or (weight.dtype not in FLOATS and position not in integers):
            continue
        if call.kind == "BatchNormalization" and position > 2:
            continue  # running statistics
        if position == 1 and call.kind in _PACKED:
            size = call.attributes["K"] * call.attributes["N"]
        tie, _, learnt = name.partition(":")
        size = int(learnt or 0) or size
        if tie:
            shared.append((tie, size))
        else:
            params += size
    problem, macs = "", None
    try:
        params += sum([table_size(call, name) for name in _tables(call.kind)])
        macs = multiply_accumulates(call, output)
        if macs is None:
            open_sizes = sorted(
                {d for x in call.inputs if x is not None for d in x.shape or () if type(d) is str}
            )
            reason = (
                f"the open sizes {', '.join(open_sizes)}: give the shapes of the inputs"
                if open_sizes
                else "a size that is known only when the network runs"
            )
            problem = f"the multiply-accumulates of {call.kind} depend on {reason}"
    except ValueError as error:
        problem = str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        problem = f"{call.kind} has attributes or inputs of a wrong type or number: {error!r}"
    return OperatorCosts(macs, params, tuple(shared), num_elements(output.shape) or 0, problem)


def _tables(kind: str) -> tuple[str, ...]:
    """Return the names of the attributes that hold what an operator of ai.onnx.ml has learnt."""
    return next((names for model, names in _TABLES.items() if f"ai.onnx.ml.{model}" in kind), ())


_TABLES = {
    "Linear": ("coefficients", "intercepts"),
    "SVM": ("support_vectors", "coefficients", "rho", "prob_a", "prob_b"),
    "TreeEnsemble": ("nodes_values", "target_weights", "class_weights"),
    "Scaler": ("offset", "scale"),
}
_PACKED = ("com.microsoft.MatMulNBits",)  # several weights share a byte


def graph_costs(normal: Normalizer, graph: FlatGraph, weights: Mapping[int, str]) -> OperatorCosts:
    """Return the costs of a graph, including those of its subgraphs.

    Args:
        normal: the normalized network.
        graph: the graph, or one of its subgraphs.
        weights: names of the weights by value, see `operator_costs`.
    """
    parts = [_op_costs(normal, op, weights) for op in graph.ops]
    return _total(parts)


def _total(parts: Sequence[OperatorCosts]) -> OperatorCosts:
    """Return the sum of costs."""
    problem = next((p.problem for p in parts if p.macs is None), "")
    macs = None if problem else sum([p.macs or 0 for p in parts])
    shared = dict([entry for p in parts for entry in p.shared])
    params, activations = sum([p.params for p in parts]), sum([p.activations for p in parts])
    return OperatorCosts(macs, params, tuple(shared.items()), activations, problem)


def _op_costs(normal: Normalizer, op: Op, weights: Mapping[int, str]) -> OperatorCosts:
    """Return the costs of an operator of a flat graph."""
    inputs = [None if v is None else normal.tensors[v] for v in op.inputs]
    call = OperatorCall(op.kind, op.attributes, inputs, len(op.outputs))
    own = {k: weights[v] for k, v in enumerate(op.inputs) if v is not None and v in weights}
    if op.kind not in CONTROL_FLOW:
        return operator_costs(call, normal.tensors[op.outputs[0]], own)
    parts = [graph_costs(normal, graph, weights) for _, graph in op.subgraphs]
    if op.kind == "If":
        macs = {p.macs for p in parts}
        total = _total(parts)
        if len(macs) == 1 and None not in macs:
            return total._replace(macs=macs.pop(), activations=max(p.activations for p in parts))
        counts = " and ".join(f"{m:,}" for m in sorted(m for m in macs if m is not None))
        reason = total.problem or (
            f"the branches of If have {counts} multiply-accumulates, and data decide which one runs"
        )
        return total._replace(macs=None, problem=reason)
    body = _total([*parts, operator_costs(call, Tensor(0, None), own)])
    times = trip_count(normal, op)
    if times is None and body.macs == 0:
        return body
    if times is None:
        return body._replace(macs=None, problem=f"data decide how often the body of {op.kind} runs")
    macs_of_all = None if body.macs is None else body.macs * times
    activations = body.activations * times
    if max(macs_of_all or 0, activations) > MAX_COST:
        problem = f"the body of {op.kind} runs so often that its costs exceed 10^300"
        return body._replace(macs=None, activations=min(activations, MAX_COST), problem=problem)
    return body._replace(macs=macs_of_all, activations=activations)
