"""Numbers that can be counted in any network: exact, free and without end, for a model to learn reading from.

A model that has learnt to count what lies on the paths of a network needs few trained networks to learn what
makes them accurate, and one that knows the costs of each kind of operator few measured ones to learn a device
(section 4.3 of the paper pretrains on FLOPs alone).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import search_spaces
from nas_rlm.data.tables import Row, Table, remembered
from nas_rlm.text import from_architectures
from nas_rlm.text.ir import carrying
from nas_rlm.text.operators import Flat, Operator, operators

KINDS = ("convs", "pointwise", "depthwise", "pools")  # operators that mix positions or channels
LAYERS = (*KINDS, "layers")  # the last counts them all
COSTS = ("macs", "params", "activations", "sides", "roots", "logs")
VERSION = 4  # raised when the metrics change, so that remembered ones are counted again
DRAWS = 100  # at random for each network that a table is to have, at most
MULTIPLYING = ("Conv", "Gemm", "MatMul")
MEETINGS = {"Concat": "joins", "Add": "sums"}  # operators in which several values meet
_ANY = len(KINDS)


def metrics(text: str, chains: int = 0) -> dict[str, float]:
    """What can be counted in a network.

    >>> import search_spaces
    >>> from nas_rlm.text import from_architecture
    >>> space = search_spaces.get("nasbench101")
    >>> cell = space.parse('{"adjacency": "010001000", "ops": ["input", "conv3x3-bn-relu", "output"]}')
    >>> metrics(from_architecture(space, cell))["convs/mean"]
    10.0

    Operators that a product with zero cuts off from the input or the output count for costs alone.

    Args:
        text: of the network, as `from_onnx` gives it.
        chains: count chains of up to so many operators as well, and layers by their kernel and stage.

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
        operator counts the chains that end in it, as many as it has inputs. A layer's name has its operator,
        its kernel and how often the sides were halved before it, as in `Conv3x3@1:macs`.
    """
    network = operators(text)
    found = _costs(network.operators)
    if chains:
        found |= _layers(network.operators)
    steps, results = _steps(network)
    paths = {name: _Paths.start() for name in network.inputs}
    before: dict[str, Counter[int]] = {name: Counter() for name in network.inputs}
    counts: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for kind, _, read, outputs in steps:
        here = _Paths.joined([paths[v] for v in read])
        last = before[read[0]] if len(read) == 1 else sum((before[v] for v in read), Counter())
        if kind is not None:
            here = here.through(kind)
            counts[kind] += 1
            for k, n in last.items():
                pairs[k, kind] += n
            last = Counter({kind: 1})
        paths |= dict.fromkeys(outputs, here)
        before |= dict.fromkeys(outputs, last)
    ends = [paths[v] for v in results]
    if not ends:
        return found
    end = _Paths.joined(ends)
    counts[_ANY] = counts.total()
    found["paths"] = end.number / math.log(2)
    for k, name in enumerate(LAYERS):
        found[name] = float(counts[k])
        found[f"{name}/mean"], found[f"{name}/std"] = end.mean[k], math.sqrt(end.variance[k])
        found[f"{name}/least"], found[f"{name}/most"] = end.least[k], end.most[k]
    for j, first in enumerate(KINDS):
        for k, second in enumerate(KINDS):
            found[f"{first}/{second}"] = float(pairs[j, k])
    return found | _chains(steps, network.inputs, chains)


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
    for _ in range(DRAWS * networks):
        if len(drawn) == networks:
            break
        architecture = space.sample(rng)
        drawn[str(architecture)] = architecture
    else:
        raise ValueError(f"{space_name} gave {len(drawn):,} different networks, expected {networks:,}")
    known = remembered(
        "count",
        (VERSION, chains, list(drawn)),
        networks,
        lambda: [json.dumps(found) for found in counted(from_architectures(space, drawn.values()), chains)],
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


def counted(texts: Iterable[str], chains: int = 0) -> list[dict[str, float]]:
    """The metrics of many texts; a bar is shown where it takes long."""
    return [metrics(text, chains) for text in tqdm(texts, "metrics", unit="net", delay=2)]


class _Step(NamedTuple):
    """An operator on the way from input to output that is of a kind, or in which several values meet.

    Args:
        kind: the position in `KINDS`, if it is of one.
        name: of the kind or of the meeting, if there is one.
        read: the values, those that arrive through pointwise operators under the names that they had before.
        outputs: what it makes.
    """

    kind: int | None
    name: str | None
    read: list[str]
    outputs: tuple[str, ...]


def _steps(network: Flat) -> tuple[list[_Step], list[str]]:
    """What lies on the paths of a network, and the values in which they end."""
    live = carrying(
        network.inputs, network.outputs, [(o.values, o.outputs) for o in network.operators if not o.is_zero]
    )
    source = {v: v for v in live}  # where a value that passes pointwise operators alone comes from
    steps = []
    for o in network.operators:
        read = [source[v] for v in o.values if v in live]
        if o.is_zero or not read or live.isdisjoint(o.outputs):
            continue
        kind = _kind(o)
        if kind is None and len(read) == 1:
            source |= dict.fromkeys(o.outputs, read[0])
            continue
        name = KINDS[kind] if kind is not None else MEETINGS.get(o.kind)
        steps.append(_Step(kind, name, read, o.outputs))
    return steps, [source[v] for v in network.outputs if v in live]


def _costs(network: Sequence[Operator]) -> dict[str, float]:
    """Costs of all operators together, and of each kind."""
    totals = ("flops", "params", "activations", *(f"{kind}/{cost}" for kind in KINDS for cost in COSTS))
    found = dict.fromkeys(totals, 0.0)
    for op in network:
        sizes = [math.prod(shape) for shape in op.weights]
        learnt = sizes[:2] if op.kind == "BatchNormalization" else sizes  # the others are statistics
        macs = _macs(op)
        activations = float(math.prod(op.shape))
        found["flops"] += macs
        found["params"] += sum(learnt)
        found["activations"] += activations
        kind = _kind(op)
        if kind is None:
            continue
        of_op = {
            "macs": macs,
            "params": float(sum(sizes)),
            "activations": activations,
            "sides": float(op.shape[2]) if len(op.shape) > 2 else 0.0,
            "roots": math.sqrt(macs),
            "logs": math.log2(macs) if macs else 0.0,
        }
        for cost, value in of_op.items():
            found[f"{KINDS[kind]}/{cost}"] += value
    return found


def _layers(network: Sequence[Operator]) -> dict[str, float]:
    """What layers of one kernel at one stage cost together: the time that a network takes is nearly a sum."""
    found: defaultdict[str, float] = defaultdict(float)
    top = max((_side(op) for op in network if _kind(op) is not None), default=0)
    for op in network:
        if _kind(op) is None and op.kind not in MULTIPLYING:
            continue
        side = _side(op)
        kernel = "x".join(map(str, op.weights[0][2:])) if op.kind == "Conv" and op.weights else ""
        grouped = "g" if op.group > 1 else ""
        stage = f"@{round(math.log2(top / side))}" if top and side else ""
        macs, name = _macs(op), f"{op.kind}{kernel}{grouped}{stage}"
        found[f"{name}:number"] += 1
        found[f"{name}:activations"] += math.prod(op.shape)
        found[f"{name}:macs"] += macs
        found[f"{name}:roots"] += math.sqrt(macs)
    return dict(found)


def _side(op: Operator) -> int:
    """The longer side of the images that an operator makes; 0 if it makes none."""
    return max(op.shape[2:], default=0) if len(op.shape) > 2 and op.kind != "MatMul" else 0


def _macs(op: Operator) -> float:
    """The multiply-accumulates of an operator."""
    if op.kind not in MULTIPLYING:
        return 0.0
    places = math.prod(op.shape[2:]) if op.kind == "Conv" else math.prod(op.shape[1:-1])
    return float(max(map(math.prod, op.weights), default=0) * places)


def _chains(steps: Sequence[_Step], inputs: Sequence[str], longest: int) -> dict[str, float]:
    """How often operators follow each other, and the number of joins and sums."""
    if longest < 1:
        return {}
    found: defaultdict[str, float] = defaultdict(float)
    ends: dict[str, dict[tuple[str, ...], float]] = {name: {(): 1.0} for name in inputs}
    for _, name, read, outputs in steps:
        arriving: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for value in read:
            for chain, number in ends[value].items():
                arriving[chain] += number
        if name is None:
            ends |= dict.fromkeys(outputs, arriving)
            continue
        found[name] += 1
        passed: defaultdict[tuple[str, ...], float] = defaultdict(float)
        total = math.fsum(arriving.values())
        for chain, number in arriving.items():
            longer = (*chain, name)
            for n in range(2, len(longer) + 1):
                found["-".join(longer[-n:])] += number
            passed[longer[max(0, len(longer) - longest + 1) :]] += number / total
        ends |= dict.fromkeys(outputs, passed)
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


def _kind(op: Operator) -> int | None:
    """The position in KINDS; None for pointwise operators, sums and reshapes."""
    if op.kind in ("MaxPool", "AveragePool"):
        return KINDS.index("pools")
    if op.kind != "Conv" or not op.weights:
        return None
    shape = op.weights[0]
    if math.prod(shape[2:]) == 1:
        return KINDS.index("pointwise")
    return KINDS.index("depthwise" if shape[1] == 1 and op.group > 1 else "convs")
