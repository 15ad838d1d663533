"""Layers that a network executes, summed by type: its latency is nearly a linear function of these sums.

Devices differ in what they remove from a network before they execute it. The layers are therefore summed for
several modes of execution:

- `all`: each operator is executed.
- `needed`: what the outputs do not depend on is removed, and sums with a single operand. A product with zero
  and what only such a product reads are not executed.
- `live`: what does not depend on the inputs is removed in addition, since it can be computed in advance.
- `fused`: the operators of `needed`, of which a convolution or matrix product takes in the batch
  normalization, the sum and the activation that follow it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from nas_rlm.graph.operators import Body, Call, Operator, image_side

ALL, NEEDED, LIVE, FUSED = MODES = ("all", "needed", "live", "fused")
TERMS = ("number", "inputs", "outputs", "macs", "roots", "params")
ANY = "layers"  # of any type
FUSED_SUM, FUSED_FUNCTION = "FusedSum", "FusedFunction"  # operators that another one takes in
POINTWISE_FUNCTIONS = {
    *("BatchNormalization", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish"),
    *("PRelu", "Relu", "Sigmoid", "Softplus", "Tanh"),
}
# What an operator can take in that reads its output: nothing, a function, or a sum and a function.
NOTHING, FUNCTIONS, SUMS_AND_FUNCTIONS = range(3)

Flags = tuple[bool, ...]
Numbers = tuple[int, ...]
LayerSums = Mapping[tuple[str, int], list[float]]  # of TERMS, by layer type and image side in pixels


class _Execution(NamedTuple):
    """What is executed of a body.

    Args:
        steps: the executed steps in order; for each, which of its outputs are needed.
        present: names of the values that are present: neither zero nor computed in advance.
        inputs: for each input whether an executed step reads it.
    """

    steps: list[tuple[Operator | Call, Flags]]
    present: set[str]
    inputs: Flags


def executed_layers(body: Body) -> dict[str, float]:
    """Return the sums over the layers of a network that are executed, for each mode of execution.

    Examples:
        >>> import search_spaces
        >>> from nas_rlm.text import from_architecture
        >>> from nas_rlm.text.parser import parse_network
        >>> space = search_spaces.get("nasbench201")
        >>> cell = "|none~0|+|none~0|none~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"
        >>> sums = executed_layers(parse_network(from_architecture(space, space.parse(cell))))
        >>> [sums.get(f"{mode}/Conv1x1@0:number", 0) for mode in MODES]
        [5.0, 5.0, 0, 5.0]

    Args:
        body: the network.

    Returns:
        Sums by `MODE/LAYER@STAGE:TERM`, for example `live/Conv3x3@1:macs`.

        LAYER is the operator, the kernel of a convolution, and `d` (depthwise) or `g` (grouped), or `ANY`.
        STAGE is the number of times that the image was halved; without `@STAGE` for layers whose output is no
        image and for `ANY`. TERM is one of `TERMS`: the number of layers, elements of their inputs and
        outputs, multiply-accumulates, the square roots of each layer's multiply-accumulates, and parameters.
    """
    inputs, outputs = (True,) * len(body.inputs), (True,) * len(body.outputs)
    sizes = (0,) * len(inputs)
    named: dict[str, float] = {}
    for mode in MODES:
        if mode == FUSED:
            sums, _ = _kernel_sums(body, inputs, outputs, sizes, (NOTHING,) * len(inputs))
        else:
            sums = _layer_sums(body, mode, inputs, outputs, sizes)
        max_side = max([side for _, side in sums if side], default=1)
        for (layer, side), terms in sums.items():
            stage = f"@{round(math.log2(max_side / side))}" if side else ""
            for term, value in zip(TERMS, terms, strict=True):
                for name in (f"{mode}/{layer}{stage}:{term}", f"{mode}/{ANY}:{term}"):
                    named[name] = named.get(name, 0.0) + value
    return named


@lru_cache(maxsize=1 << 14)
def _present_outputs(body: Body, mode: str, present: Flags) -> Flags:
    """Return for each output whether it is present, if the inputs in `present` are."""
    values = _present_values(body, mode, present)
    return tuple([v in values for v in body.outputs])


def _present_values(body: Body, mode: str, present: Flags) -> set[str]:
    """Return the names of the present values of a body; arguments as for `_execution`."""
    values = {v for v, is_present in zip(body.inputs, present, strict=True) if is_present}
    for step in body.steps:
        if isinstance(step, Call):
            results = _present_outputs(step.body, mode, _flags(step.values, values))
            values.update([v for v, is_present in zip(step.outputs, results, strict=True) if is_present])
        elif mode == ALL or _is_present(step, mode, values):
            values.update(step.outputs)
    return values


def _is_present(op: Operator, mode: str, values: set[str]) -> bool:
    """Return whether the outputs of an operator are present."""
    if op.is_zero:
        return False
    return (mode == NEEDED and not _is_sum(op)) or any(v in values for v in op.values)


def _is_sum(op: Operator) -> bool:
    """Return True for a sum of several values."""
    return op.kind in ("Add", "Sum") and len(op.values) > 1


def _flags(names: Sequence[str], values: set[str]) -> Flags:
    """Return for each name whether it is among the values."""
    return tuple([name in values for name in names])


@lru_cache(maxsize=1 << 14)
def _execution(body: Body, mode: str, present: Flags, needed: Flags) -> _Execution:
    """Return what is executed of a network or function.

    Args:
        body: the network or function.
        mode: `all`, `needed` or `live`.
        present: for each input whether it is present.
        needed: for each output whether it is needed.
    """
    values = _present_values(body, mode, present)
    wanted = {v for v, is_needed in zip(body.outputs, needed, strict=True) if is_needed}
    steps: list[tuple[Operator | Call, Flags]] = []
    for step in reversed(body.steps):
        outputs = (True,) * len(step.outputs) if mode == ALL else _flags(step.outputs, wanted & values)
        if any(outputs):
            steps.append((step, outputs))
            wanted.update(_read_values(step, mode, values, outputs))
    return _Execution(steps[::-1], values, _flags(body.inputs, wanted))


def _read_values(step: Operator | Call, mode: str, values: set[str], outputs: Flags) -> list[str]:
    """Return the present values that an executed step reads."""
    if isinstance(step, Operator):
        return [v for v in step.values if v in values]
    read = _execution(step.body, mode, _flags(step.values, values), outputs).inputs
    return [v for v, is_read in zip(step.values, read, strict=True) if is_read and v in values]


@lru_cache(maxsize=1 << 14)
def _output_sizes(body: Body, sizes: Numbers) -> Numbers:
    """Return the number of elements of each output; `sizes` are those of the inputs."""
    known = _value_sizes(body, sizes)
    return tuple([known.get(v, 0) for v in body.outputs])


def _value_sizes(body: Body, sizes: Numbers) -> dict[str, int]:
    """Return the number of elements of each value of a body."""
    known = dict(zip(body.inputs, sizes, strict=True))
    for step in body.steps:
        if isinstance(step, Call):
            results = _output_sizes(step.body, tuple([known.get(v, 0) for v in step.values]))
            known.update(zip(step.outputs, results, strict=True))
        else:
            known.update(dict.fromkeys(step.outputs, step.costs.activations))
    return known


@lru_cache(maxsize=1 << 14)
def _layer_sums(body: Body, mode: str, present: Flags, needed: Flags, sizes: Numbers) -> LayerSums:
    """Return the sums over the executed layers; arguments as for `_execution`, and sizes of the inputs."""
    execution, known = _execution(body, mode, present, needed), _value_sizes(body, sizes)
    sums: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0] * len(TERMS))
    for step, outputs in execution.steps:
        sizes_of_step = tuple([known.get(v, 0) for v in step.values])
        if isinstance(step, Call):
            arguments = _flags(step.values, execution.present)
            for key, terms in _layer_sums(step.body, mode, arguments, outputs, sizes_of_step).items():
                _add(sums[key], terms)
        elif mode == ALL or not _is_sum(step) or sum(_flags(step.values, execution.present)) > 1:
            _add(sums[_layer_type(step), image_side(step)], _terms(step, sum(sizes_of_step)))
    return dict(sums)


@lru_cache(maxsize=1 << 14)
def _num_reads(body: Body, present: Flags, needed: Flags) -> tuple[Mapping[str, int], Numbers]:
    """Return how often each value is read by executed steps and as an output, and how often each input is."""
    execution = _execution(body, NEEDED, present, needed)
    reads = Counter([v for v, is_needed in zip(body.outputs, needed, strict=True) if is_needed])
    for step, outputs in execution.steps:
        flags = _flags(step.values, execution.present)
        times = _num_reads(step.body, flags, outputs)[1] if isinstance(step, Call) else (1,) * len(flags)
        for v, is_present, n in zip(step.values, flags, times, strict=True):
            reads[v] += n if is_present else 0
    return reads, tuple([reads[v] for v in body.inputs])


@lru_cache(maxsize=1 << 14)
def _kernel_sums(
    body: Body, present: Flags, needed: Flags, sizes: Numbers, takes_in: Numbers
) -> tuple[LayerSums, Numbers]:
    """Return the sums over fused operators, and what the operators that compute the outputs can take in.

    Args:
        body: the network or function.
        present: for each input whether it is present.
        needed: for each output whether it is needed.
        sizes: number of elements of each input.
        takes_in: what the operator that computes each input can take in.
    """
    execution, known = _execution(body, NEEDED, present, needed), _value_sizes(body, sizes)
    reads, _ = _num_reads(body, present, needed)
    takes = dict(zip(body.inputs, takes_in, strict=True))
    sums: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0] * len(TERMS))

    def taken_by(value: str) -> int:
        return takes.get(value, NOTHING) if reads[value] == 1 else NOTHING

    for step, outputs in execution.steps:
        sizes_of_step = tuple([known.get(v, 0) for v in step.values])
        if isinstance(step, Call):
            arguments = _flags(step.values, execution.present), outputs, sizes_of_step
            own, results = _kernel_sums(step.body, *arguments, tuple(map(taken_by, step.values)))
            for key, terms in own.items():
                _add(sums[key], terms)
            takes.update(zip(step.outputs, results, strict=True))
            continue
        operands = [v for v in step.values if v in execution.present]
        producers = [taken_by(v) for v in operands]
        layer, terms = _layer_type(step), _terms(step, sum([known.get(v, 0) for v in operands]))
        result = _new_takes(step)
        if _is_sum(step) and len(operands) == 1:
            takes[step.outputs[0]] = producers[0]
            continue
        if _is_sum(step) and SUMS_AND_FUNCTIONS in producers:
            others = float(step.costs.activations * (len(operands) - 1))
            layer, terms, result = FUSED_SUM, [1.0, others, 0.0, 0.0, 0.0, 0.0], FUNCTIONS
        elif step.kind in POINTWISE_FUNCTIONS and producers and producers[0] != NOTHING:
            layer, terms = FUSED_FUNCTION, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
            result = producers[0] if step.kind == "BatchNormalization" else FUNCTIONS
        _add(sums[layer, image_side(step)], terms)
        takes.update(dict.fromkeys(step.outputs, result))
    return dict(sums), tuple(map(taken_by, body.outputs))


def _new_takes(op: Operator) -> int:
    """Return what an operator that is executed on its own can take in."""
    if op.kernel or op.costs.macs:
        return SUMS_AND_FUNCTIONS
    return FUNCTIONS if op.kind in POINTWISE_FUNCTIONS or _is_sum(op) else NOTHING


def _layer_type(op: Operator) -> str:
    """Return the operator, for a convolution with its kernel and whether it is depthwise or grouped."""
    if len(op.kernel) < 3:
        return op.kind
    groups = "" if op.group == 1 else "d" if op.kernel[1] == 1 else "g"
    return f"Conv{'x'.join(map(str, op.kernel[2:]))}{groups}"


def _terms(op: Operator, input_size: int) -> list[float]:
    """Return the `TERMS` of one operator."""
    costs = op.costs
    macs = float(costs.macs or 0)
    params = float(costs.params + sum([number for _, number in costs.shared]))
    return [1.0, float(input_size), float(costs.activations), macs, math.sqrt(macs), params]


def _add(sums: list[float], terms: Sequence[float]) -> None:
    """Add terms to sums, in place."""
    for k, value in enumerate(terms):
        sums[k] += value
