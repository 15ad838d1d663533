"""Inspection of an ONNX file: its inputs, operators and costs, and what a model knows of such networks."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

import search_spaces
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits, time_limit
from nas_rlm.graph.onnx_graphs.input_shapes import apply_input_shapes, check_input_shapes, inputs_only
from nas_rlm.graph.onnx_graphs.loading import load
from nas_rlm.graph.onnx_graphs.quantization import INTEGER_WEIGHTS, QUANTIZATION_PARAMETERS
from nas_rlm.graph.onnx_graphs.tensors import FLOATS, NOT_A_TENSOR, Tensor, num_elements
from nas_rlm.graph.onnx_graphs.weight_names import type_name
from nas_rlm.graph.rewriting.normalization import Normalizer, normalize_model
from nas_rlm.rlm import RLM
from nas_rlm.text import from_architectures, from_onnx
from nas_rlm.text.parser import parse_network
from search_spaces.wording import counted

NUM_SPACE_SAMPLES = 24  # random architectures that stand for a space
NUM_SIMILAR_SPACES = 3
MIN_KNOWN_LAYERS = 0.5  # below this share of known layers a network is unlike a space
_LAYER = re.compile(r"f\.([A-Za-z0-9]+_[a-q]+)\b")
_PACKED_BITS = {"MatMulNBits": 4, "MatMulBnb4": 4, "MatMulFpQ4": 4}


@dataclass(frozen=True)
class Value:
    """An input or output of a network.

    Args:
        name: its name in the file.
        type: element type, such as `float` or `int64`; the kind of value if it is no tensor.
        shape: sizes; the name of an open size, or None for one that depends on data. None for a value of
            unknown rank.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class SimilarSpace:
    """A search space that a model was trained on, compared with a network.

    Args:
        space: name of the space.
        known_layers: share of the network's layers that occur in random architectures of the space, whatever
            their sizes.
        macs_in_range: True if the multiply-accumulates are in the range of these architectures.
    """

    space: str
    known_layers: float
    macs_in_range: bool


@dataclass(frozen=True)
class NetworkReport:
    """What is known of a network from its file.

    Args:
        name: path of the file, or name of the graph.
        inputs: inputs other than weights.
        outputs: outputs.
        opset: version of each operator set, by domain.
        nodes: nodes of the file's graph, without those of functions and subgraphs.
        operators: number of executed operators of each kind, after constants are folded.
        macs: multiply-accumulates; None if they are not known.
        params: learnt parameters.
        activations: elements of all computed values whose size is known.
        weight_bytes: bytes of all stored tensors.
        precision: element type of most parameters: float32, float16, int8, int4, …; empty without parameters.
        tokens: tokens of the text.
        max_tokens: tokens that the model reads.
        repeated_blocks: for each repeated part of the network its operators and its number of occurrences.
        similar: the search spaces that are most similar, the most similar one first.
        warnings: properties that make predictions unreliable, and sizes that are not known.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opset: Mapping[str, int]
    nodes: int
    operators: Mapping[str, int]
    macs: int | None
    params: int
    activations: int
    weight_bytes: int
    precision: str
    tokens: int
    max_tokens: int
    repeated_blocks: tuple[tuple[str, int], ...]
    similar: tuple[SimilarSpace, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can represent."""
        blocks = [{"operators": operators, "occurrences": n} for operators, n in self.repeated_blocks]
        return asdict(self) | {"repeated_blocks": blocks}


def inspect_network(
    model: onnx.ModelProto | str | os.PathLike[str],
    rlm: RLM | str | os.PathLike[str] = "nas",
    shapes: Mapping[str, Sequence[int]] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> NetworkReport:
    """Return what is known of a network from its ONNX file.

    Examples:
        >>> import numpy as np, search_spaces
        >>> from nas_rlm import inspect_network
        >>> space = search_spaces.get("nasbench201")
        >>> model = space.to_onnx(space.sample(np.random.default_rng(0)))
        >>> report = inspect_network(model, "nas")
        >>> report.similar[0].space
        'nasbench201'

    Args:
        model: a model, or the path of an ONNX file.
        rlm: the model whose tokenizer and training data the network is compared with; also the name of a
            shipped model, or a checkpoint directory.
        shapes: shapes of inputs that have open sizes in the file, by name.
        limits: limits on size, nodes, depth and time.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a valid ONNX model, or a shape contradicts it.
    """
    if isinstance(rlm, str | os.PathLike):
        rlm = RLM.load(rlm)
    if not isinstance(rlm, RLM):
        raise ValueError(f"rlm is {rlm!r}: expected an RLM, a checkpoint directory or the name of a model")
    loaded = load(model, limits)
    name = (loaded.graph.name or "model") if isinstance(model, onnx.ModelProto) else os.fspath(model)
    text = from_onnx(model, shapes, limits=limits)
    with time_limit(limits.max_seconds):
        normal = normalize_model(loaded, shapes, limits)
        costs = compute_costs(parse_network(text))
    macs, params, activations = costs.sums()
    tokens, max_tokens = len(rlm.tokenizer.encode(text)), rlm.network.config.max_length
    similar = _similar_spaces(text, macs, tuple(rlm.trained_on))
    return NetworkReport(
        str(name),
        _inputs(normal),
        _outputs(normal, loaded),
        {o.domain or "ai.onnx": o.version for o in loaded.opset_import},
        len(loaded.graph.node),
        dict(
            sorted(Counter(op.kind for op in normal.graph.ops).items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        macs,
        params,
        activations,
        _weight_bytes(loaded),
        _precision(normal),
        tokens,
        max_tokens,
        tuple(_repeated_blocks(text)),
        similar,
        tuple(_warnings(loaded, shapes, costs.problem, tokens, max_tokens, similar)),
    )


def _value(name: str, tensor: Tensor) -> Value:
    """Return the description of an input or output."""
    kind = tensor.elements.WhichOneof("value").removesuffix("_type") if tensor.elements is not None else ""
    shape = tensor.shape
    if shape is not None:  # sizes without a name in the file
        shape = tuple([None if isinstance(d, str) and d.startswith("?") else d for d in shape])
    type_ = kind or ("" if tensor.dtype in (0, NOT_A_TENSOR) else type_name(tensor.dtype))
    return Value(name, type_, shape)


def _inputs(normal: Normalizer) -> tuple[Value, ...]:
    """Return the inputs of a network."""
    return tuple([_value(normal.network.names[v], normal.tensors[v]) for v in normal.graph.inputs])


def _outputs(normal: Normalizer, model: onnx.ModelProto) -> tuple[Value, ...]:
    """Return the outputs of a network."""
    pairs = zip(model.graph.output, normal.graph.outputs, strict=True)
    return tuple([_value(o.name, normal.tensors[v]) for o, v in pairs])


def _weight_bytes(model: onnx.ModelProto) -> int:
    """Return the bytes of all tensors that a model stores, those in other files included."""
    tensors = list(model.graph.initializer)
    tensors += [
        a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.HasField("t")
    ]
    return sum([_num_bytes(t) for t in tensors])


def _num_bytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a tensor."""
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    if name in ("UNDEFINED", "STRING"):
        return sum(map(len, tensor.string_data))
    bits = 4 if name.endswith("INT4") or name == "FLOAT4E2M1" else 2 if name.endswith("INT2") else 0
    bits = bits or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return -(-math.prod(tensor.dims) * bits // 8)


def _precision(normal: Normalizer) -> str:
    """Return the element type of most parameters."""
    sizes: Counter[str] = Counter()
    for op in normal.graph.ops:
        for k, v in enumerate(op.inputs):
            tensor = None if v is None else normal.tensors[v]
            if tensor is None or not tensor.is_static or k in QUANTIZATION_PARAMETERS.get(op.kind, ()):
                continue
            kind, size = op.kind.rpartition(".")[2], num_elements(tensor.shape) or 0
            if kind in _PACKED_BITS and k == 1:
                sizes[f"int{op.attributes.get('bits', _PACKED_BITS[kind])}"] += 2 * size
            elif k in INTEGER_WEIGHTS.get(op.kind, ()) and tensor.dtype not in FLOATS:
                sizes[type_name(tensor.dtype).removeprefix("u")] += size
            elif tensor.dtype in FLOATS and tensor.shape:
                name = type_name(tensor.dtype)
                sizes[{"float": "float32", "double": "float64"}.get(name, name)] += size
    return sizes.most_common(1)[0][0] if sizes else ""


def _repeated_blocks(text: str) -> list[tuple[str, int]]:
    """Return the operators and the occurrences of each function that occurs several times."""
    scopes = re.split(r"\n<domain:[^\n]*\n", text)
    bodies = {scope.partition("(")[0].partition("<")[0]: scope for scope in scopes[1:]}
    calls = {name: Counter(re.findall(r"=f\.(\w+)", body)) for name, body in bodies.items()}
    total: Counter[str] = Counter()

    def count(found: Mapping[str, int], times: int) -> None:
        for name, n in found.items():
            total[name] += n * times
            count(calls.get(name, {}), n * times)

    count(Counter(re.findall(r"=f\.(\w+)", scopes[0])), 1)
    described = []
    for name, n in total.most_common():
        if n > 1 and name in bodies:
            steps = re.findall(r"=(?:f\.)?([\w.]+?)(?:_[a-q]{4,32})?[<(]", bodies[name])
            described.append((" ".join(s for s in steps if s != "Constant"), n))
    return described


def _layers(text: str) -> Counter[str]:
    """Return how often each layer, whatever its sizes, occurs in a text."""
    return Counter(_LAYER.findall(text))


@lru_cache(maxsize=64)
def _space_layers(name: str) -> tuple[frozenset[str], float, float]:
    """Return the layers of random architectures of a space, and the range of their multiply-accumulates."""
    space, rng = search_spaces.get(name), np.random.default_rng(0)
    texts = from_architectures(space, [space.sample(rng) for _ in range(NUM_SPACE_SAMPLES)])
    macs = [compute_costs(parse_network(t)).sums()[0] or 0 for t in texts]
    return frozenset(layer for t in texts for layer in _layers(t)), min(macs), max(macs)


def _similar_spaces(text: str, macs: int | None, trained_on: tuple[str, ...]) -> tuple[SimilarSpace, ...]:
    """Return the spaces of a model's training data that have most of a network's layers."""
    layers, found = _layers(text), []
    for name in trained_on:
        if name not in search_spaces.names():
            continue
        known, low, high = _space_layers(name)
        share = sum([n for layer, n in layers.items() if layer in known]) / max(1, sum(layers.values()))
        found.append(SimilarSpace(name, share, macs is not None and low <= macs <= high))
    found.sort(key=lambda s: (-s.known_layers, not s.macs_in_range, s.space))
    return tuple(found[:NUM_SIMILAR_SPACES])


def _warnings(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    problem: str,
    tokens: int,
    max_tokens: int,
    similar: Sequence[SimilarSpace],
) -> list[str]:
    """Return what makes the costs or predictions of a network unreliable."""
    warnings = []
    if problem:
        try:
            check_input_shapes(apply_input_shapes(inputs_only(model), shapes))
            warnings.append(problem)
        except ValueError as error:
            warnings.append(f"the costs are not known: {error}")
    if tokens > max_tokens:
        warnings.append(
            f"the text has {counted(tokens, 'token')}, of which the model reads the first {max_tokens:,}"
        )
    if similar and similar[0].known_layers < MIN_KNOWN_LAYERS:
        warnings.append(
            f"{similar[0].known_layers:.0%} of the layers occur in {similar[0].space}, the most similar space"
            " that the model was trained on: predictions are extrapolations"
        )
    return warnings
