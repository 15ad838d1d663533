"""Costs of a network, summed over its operators: multiply-accumulates, parameters and activations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from nas_rlm.graph.operators import Body, Call, Operator

OPERATOR_KINDS = ("convs", "pointwise", "depthwise", "pools")  # operators that mix positions or channels
COST_NAMES = ("macs", "params", "activations", "sides", "roots", "logs")
MULTIPLYING_OPERATORS = ("Conv", "Gemm", "MatMul")


def operator_kind(op: Operator) -> int | None:
    """Return an operator's index in OPERATOR_KINDS; None for any other one, such as a sum or linear layer."""
    if op.kind in ("MaxPool", "AveragePool"):
        return OPERATOR_KINDS.index("pools")
    if op.kind != "Conv" or not op.weights:
        return None
    shape = op.weights[0]
    if math.prod(shape[2:]) == 1:
        return OPERATOR_KINDS.index("pointwise")
    return OPERATOR_KINDS.index("depthwise" if shape[1] == 1 and op.group > 1 else "convs")


class Costs:
    """Running sums of costs over operators, for one image.

    Attributes:
        network_sums: multiply-accumulates, parameters and activations of all operators.
        kind_sums: for each kind of OPERATOR_KINDS, the costs of COST_NAMES.
        layer_sums: for each layer type and image side in pixels, the number of layers, their activations,
            multiply-accumulates and square roots of multiply-accumulates.
        max_side: longest image side in pixels.
    """

    def __init__(self) -> None:
        self.network_sums = [0.0] * 3
        self.kind_sums = [[0.0] * len(COST_NAMES) for _ in OPERATOR_KINDS]
        self.layer_sums: dict[tuple[str, int], list[float]] = {}
        self.max_side = 0

    def add_operator(self, op: Operator) -> None:
        """Add the costs of one operator."""
        sizes = [math.prod(shape) for shape in op.weights]
        trainable = (
            sizes[:2] if op.kind == "BatchNormalization" else sizes
        )  # the others are running statistics
        macs, activations, kind = _macs(op), float(math.prod(op.shape)), operator_kind(op)
        _add(self.network_sums, (macs, float(sum(trainable)), activations))
        if kind is not None:
            height = float(op.shape[2]) if len(op.shape) > 2 else 0.0
            logs = math.log2(macs) if macs else 0.0
            _add(self.kind_sums[kind], (macs, float(sum(sizes)), activations, height, math.sqrt(macs), logs))
        if kind is not None or op.kind in MULTIPLYING_OPERATORS:
            kernel = "x".join(map(str, op.weights[0][2:])) if op.kind == "Conv" and op.weights else ""
            side = _image_side(op)
            self.max_side = max(self.max_side, side if kind is not None else 0)
            key = f"{op.kind}{kernel}{'g' if op.group > 1 else ''}", side
            _add(self.layer_sums.setdefault(key, [0.0] * 4), (1.0, activations, macs, math.sqrt(macs)))

    def add_costs(self, costs: Costs, times: int) -> None:
        """Add other sums, multiplied by `times`."""
        _add(self.network_sums, costs.network_sums, times)
        for sums, terms in zip(self.kind_sums, costs.kind_sums, strict=True):
            _add(sums, terms, times)
        for key, terms in costs.layer_sums.items():
            _add(self.layer_sums.setdefault(key, [0.0] * 4), terms, times)
        self.max_side = max(self.max_side, costs.max_side)

    def totals(self) -> dict[str, float]:
        """Return the network's `flops`, `params` and `activations`, and the costs `KIND/COST` of each kind.

        KIND is one of OPERATOR_KINDS and COST one of COST_NAMES. `flops` and `macs` are multiply-accumulates,
        `sides` sums the heights of outputs in pixels, `roots` and `logs` sum the square roots and binary
        logarithms of the operators' multiply-accumulates.
        """
        totals = dict(zip(("flops", "params", "activations"), self.network_sums, strict=True))
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


def _add(sums: list[float], terms: Sequence[float], times: int = 1) -> None:
    """Add `times` times the terms to the sums, in place."""
    for k, value in enumerate(terms):
        sums[k] += value * times


def compute_costs(body: Body) -> Costs:
    """Return the costs of a network or function, including the functions that it calls."""
    costs = Costs()
    num_calls: Counter[Body] = Counter()
    for step in body.steps:
        if isinstance(step, Call):
            num_calls[step.body] += 1
        else:
            costs.add_operator(step)
    for function, times in num_calls.items():
        costs.add_costs(_function_costs(function), times)
    return costs


_function_costs = lru_cache(maxsize=1 << 12)(
    compute_costs
)  # functions repeat between networks, networks do not


def _image_side(op: Operator) -> int:
    """Return the longer image side of the output in pixels; 0 if the output is no image."""
    return max(op.shape[2:], default=0) if len(op.shape) > 2 and op.kind != "MatMul" else 0


def _macs(op: Operator) -> float:
    """Return the multiply-accumulates of an operator."""
    if op.kind not in MULTIPLYING_OPERATORS:
        return 0.0
    positions = math.prod(op.shape[2:]) if op.kind == "Conv" else math.prod(op.shape[1:-1])
    return float(max(map(math.prod, op.weights), default=0) * positions)
