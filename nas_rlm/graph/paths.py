"""What lies on the paths of a network from its inputs to its results, and which operators follow each other.

A function into which one value leads is followed once for all calls before which the same chains end.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from nas_rlm.graph.costs import KINDS, kind_of
from nas_rlm.graph.operators import Body, Call

LAYERS = (*KINDS, "layers")  # the last counts them all
MEETINGS = {"Concat": "joins", "Add": "sums"}  # operators in which several values meet
CUT, ENTRY = -1, -1  # no value; no operator since a function began
_ANY = len(KINDS)


def on_paths(network: Body, chains: int) -> dict[str, float]:
    """What lies on the paths from the inputs of a network to its results.

    Args:
        network: see `nas_rlm.text.parser`.
        chains: as for `nas_rlm.data.synthetic.metrics`.
    """
    way = _Way(*_described(network))
    tally = _Tally()
    start = _State(_Paths.start(), {}, {(): 1.0})
    ends = _walked(way, [start] * way.inputs, frozenset(range(len(way.outputs))), chains, tally)
    reached = [state for state in ends if state is not None]
    if not reached:
        return {}
    end = _Paths.joined([state.paths for state in reached])
    counts = [*tally.counts, sum(tally.counts)]
    found = {"paths": end.number / math.log(2)}
    for k, name in enumerate(LAYERS):
        found[name] = float(counts[k])
        found[f"{name}/mean"], found[f"{name}/std"] = end.mean[k], math.sqrt(end.variance[k])
        found[f"{name}/least"], found[f"{name}/most"] = end.least[k], end.most[k]
    for j, first in enumerate(KINDS):
        for k, second in enumerate(KINDS):
            found[f"{first}/{second}"] = float(tally.pairs.get((j, k), 0))
    return found | tally.chains


@dataclass(frozen=True, eq=False)
class _Way:
    """How values reach the results of a function, sizes apart: one object for all that are alike.

    Values are numbers, those of the inputs first. Operators on one value that are of no kind are left out, as
    are those whose result a product with zero cuts off.

    Args:
        inputs: so many.
        steps: the operators of a kind, those in which several values meet, and calls.
        outputs: the results; `CUT` where no value of the inputs reaches one.
        values: so many.
        known: what was found by `_needed`.
    """

    inputs: int
    steps: tuple[_Step, ...]
    outputs: tuple[int, ...]
    values: int
    known: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)


class _Step(NamedTuple):
    """What happens to values on their way.

    Args:
        kind: the position in `KINDS`, if it is an operator of one.
        name: of the kind or of the meeting, if there is one.
        called: of a function that is called, its way.
        read: the values; `CUT` where a function is given one that does not count.
        made: the values that it makes.
    """

    kind: int | None
    name: str | None
    called: _Way | None
    read: tuple[int, ...]
    made: range


@lru_cache(maxsize=1 << 12)
def _way_of(body: Body) -> _Way:
    return _way(*_described(body))


def _described(body: Body) -> tuple[int, tuple[_Step, ...], tuple[int, ...], int]:
    """What a way is made of."""
    number = {name: k for k, name in enumerate(body.inputs)}
    values = len(number)
    steps = []
    for step in body.steps:
        kind = name = called = None
        read = tuple([number.get(v, CUT) for v in step.values])
        if isinstance(step, Call):
            called = _way_of(step.body)
        else:
            read = tuple([v for v in read if v != CUT])
            if step.is_zero:
                continue
            kind = kind_of(step)
            name = KINDS[kind] if kind is not None else MEETINGS.get(step.kind)
            if kind is None and len(read) == 1:
                number |= dict.fromkeys(step.outputs, read[0])
                continue
        if not read:
            continue
        made = range(values, values + len(step.outputs))
        values = made.stop
        number |= dict(zip(step.outputs, made, strict=True))
        steps.append(_Step(kind, name, called, read, made))
    return len(body.inputs), tuple(steps), tuple([number.get(v, CUT) for v in body.outputs]), values


@lru_cache(maxsize=1 << 12)
def _way(inputs: int, steps: tuple[_Step, ...], outputs: tuple[int, ...], values: int) -> _Way:
    return _Way(inputs, steps, outputs, values)


def _needed(way: _Way, outputs: frozenset[int]) -> frozenset[int]:
    """The values that some of the outputs depend on."""
    if outputs in way.known:
        return way.known[outputs]
    needed = {way.outputs[k] for k in outputs}
    for step in reversed(way.steps):
        wanted = frozenset([k for k, v in enumerate(step.made) if v in needed])
        if not wanted:
            continue
        if step.called is None:
            needed.update(step.read)
        else:
            inside = _needed(step.called, wanted)
            needed.update([v for k, v in enumerate(step.read) if k in inside])
    needed.discard(CUT)
    way.known[outputs] = frozenset(needed)
    return way.known[outputs]


class _State(NamedTuple):
    """What is known where a value is.

    Args:
        paths: to it.
        before: how often each kind is the last before it; `ENTRY` where none is since the function began.
        ends: the chains with which paths end here, and their shares.
    """

    paths: _Paths
    before: Mapping[int, int]
    ends: Mapping[tuple[str, ...], float]


class _Tally:
    """What has been counted: operators of each kind, which kind follows which, and chains."""

    def __init__(self) -> None:
        self.counts = [0] * len(KINDS)
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.chains: defaultdict[str, float] = defaultdict(float)

    def add(self, inside: _Tally, before: Mapping[int, int]) -> None:
        """Add what a function counts, given which kinds are before it."""
        for k, n in enumerate(inside.counts):
            self.counts[k] += n
        for (j, k), n in inside.pairs.items():
            if j != ENTRY:
                self.pairs[j, k] += n
                continue
            for last, times in before.items():
                self.pairs[last, k] += times * n
        for name, number in inside.chains.items():
            self.chains[name] += number


def _walked(
    way: _Way, given: Sequence[_State | None], outputs: frozenset[int], chains: int, tally: _Tally
) -> list[_State | None]:
    """Follow the paths of a function.

    Args:
        way: of the function.
        given: what is known of each input, None where it does not count.
        outputs: those that count.
        chains: as for `on_paths`.
        tally: to which all on the paths is added.

    Returns:
        What is known of each output, None where it does not count.
    """
    needed = _needed(way, outputs)
    states: list[_State | None] = [*given, *[None] * (way.values - way.inputs)]
    for step in way.steps:
        wanted = frozenset([k for k, v in enumerate(step.made) if v in needed])
        if not wanted:
            continue
        if step.called is not None:
            arriving = [states[v] if v != CUT and v in needed else None for v in step.read]
            made = _through(step.called, arriving, wanted, chains, tally)
        else:
            read = [state for v in step.read if (state := states[v]) is not None]
            if not read:
                continue
            made = [_after(step, read, chains, tally)] * len(step.made)
        states[step.made.start : step.made.stop] = made
    return [states[v] if v != CUT and k in outputs else None for k, v in enumerate(way.outputs)]


def _through(
    way: _Way, arriving: Sequence[_State | None], outputs: frozenset[int], chains: int, tally: _Tally
) -> list[_State | None]:
    """Follow the paths of a called function; where one value arrives, what was found before is used again."""
    present = [(k, state) for k, state in enumerate(arriving) if state is not None]
    if len(present) != 1:
        return _walked(way, arriving, outputs, chains, tally) if present else [None] * len(way.outputs)
    ((k, state),) = present
    found, inside = _alone(way, k, outputs, chains, tuple(state.ends.items()))
    tally.add(inside, state.before)
    return [None if one is None else _behind(state, one) for one in found]


@lru_cache(maxsize=1 << 12)
def _alone(
    way: _Way,
    entry: int,
    outputs: frozenset[int],
    chains: int,
    ends: tuple[tuple[tuple[str, ...], float], ...],
) -> tuple[list[_State | None], _Tally]:
    """What a function does to the paths of one value, as if they began there."""
    tally = _Tally()
    given: list[_State | None] = [None] * way.inputs
    given[entry] = _State(_Paths.start(), {ENTRY: 1}, dict(ends))
    return _walked(way, given, outputs, chains, tally), tally


def _behind(state: _State, inside: _State) -> _State:
    """What is known behind a function, by what is known before it and what it does."""
    before = Counter({k: n for k, n in inside.before.items() if k != ENTRY})
    for k, n in state.before.items():
        before[k] += n * inside.before.get(ENTRY, 0)
    return _State(state.paths.followed(inside.paths), {k: n for k, n in before.items() if n}, inside.ends)


def _after(step: _Step, read: Sequence[_State], chains: int, tally: _Tally) -> _State:
    """What is known behind an operator."""
    if step.kind is None and len(read) == 1:
        return read[0]
    paths = _Paths.joined([state.paths for state in read])
    before: Mapping[int, int] = read[0].before
    if len(read) > 1:
        met: Counter[int] = Counter()
        for state in read:
            met.update(state.before)
        before = met
    if step.kind is not None:
        paths = paths.through(step.kind)
        tally.counts[step.kind] += 1
        for k, n in before.items():
            tally.pairs[k, step.kind] += n
        before = {step.kind: 1}
    return _State(paths, before, _ends(step.name, read, chains, tally.chains) if chains else {})


def _ends(
    name: str | None, read: Sequence[_State], longest: int, found: defaultdict[str, float]
) -> Mapping[tuple[str, ...], float]:
    """The chains that end behind an operator, each of which is counted."""
    arriving: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for state in read:
        for chain, number in state.ends.items():
            arriving[chain] += number
    if name is None:
        return arriving
    found[name] += 1
    passed: defaultdict[tuple[str, ...], float] = defaultdict(float)
    total = math.fsum(arriving.values())
    for chain, number in arriving.items():
        longer = (*chain, name)
        for n in range(2, len(longer) + 1):
            found["-".join(longer[-n:])] += number
        passed[longer[max(0, len(longer) - longest + 1) :]] += number / total
    return passed


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

    def followed(self, other: _Paths) -> _Paths:
        """These paths, each made longer by each of some others."""

        def both(own: tuple[float, ...], others: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(map(operator.add, own, others))

        return _Paths(
            self.number + other.number,
            both(self.mean, other.mean),
            both(self.variance, other.variance),
            both(self.least, other.least),
            both(self.most, other.most),
        )

    def through(self, kind: int) -> _Paths:
        """The same paths, made longer by an operator."""

        def longer(counts: tuple[float, ...]) -> tuple[float, ...]:
            return tuple([c + (k in (kind, _ANY)) for k, c in enumerate(counts)])

        return _Paths(self.number, longer(self.mean), self.variance, longer(self.least), longer(self.most))


def _weighted(shares: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(s * v for s, v in zip(shares, values, strict=True))
