"""Features of the paths of a network from its inputs to its outputs, and of operators that follow each other.

Only operators of OPERATOR_KINDS, such as convolutions, count on a path. A chain is a sequence of these
operators and of merges (MERGE_OPERATORS) that follow each other. Calls of a function with one argument and
equal incoming chains are computed once.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from nas_rlm.graph.costs import OPERATOR_KINDS, operator_kind
from nas_rlm.graph.operators import Body, Call

PATH_COUNTS = (*OPERATOR_KINDS, "layers")  # the last is the sum over all kinds
MERGE_OPERATORS = {"Concat": "joins", "Add": "sums"}
NO_VALUE = -1  # in place of the number of a value
FUNCTION_START = -1  # in place of an operator kind: no operator since the function began
_ALL_KINDS = len(OPERATOR_KINDS)


def path_features(network: Body, max_chain_length: int) -> dict[str, float]:
    """Return features of the paths from the inputs of a network to its outputs.

    Args:
        network: a network, see `nas_rlm.text.parser.parse_network`.
        max_chain_length: longest chain of operators that is counted; 0 counts no chains.

    Returns:
        Features by name, see `nas_rlm.data.synthetic.graph_features`; empty if no path reaches an output.
    """
    flow = _Flow(*_describe_flow(network))
    counts = _Counts()
    start = _ValueState(_PathStatistics.start(), {}, {(): 1.0})
    all_outputs = frozenset(range(len(flow.outputs)))
    states = _follow(flow, [start] * flow.num_inputs, all_outputs, max_chain_length, counts)
    reached = [state for state in states if state is not None]
    if not reached:
        return {}
    paths = _PathStatistics.union([state.paths for state in reached])
    num_operators = [*counts.kinds, sum(counts.kinds)]
    features = {"paths": paths.log_number / math.log(2)}
    for k, name in enumerate(PATH_COUNTS):
        features[name] = float(num_operators[k])
        features[f"{name}/mean"], features[f"{name}/std"] = paths.mean[k], math.sqrt(paths.variance[k])
        features[f"{name}/least"], features[f"{name}/most"] = paths.minimum[k], paths.maximum[k]
    for j, first in enumerate(OPERATOR_KINDS):
        for k, second in enumerate(OPERATOR_KINDS):
            features[f"{first}/{second}"] = float(counts.pairs.get((j, k), 0))
    return features | counts.chains


@dataclass(frozen=True, eq=False)
class _Flow:
    """The operators of a function that matter for paths, without sizes; equal flows are one object.

    Values are numbered, inputs first. Element-wise operators on one value are left out, and operators whose
    output is multiplied by zero.

    Args:
        num_inputs: number of inputs.
        steps: operators of OPERATOR_KINDS, operators that merge several values, and calls.
        outputs: numbers of the output values; NO_VALUE for an output that no input reaches.
        num_values: number of values.
        needed: cached results of `_needed_values`.
    """

    num_inputs: int
    steps: tuple[_Step, ...]
    outputs: tuple[int, ...]
    num_values: int
    needed: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)


class _Step(NamedTuple):
    """An operator or a call in a flow.

    Args:
        kind: index in OPERATOR_KINDS; None for any other operator and for a call.
        name: name of the kind, or of a merge operator as in MERGE_OPERATORS; None without one.
        callee: flow of the called function; None for an operator.
        inputs: numbers of the values that it reads; NO_VALUE for an argument that no input reaches.
        outputs: numbers of the values that it defines.
    """

    kind: int | None
    name: str | None
    callee: _Flow | None
    inputs: tuple[int, ...]
    outputs: range


@lru_cache(maxsize=1 << 12)
def _flow_of(body: Body) -> _Flow:
    """Return the flow of a function."""
    return _flow(*_describe_flow(body))


def _describe_flow(body: Body) -> tuple[int, tuple[_Step, ...], tuple[int, ...], int]:
    """Return the arguments from which `_flow` makes the flow of a function."""
    number = {name: k for k, name in enumerate(body.inputs)}
    num_values = len(number)
    steps = []
    for step in body.steps:
        kind = name = callee = None
        inputs = tuple([number.get(v, NO_VALUE) for v in step.values])
        if isinstance(step, Call):
            callee = _flow_of(step.body)
        else:
            inputs = tuple([v for v in inputs if v != NO_VALUE])
            if step.is_zero:
                continue
            kind = operator_kind(step)
            name = OPERATOR_KINDS[kind] if kind is not None else MERGE_OPERATORS.get(step.kind)
            if kind is None and len(inputs) == 1:
                number |= dict.fromkeys(step.outputs, inputs[0])
                continue
        if not inputs:
            continue
        outputs = range(num_values, num_values + len(step.outputs))
        num_values = outputs.stop
        number |= dict(zip(step.outputs, outputs, strict=True))
        steps.append(_Step(kind, name, callee, inputs, outputs))
    results = tuple([number.get(v, NO_VALUE) for v in body.outputs])
    return len(body.inputs), tuple(steps), results, num_values


@lru_cache(maxsize=1 << 12)
def _flow(num_inputs: int, steps: tuple[_Step, ...], outputs: tuple[int, ...], num_values: int) -> _Flow:
    """Return the flow with these properties; equal flows are one object."""
    return _Flow(num_inputs, steps, outputs, num_values)


def _needed_values(flow: _Flow, outputs: frozenset[int]) -> frozenset[int]:
    """Return the numbers of the values that the outputs at these positions depend on."""
    if outputs in flow.needed:
        return flow.needed[outputs]
    needed = {flow.outputs[k] for k in outputs}
    for step in reversed(flow.steps):
        needed_outputs = frozenset([k for k, v in enumerate(step.outputs) if v in needed])
        if not needed_outputs:
            continue
        if step.callee is None:
            needed.update(step.inputs)
        else:
            needed_inputs = _needed_values(step.callee, needed_outputs)
            needed.update([v for k, v in enumerate(step.inputs) if k in needed_inputs])
    needed.discard(NO_VALUE)
    flow.needed[outputs] = frozenset(needed)
    return flow.needed[outputs]


class _ValueState(NamedTuple):
    """Features of the paths from the inputs to a value.

    Args:
        paths: statistics of these paths.
        last_kinds: how often each operator kind is the last one before the value; FUNCTION_START stands for
            no operator since the start of the function.
        chains: weight of each chain of operators that ends at the value, as a fraction of the paths.
    """

    paths: _PathStatistics
    last_kinds: Mapping[int, int]
    chains: Mapping[tuple[str, ...], float]


class _Counts:
    """Counts over the operators on the paths of a function.

    Attributes:
        kinds: number of operators of each kind.
        pairs: how often one kind follows another; FUNCTION_START comes before the first one of a function.
        chains: how often each chain of operators occurs.
    """

    def __init__(self) -> None:
        self.kinds = [0] * len(OPERATOR_KINDS)
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.chains: defaultdict[str, float] = defaultdict(float)

    def add(self, callee: _Counts, last_kinds: Mapping[int, int]) -> None:
        """Add the counts of a called function; `last_kinds` counts the operator kinds before the call."""
        for k, n in enumerate(callee.kinds):
            self.kinds[k] += n
        for (j, k), n in callee.pairs.items():
            if j != FUNCTION_START:
                self.pairs[j, k] += n
                continue
            for last, times in last_kinds.items():
                self.pairs[last, k] += times * n
        for name, number in callee.chains.items():
            self.chains[name] += number


def _follow(
    flow: _Flow,
    input_states: Sequence[_ValueState | None],
    outputs: frozenset[int],
    max_chain_length: int,
    counts: _Counts,
) -> list[_ValueState | None]:
    """Follow the paths through a function.

    Args:
        flow: flow of the function.
        input_states: state of each input; None for an input that no path reaches.
        outputs: positions of the outputs whose states are needed.
        max_chain_length: see `path_features`.
        counts: counts to which the operators on the paths are added.

    Returns:
        State of each output; None for an output that is not needed or that no path reaches.
    """
    needed = _needed_values(flow, outputs)
    states: list[_ValueState | None] = [*input_states, *[None] * (flow.num_values - flow.num_inputs)]
    for step in flow.steps:
        needed_outputs = frozenset([k for k, v in enumerate(step.outputs) if v in needed])
        if not needed_outputs:
            continue
        if step.callee is not None:
            arguments = [states[v] if v != NO_VALUE and v in needed else None for v in step.inputs]
            results = _follow_call(step.callee, arguments, needed_outputs, max_chain_length, counts)
        else:
            inputs = [state for v in step.inputs if (state := states[v]) is not None]
            if not inputs:
                continue
            results = [_after_operator(step, inputs, max_chain_length, counts)] * len(step.outputs)
        states[step.outputs.start : step.outputs.stop] = results
    return [states[v] if v != NO_VALUE and k in outputs else None for k, v in enumerate(flow.outputs)]


def _follow_call(
    flow: _Flow,
    arguments: Sequence[_ValueState | None],
    outputs: frozenset[int],
    max_chain_length: int,
    counts: _Counts,
) -> list[_ValueState | None]:
    """Follow the paths through a called function, as `_follow`; results for a single argument are cached."""
    present = [(k, state) for k, state in enumerate(arguments) if state is not None]
    if len(present) != 1:
        if not present:
            return [None] * len(flow.outputs)
        return _follow(flow, arguments, outputs, max_chain_length, counts)
    ((k, state),) = present
    results, callee_counts = _follow_single_input(
        flow, k, outputs, max_chain_length, tuple(state.chains.items())
    )
    counts.add(callee_counts, state.last_kinds)
    return [None if result is None else _after_call(state, result) for result in results]


@lru_cache(maxsize=1 << 12)
def _follow_single_input(
    flow: _Flow,
    position: int,
    outputs: frozenset[int],
    max_chain_length: int,
    chains: tuple[tuple[tuple[str, ...], float], ...],
) -> tuple[list[_ValueState | None], _Counts]:
    """Follow the paths from the input at `position`, as if they began there, with these incoming chains."""
    counts = _Counts()
    input_states: list[_ValueState | None] = [None] * flow.num_inputs
    input_states[position] = _ValueState(_PathStatistics.start(), {FUNCTION_START: 1}, dict(chains))
    return _follow(flow, input_states, outputs, max_chain_length, counts), counts


def _after_call(argument: _ValueState, result: _ValueState) -> _ValueState:
    """Return the state of a result; `result` is its state if paths began at the argument."""
    last_kinds = Counter({k: n for k, n in result.last_kinds.items() if k != FUNCTION_START})
    for k, n in argument.last_kinds.items():
        last_kinds[k] += n * result.last_kinds.get(FUNCTION_START, 0)
    paths = argument.paths.concatenated(result.paths)
    return _ValueState(paths, {k: n for k, n in last_kinds.items() if n}, result.chains)


def _after_operator(
    step: _Step, inputs: Sequence[_ValueState], max_chain_length: int, counts: _Counts
) -> _ValueState:
    """Return the state of the output of an operator, and count the operator."""
    if step.kind is None and len(inputs) == 1:
        return inputs[0]
    paths = _PathStatistics.union([state.paths for state in inputs])
    last_kinds: Mapping[int, int] = inputs[0].last_kinds
    if len(inputs) > 1:
        summed: Counter[int] = Counter()
        for state in inputs:
            summed.update(state.last_kinds)
        last_kinds = summed
    if step.kind is not None:
        paths = paths.with_operator(step.kind)
        counts.kinds[step.kind] += 1
        for k, n in last_kinds.items():
            counts.pairs[k, step.kind] += n
        last_kinds = {step.kind: 1}
    chains = _extend_chains(step.name, inputs, max_chain_length, counts.chains) if max_chain_length else {}
    return _ValueState(paths, last_kinds, chains)


def _extend_chains(
    name: str | None,
    inputs: Sequence[_ValueState],
    max_chain_length: int,
    counts: defaultdict[str, float],
) -> Mapping[tuple[str, ...], float]:
    """Return the weights of the chains that end at an operator, and add the chains to `counts`."""
    incoming: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for state in inputs:
        for chain, number in state.chains.items():
            incoming[chain] += number
    if name is None:
        return incoming
    counts[name] += 1
    outgoing: defaultdict[tuple[str, ...], float] = defaultdict(float)
    total = math.fsum(incoming.values())
    for chain, number in incoming.items():
        longer = (*chain, name)
        for n in range(2, len(longer) + 1):
            counts["-".join(longer[-n:])] += number
        outgoing[longer[max(0, len(longer) - max_chain_length + 1) :]] += number / total
    return outgoing


@dataclass(frozen=True, slots=True)
class _PathStatistics:
    """Statistics of the paths from the inputs to a value; columns are those of PATH_COUNTS.

    Args:
        log_number: natural logarithm of the number of paths.
        mean: mean number of operators on a path.
        variance: variance of that number over the paths.
        minimum: smallest number of operators on a path.
        maximum: largest number of operators on a path.
    """

    log_number: float
    mean: tuple[float, ...]
    variance: tuple[float, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]

    @classmethod
    def start(cls) -> _PathStatistics:
        """Return the statistics of a single empty path."""
        zeros = (0.0,) * len(PATH_COUNTS)
        return cls(0.0, zeros, zeros, zeros, zeros)

    @classmethod
    def union(cls, branches: Sequence[_PathStatistics]) -> _PathStatistics:
        """Return the statistics of the union of the paths of several values."""
        if len(branches) == 1:
            return branches[0]
        top = max(p.log_number for p in branches)
        shares = [math.exp(p.log_number - top) for p in branches]
        total = math.fsum(shares)
        shares = [s / total for s in shares]
        mean = tuple(
            _weighted_sum(shares, column) for column in zip(*(p.mean for p in branches), strict=True)
        )
        columns = zip(mean, *(zip(p.mean, p.variance, strict=True) for p in branches), strict=True)
        variance = tuple(
            _weighted_sum(shares, [v + (m - joint_mean) ** 2 for m, v in moments])
            for joint_mean, *moments in columns
        )
        minimum = tuple(map(min, zip(*(p.minimum for p in branches), strict=True)))
        maximum = tuple(map(max, zip(*(p.maximum for p in branches), strict=True)))
        return cls(top + math.log(total), mean, variance, minimum, maximum)

    def concatenated(self, other: _PathStatistics) -> _PathStatistics:
        """Return the statistics of the paths that join each of these paths to each path of `other`."""

        def add(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(map(operator.add, a, b))

        return _PathStatistics(
            self.log_number + other.log_number,
            add(self.mean, other.mean),
            add(self.variance, other.variance),
            add(self.minimum, other.minimum),
            add(self.maximum, other.maximum),
        )

    def with_operator(self, kind: int) -> _PathStatistics:
        """Return the statistics of the same paths with one more operator of a kind."""

        def increment(counts: tuple[float, ...]) -> tuple[float, ...]:
            return tuple([c + (k in (kind, _ALL_KINDS)) for k, c in enumerate(counts)])

        return _PathStatistics(
            self.log_number,
            increment(self.mean),
            self.variance,
            increment(self.minimum),
            increment(self.maximum),
        )


def _weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    """Return the sum of the values times their weights."""
    return math.fsum(w * v for w, v in zip(weights, values, strict=True))
