"""Numbers that can be counted in any network: exact, free and without end, for a model to learn reading from.

A model that has learnt to count what lies on the paths of a network needs few trained networks to learn what
makes them accurate, and one that knows the costs of each kind of operator few measured ones to learn a device
(section 4.3 of the paper pretrains on FLOPs alone).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

import search_spaces
from nas_rlm.data.tables import Row, Table, remembered
from search_spaces import SearchSpace
from search_spaces.graph import Graph
from search_spaces.nodes import Constant, Op, Value, Weight

KINDS = ("convs", "pointwise", "depthwise", "pools")  # operators that mix positions or channels
LAYERS = (*KINDS, "layers")  # the last counts them all
COSTS = ("macs", "params", "activations", "sides", "roots", "logs")
VERSION = 2  # raised when the metrics change, so that remembered ones are counted again
MEETINGS = {"Concat": "joins", "Add": "sums"}  # operators in which several values meet
_ANY = len(KINDS)


def metrics(space: SearchSpace[Any], architecture: Any, chains: int = 0) -> dict[str, float]:
    """What can be counted in a network.

    >>> import search_spaces
    >>> space = search_spaces.get("nasbench101")
    >>> cell = space.parse('{"adjacency": "010001000", "ops": ["input", "conv3x3-bn-relu", "output"]}')
    >>> metrics(space, cell)["convs/mean"]
    10.0

    Operators that a product with zero cuts off from the input or the output count for costs alone.

    Args:
        space: of the architecture.
        architecture: of the space.
        chains: count chains of up to so many operators as well.

    Returns:
        `flops` (multiply-accumulates), `params`, `activations` (values that are computed for one image); for
        each kind of operator `KIND/macs`, `KIND/params`, `KIND/activations`, `KIND/sides` (of its outputs),
        and the sums of the square roots and of the binary logarithms of each operator's
        multiply-accumulates, `KIND/roots` and `KIND/logs`, since the time that an operator takes grows more
        slowly than its work; for each kind, and for `layers` of any kind, its number `KIND`, and over the
        paths from input to output `KIND/mean`, `KIND/std`, `KIND/least` and `KIND/most`; `paths`, the
        logarithm to base 2 of their number; and `KIND/KIND`, how often one is followed by the other with only
        pointwise operators between. A network without a path has none of the numbers over paths. A chain's
        name has its operators, joins (concatenations) and sums among them, as in `convs-joins-pools`: each
        operator counts the chains that end in it, as many as it has inputs.
    """
    graph = Graph((1, *space.shape(architecture)))
    out = space.write(graph, architecture)
    ops = list(graph.ops())
    live = _live(ops, graph.input, out)
    found = {"flops": float(graph.macs), "params": float(graph.params), **_costs(ops)}
    paths = {graph.input.id: _Paths.start()}
    before: dict[int, Counter[int]] = {graph.input.id: Counter()}
    counts: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for o in ops:
        if o.output.id not in live or _is_zero(o):
            continue
        read = [a.id for a in o.arguments if isinstance(a, Value) and a.id in live]
        here = _Paths.joined([paths[v] for v in read])
        last: Counter[int] = sum((before[v] for v in read), Counter())
        kind = _kind(o)
        if kind is not None:
            here = here.through(kind)
            counts[kind] += 1
            pairs.update({(k, kind): n for k, n in last.items()})
            last = Counter({kind: 1})
        paths[o.output.id], before[o.output.id] = here, last
    if out.id not in paths:
        return found
    counts[_ANY] = counts.total()
    end = paths[out.id]
    found["paths"] = end.number / math.log(2)
    for k, name in enumerate(LAYERS):
        found[name] = float(counts[k])
        found[f"{name}/mean"], found[f"{name}/std"] = end.mean[k], math.sqrt(end.variance[k])
        found[f"{name}/least"], found[f"{name}/most"] = end.least[k], end.most[k]
    for j, first in enumerate(KINDS):
        for k, second in enumerate(KINDS):
            found[f"{first}/{second}"] = float(pairs[j, k])
    return found | _chains([o for o in ops if o.output.id in paths], graph.input, chains)


def table(space_name: str, networks: int, seed: int = 0, chains: int = 0) -> Table:
    """Random networks of a space with their metrics, less those that are the same in all of them.

    Long tables are remembered on disk.

    Args:
        space_name: of the space.
        networks: different ones, by the text of their notation.
        seed: of the draw.
        chains: as for `metrics`.
    """
    space, rng = search_spaces.get(space_name), np.random.default_rng(seed)
    if space.size and networks > space.size // 2:
        raise ValueError(f"{networks:,} networks of {space_name}: expected at most half of {space.size:,}")
    drawn: dict[str, Any] = {}
    while len(drawn) < networks:
        architecture = space.sample(rng)
        drawn[str(architecture)] = architecture
    known = remembered(
        "metrics",
        (VERSION, space_name, networks, seed, chains),
        networks,
        lambda: [json.dumps(found) for found in counted(space, list(drawn.values()), chains)],
    )
    all_found: list[dict[str, float]] = [json.loads(line) for line in known]
    values: dict[str, set[float]] = {}
    for found in all_found:
        for name, value in found.items():
            values.setdefault(name, set()).add(value)
    rows = [
        Row(space_name, a, {k: v for k, v in found.items() if len(values[k]) > 1})
        for a, found in zip(drawn, all_found, strict=True)
    ]
    return Table(space_name, rows)


def counted(space: SearchSpace[Any], architectures: Sequence[Any], chains: int = 0) -> list[dict[str, float]]:
    """The metrics of many architectures of a space; a bar is shown where it takes long."""
    bar = tqdm(architectures, f"metrics of {space.name}", unit="net", delay=2)
    return [metrics(space, a, chains) for a in bar]


def _costs(ops: Sequence[Op]) -> dict[str, float]:
    """Costs of all operators together, and of each kind."""
    found = dict.fromkeys(("activations", *(f"{kind}/{cost}" for kind in KINDS for cost in COSTS)), 0.0)
    for op in ops:
        places = max(1, op.output.side * op.output.width)
        found["activations"] += op.output.channels * places
        position = _kind(op)
        if position is None:
            continue
        weights = [math.prod(a.shape) for a in op.arguments if isinstance(a, Weight)]
        macs = float(max(weights, default=0) * places)
        of_op = {
            "macs": macs,
            "params": float(sum(weights)),
            "activations": float(op.output.channels * places),
            "sides": float(op.output.side),
            "roots": math.sqrt(macs),
            "logs": math.log2(macs) if macs else 0.0,
        }
        for cost, value in of_op.items():
            found[f"{KINDS[position]}/{cost}"] += value
    return found


def _chains(ops: Sequence[Op], first: Value, longest: int) -> dict[str, float]:
    """How often operators follow each other, and the number of joins and sums."""
    found: defaultdict[str, float] = defaultdict(float)
    ends: dict[int, defaultdict[tuple[str, ...], float]] = {first.id: defaultdict(float, {(): 1.0})}
    for op in ops:
        arriving: defaultdict[tuple[str, ...], float] = defaultdict(float)
        read = [a.id for a in op.arguments if isinstance(a, Value) and a.id in ends]
        for value in read:
            for chain, number in ends[value].items():
                arriving[chain] += number
        kind = _kind(op)
        name = KINDS[kind] if kind is not None else MEETINGS.get(op.kind) if len(read) > 1 else None
        if name is None or longest < 1:
            ends[op.output.id] = arriving
            continue
        found[name] += 1
        passed: defaultdict[tuple[str, ...], float] = defaultdict(float)
        total = math.fsum(arriving.values())
        for chain, number in arriving.items():
            longer = (*chain, name)
            for n in range(2, len(longer) + 1):
                found["-".join(longer[-n:])] += number
            passed[longer[max(0, len(longer) - longest + 1) :]] += number / total
        ends[op.output.id] = passed
    return dict(found)


@dataclass(frozen=True, slots=True)
class _Paths:
    """The paths from the input to a value: the logarithm of their number, and what lies on them by kind."""

    number: float
    mean: tuple[float, ...]
    variance: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]

    @classmethod
    def start(cls) -> _Paths:
        nothing = (0.0,) * len(LAYERS)
        return cls(0.0, nothing, nothing, nothing, nothing)

    @classmethod
    def joined(cls, parts: Sequence[_Paths]) -> _Paths:
        """The paths that come from any of several values."""
        if len(parts) == 1:
            return parts[0]
        top = max(p.number for p in parts)
        shares = [math.exp(p.number - top) for p in parts]
        total = math.fsum(shares)
        shares = [s / total for s in shares]
        mean = tuple(_weighted(shares, column) for column in zip(*(p.mean for p in parts), strict=True))
        spread = zip(mean, *(zip(p.mean, p.variance, strict=True) for p in parts), strict=True)
        variance = tuple(
            _weighted(shares, [v + (m - middle) ** 2 for m, v in own]) for middle, *own in spread
        )
        least = tuple(map(min, zip(*(p.least for p in parts), strict=True)))
        most = tuple(map(max, zip(*(p.most for p in parts), strict=True)))
        return cls(top + math.log(total), mean, variance, least, most)

    def through(self, kind: int) -> _Paths:
        """The same paths, made longer by an operator."""

        def longer(counts: tuple[float, ...]) -> tuple[float, ...]:
            return tuple([c + (k in (kind, _ANY)) for k, c in enumerate(counts)])

        return _Paths(self.number, longer(self.mean), self.variance, longer(self.least), longer(self.most))


def _weighted(shares: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(s * v for s, v in zip(shares, values, strict=True))


def _kind(op: Op) -> int | None:
    """The position in KINDS; None for pointwise operators, sums and reshapes."""
    if op.kind in ("MaxPool", "AveragePool"):
        return KINDS.index("pools")
    if op.kind != "Conv":
        return None
    weight = next(a for a in op.arguments if isinstance(a, Weight))
    if math.prod(weight.shape[2:]) == 1:
        return KINDS.index("pointwise")
    is_depthwise = weight.shape[1] == 1 and dict(op.attributes).get("group", 1) > 1
    return KINDS.index("depthwise" if is_depthwise else "convs")


def _live(ops: Sequence[Op], first: Value, out: Value) -> set[int]:
    """Values that carry the input to the output: not cut off from either by a product with zero."""
    forward, backward = {first.id}, {out.id}
    for o in ops:
        if not _is_zero(o) and any(isinstance(a, Value) and a.id in forward for a in o.arguments):
            forward.add(o.output.id)
    for o in reversed(ops):
        if not _is_zero(o) and o.output.id in backward:
            backward.update(a.id for a in o.arguments if isinstance(a, Value))
    return forward & backward


def _is_zero(op: Op) -> bool:
    return op.kind == "Mul" and any(isinstance(a, Constant) and a.value == 0.0 for a in op.arguments)
