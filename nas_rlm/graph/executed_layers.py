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
from collections import Counter
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


class Layer(NamedTuple):
    """An executed layer.

    Args:
        type: the operator, the kernel of a convolution, and `d` (depthwise) or `g` (grouped).
        side: image side of the output in pixels; 0 if the output is no image.
        kernel: height of the kernel of a convolution, otherwise 0.
        groups: groups of a convolution, otherwise 1.
        in_channels: channels of the input of a convolution; for other layers the multiply-accumulates of an
            output element, which for a matrix product are its inner dimension.
        out_channels: size of the last dimension of the output of a product, of the second one otherwise; 0 if
            there is none.
        inputs: elements of the inputs.
        outputs: elements of the first output.
        macs: multiply-accumulates.
        params: parameters.
    """

    type: str
    side: int
    kernel: int = 0
    groups: int = 1
    in_channels: int = 0
    out_channels: int = 0
    inputs: int = 0
    outputs: int = 0
    macs: int = 0
    params: int = 0

    @property
    def terms(self) -> tuple[float, ...]:
        """The `TERMS` of the layer."""
        return 1.0, self.inputs, self.outputs, self.macs, math.sqrt(self.macs), self.params


Layers = Mapping[Layer, int]  # how often each is executed


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
    named: dict[str, float] = {}
    for mode in MODES:
        layers = layers_of(body, mode)
        max_side = max([layer.side for layer in layers if layer.side], default=1)
        for layer, count in layers.items():
            stage = f"@{round(math.log2(max_side / layer.side))}" if layer.side else ""
            of_type, of_any = _sum_names(f"{mode}/{layer.type}{stage}"), _sum_names(f"{mode}/{ANY}")
            for name, any_name, value in zip(of_type, of_any, layer.terms, strict=True):
                named[name] = named.get(name, 0.0) + count * value
                named[any_name] = named.get(any_name, 0.0) + count * value
    return named


@lru_cache(maxsize=1 << 12)
def _sum_names(prefix: str) -> tuple[str, ...]:
    """Return the names of the sums of all `TERMS`."""
    return tuple([f"{prefix}:{term}" for term in TERMS])


def layers_of(body: Body, mode: str) -> Layers:
    """Return the layers of a network that are executed, and how often each is.

    Examples:
        >>> import search_spaces
        >>> from nas_rlm.text import from_architecture
        >>> from nas_rlm.text.parser import parse_network
        >>> space = search_spaces.get("nasbench201")
        >>> cell = "|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|"
        >>> layers = layers_of(parse_network(from_architecture(space, space.parse(cell))), NEEDED)
        >>> [(n, layer.side, layer.out_channels) for layer, n in layers.items() if layer.type == "Conv1x1"]
        [(5, 32, 16), (1, 16, 32), (5, 16, 32), (1, 8, 64), (5, 8, 64)]

    Args:
        body: the network.
        mode: one of `MODES`.

    Returns:
        The number of executions by layer, in the order of the first execution.
    """
    inputs, outputs = (True,) * len(body.inputs), (True,) * len(body.outputs)
    if mode == FUSED:
        return _fused_layers(body, inputs, outputs, (NOTHING,) * len(inputs))[0]
    return _layers(body, mode, inputs, outputs)


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
def _sizes(body: Body) -> Mapping[str, int]:
    """Return the number of elements of each value of a body."""
    sizes = dict(zip(body.inputs, body.input_sizes, strict=True))
    for step in body.steps:
        if isinstance(step, Call):
            inner = _sizes(step.body)
            own = [inner.get(v, 0) for v in step.body.outputs]
            sizes.update(zip(step.outputs, own, strict=True))
        else:
            sizes.update(dict.fromkeys(step.outputs, step.costs.activations))
    return sizes


@lru_cache(maxsize=1 << 14)
def _layers(body: Body, mode: str, present: Flags, needed: Flags) -> Layers:
    """Return the executed layers; arguments as for `_execution`."""
    execution, sizes = _execution(body, mode, present, needed), _sizes(body)
    layers: Counter[Layer] = Counter()
    for step, outputs in execution.steps:
        if isinstance(step, Call):
            layers.update(_layers(step.body, mode, _flags(step.values, execution.present), outputs))
        elif mode == ALL or not _is_sum(step) or sum(_flags(step.values, execution.present)) > 1:
            layers[_layer(step, sum([sizes.get(v, 0) for v in step.values]))] += 1
    return layers


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
def _fused_layers(body: Body, present: Flags, needed: Flags, takes_in: Numbers) -> tuple[Layers, Numbers]:
    """Return the fused operators, and what the operators that compute the outputs can take in.

    Args:
        body: the network or function.
        present: for each input whether it is present.
        needed: for each output whether it is needed.
        takes_in: what the operator that computes each input can take in.
    """
    execution, sizes = _execution(body, NEEDED, present, needed), _sizes(body)
    reads, _ = _num_reads(body, present, needed)
    takes = dict(zip(body.inputs, takes_in, strict=True))
    layers: Counter[Layer] = Counter()

    def taken_by(value: str) -> int:
        return takes.get(value, NOTHING) if reads[value] == 1 else NOTHING

    for step, outputs in execution.steps:
        if isinstance(step, Call):
            arguments = _flags(step.values, execution.present), outputs, tuple(map(taken_by, step.values))
            own, results = _fused_layers(step.body, *arguments)
            layers.update(own)
            takes.update(zip(step.outputs, results, strict=True))
            continue
        operands = [v for v in step.values if v in execution.present]
        producers = [taken_by(v) for v in operands]
        if _is_sum(step) and len(operands) == 1:
            takes[step.outputs[0]] = producers[0]
            continue
        layer, result = _layer(step, sum([sizes.get(v, 0) for v in operands])), _new_takes(step)
        if _is_sum(step) and SUMS_AND_FUNCTIONS in producers:
            others = step.costs.activations * (len(operands) - 1)
            layer, result = Layer(FUSED_SUM, layer.side, inputs=others), FUNCTIONS
        elif step.kind in POINTWISE_FUNCTIONS and producers and producers[0] != NOTHING:
            layer = Layer(FUSED_FUNCTION, layer.side)
            result = producers[0] if step.kind == "BatchNormalization" else FUNCTIONS
        layers[layer] += 1
        takes.update(dict.fromkeys(step.outputs, result))
    return layers, tuple(map(taken_by, body.outputs))


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


def _layer(op: Operator, input_size: int) -> Layer:
    """Return an operator as a layer with `input_size` elements of its inputs."""
    costs, kernel = op.costs, op.kernel
    macs = costs.macs or 0
    return Layer(
        _layer_type(op),
        image_side(op),
        kernel[2] if len(kernel) > 2 else 0,
        op.group,
        kernel[1] * op.group if len(kernel) > 1 else macs // max(1, costs.activations),
        op.shape[-1 if macs and not kernel else 1] if len(op.shape) > 1 else 0,
        input_size,
        costs.activations,
        macs,
        costs.params + sum([number for _, number in costs.shared]),
    )
