"""What networks cost: sums over their operators, of a function once for all its calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from nas_rlm.graph.operators import Body, Call, Operator

KINDS = ("convs", "pointwise", "depthwise", "pools")  # operators that mix positions or channels
COSTS = ("macs", "params", "activations", "sides", "roots", "logs")
MULTIPLYING = ("Conv", "Gemm", "MatMul")


def kind_of(op: Operator) -> int | None:
    """The position in KINDS; None for pointwise operators, sums and reshapes."""
    if op.kind in ("MaxPool", "AveragePool"):
        return KINDS.index("pools")
    if op.kind != "Conv" or not op.weights:
        return None
    shape = op.weights[0]
    if math.prod(shape[2:]) == 1:
        return KINDS.index("pointwise")
    return KINDS.index("depthwise" if shape[1] == 1 and op.group > 1 else "convs")


class Costs:
    """Sums over operators.

    Attributes:
        network: of all operators: multiply-accumulates, parameters, activations.
        kinds: of the operators of each kind, `COSTS`.
        layers: of those of one operator, kernel and side: number, activations, multiply-accumulates, roots.
        top: the longest side.
    """

    def __init__(self) -> None:
        self.network = [0.0] * 3
        self.kinds = [[0.0] * len(COSTS) for _ in KINDS]
        self.layers: dict[tuple[str, int], list[float]] = {}
        self.top = 0

    def count(self, op: Operator) -> None:
        """Add an operator."""
        sizes = [math.prod(shape) for shape in op.weights]
        learnt = sizes[:2] if op.kind == "BatchNormalization" else sizes  # the others are statistics
        macs, activations, kind = _macs(op), float(math.prod(op.shape)), kind_of(op)
        _add(self.network, (macs, float(sum(learnt)), activations))
        if kind is not None:
            height = float(op.shape[2]) if len(op.shape) > 2 else 0.0
            logs = math.log2(macs) if macs else 0.0
            _add(self.kinds[kind], (macs, float(sum(sizes)), activations, height, math.sqrt(macs), logs))
        if kind is not None or op.kind in MULTIPLYING:
            kernel = "x".join(map(str, op.weights[0][2:])) if op.kind == "Conv" and op.weights else ""
            side = _side(op)
            self.top = max(self.top, side if kind is not None else 0)
            key = f"{op.kind}{kernel}{'g' if op.group > 1 else ''}", side
            _add(self.layers.setdefault(key, [0.0] * 4), (1.0, activations, macs, math.sqrt(macs)))

    def add(self, others: Costs, times: int) -> None:
        """Add what has been counted elsewhere, so often."""
        _add(self.network, others.network, times)
        for own, other in zip(self.kinds, others.kinds, strict=True):
            _add(own, other, times)
        for key, other in others.layers.items():
            _add(self.layers.setdefault(key, [0.0] * 4), other, times)
        self.top = max(self.top, others.top)

    def totals(self) -> dict[str, float]:
        """The sums by name, layers apart."""
        found = dict(zip(("flops", "params", "activations"), self.network, strict=True))
        for kind, sums in zip(KINDS, self.kinds, strict=True):
            found |= {f"{kind}/{cost}": value for cost, value in zip(COSTS, sums, strict=True)}
        return found

    def by_layer(self) -> dict[str, float]:
        """What layers of one kernel at one stage cost: the time of a network is nearly a sum of it."""
        found: dict[str, float] = {}
        for (name, side), sums in self.layers.items():
            stage = f"@{round(math.log2(self.top / side))}" if self.top and side else ""
            for cost, value in zip(("number", "activations", "macs", "roots"), sums, strict=True):
                key = f"{name}{stage}:{cost}"
                found[key] = found.get(key, 0.0) + value
        return found


def _add(sums: list[float], others: Sequence[float], times: int = 1) -> None:
    for k, value in enumerate(others):
        sums[k] += value * times


def costs_of(body: Body) -> Costs:
    """What a network or a function costs, those that it calls among it."""
    costs = Costs()
    calls: Counter[Body] = Counter()
    for step in body.steps:
        if isinstance(step, Call):
            calls[step.body] += 1
        else:
            costs.count(step)
    for called, times in calls.items():
        costs.add(_of_function(called), times)
    return costs


_of_function = lru_cache(maxsize=1 << 12)(costs_of)  # networks are not kept, functions are


def _side(op: Operator) -> int:
    """The longer side of the images that an operator makes; 0 if it makes none."""
    return max(op.shape[2:], default=0) if len(op.shape) > 2 and op.kind != "MatMul" else 0


def _macs(op: Operator) -> float:
    """The multiply-accumulates of an operator."""
    if op.kind not in MULTIPLYING:
        return 0.0
    places = math.prod(op.shape[2:]) if op.kind == "Conv" else math.prod(op.shape[1:-1])
    return float(max(map(math.prod, op.weights), default=0) * places)
