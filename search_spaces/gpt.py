"""GPT: decoder-only language models with a width, and heads and an MLP ratio for each block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import inf, log
from typing import Any

import numpy as np

from search_spaces.graph import Constant, Graph, Table, Value
from search_spaces.notation import abbreviated, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

VOCABULARY, NUM_TOKENS = 50_254, 1024
HEAD_WIDTH = 64  # features of a head, whatever the width of the network
ROTARY_BASE = 10_000.0
MLP_RATIOS, BIASES = (2, 3, 4), (False, True)
KEYS = ("embed_dim", "n_layer", "n_head", "mlp_ratio", "bias")
SLICE_END = int(np.iinfo(np.int32).max)  # a Slice to the end of an axis


@dataclass(frozen=True)
class LanguageModel:
    """An architecture.

    Args:
        embed_dim: features of a token.
        heads: number of attention heads of each block.
        mlp_ratios: hidden features of each block's MLP, as a multiple of `embed_dim`.
        bias: whether the linear layers of the blocks have biases.
    """

    embed_dim: int
    heads: tuple[int, ...]
    mlp_ratios: tuple[int, ...]
    bias: bool

    def __str__(self) -> str:
        values = self.embed_dim, len(self.heads), list(self.heads), list(self.mlp_ratios), self.bias
        return json.dumps(dict(zip(KEYS, values, strict=True)))


class _GPT(SearchSpace[LanguageModel]):
    """Base class of the language models of HW-GPT-Bench (Sukthanker et al. 2024).

    A token embedding; blocks of causal self-attention with rotary positions and a gated MLP, each after a
    layer norm and with a shortcut; a layer norm; and a linear layer to the vocabulary. The network reads the
    ids of `batch_size` sequences of tokens, as many as the benchmark counts and measures. A genome has genes
    for the largest number of blocks; those of blocks beyond the depth do not matter and are 0 in `encode`.

    `flops` counts all matrix products, those between queries, keys and values as well. The benchmark does not
    count these: see `published_flops`.

    Attributes:
        widths: choices of the features of a token.
        depths: choices of the number of blocks, in ascending order.
        head_counts: choices of the number of heads of a block.
        vocabulary: number of different tokens.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    head_counts: tuple[int, ...]
    vocabulary = VOCABULARY
    input_shape = (NUM_TOKENS,)
    input_type = "int64"

    def __init__(self) -> None:
        max_depth = self.depths[-1]
        block_choices = len(self.head_counts) * len(MLP_RATIOS)
        self.size = len(self.widths) * len(BIASES) * sum(block_choices**depth for depth in self.depths)
        self.genes = (
            *(len(self.widths), len(self.depths), len(BIASES)),
            *(len(self.head_counts),) * max_depth,
            *(len(MLP_RATIOS),) * max_depth,
        )
        self._expected = f"JSON with {', '.join(KEYS)} such as {self.decode(np.zeros(len(self.genes)))}"

    def decode(self, genome: np.ndarray) -> LanguageModel:
        width, depth, bias, *blocks = self.validate_genome(genome)
        num_blocks, max_depth = self.depths[depth], self.depths[-1]
        return LanguageModel(
            self.widths[width],
            tuple(self.head_counts[g] for g in blocks[:num_blocks]),
            tuple(MLP_RATIOS[g] for g in blocks[max_depth : max_depth + num_blocks]),
            BIASES[bias],
        )

    def encode(self, architecture: LanguageModel) -> np.ndarray:
        max_depth = self.depths[-1]
        blocks = np.zeros((2, max_depth), dtype=int)
        depth = len(architecture.heads)
        blocks[0, :depth] = [self.head_counts.index(h) for h in architecture.heads]
        blocks[1, :depth] = [MLP_RATIOS.index(r) for r in architecture.mlp_ratios]
        first = self.widths.index(architecture.embed_dim), self.depths.index(depth), int(architecture.bias)
        return np.array([*first, *blocks.reshape(-1)])

    def parse(self, text: str) -> LanguageModel:
        """Return the architecture of a text in the benchmark's notation.

        `n_head` and `mlp_ratio` may have more values than blocks: the first ones count.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """
        content = read_json(text, self._expected, KEYS)
        if not isinstance(content, dict) or len(content) < len(KEYS):
            raise ValueError(f"{abbreviated(text)} is not {self._expected}")
        depth = _choice(content["n_layer"], self.depths, "n_layer", text)
        heads, ratios = (
            tuple(
                _choice(value, choices, f"{key}[{i}]", text)
                for i, value in enumerate(_values(content[key], depth, self.depths[-1], key, text))
            )
            for key, choices in (("n_head", self.head_counts), ("mlp_ratio", MLP_RATIOS))
        )
        if not isinstance(content["bias"], bool):
            raise ValueError(f"bias of {abbreviated(text)} is {content['bias']!r}, expected true or false")
        width = _choice(content["embed_dim"], self.widths, "embed_dim", text)
        return LanguageModel(width, heads, ratios, content["bias"])

    def published_flops(self, architecture: LanguageModel) -> int:
        """Return the multiply-accumulates of linear layers alone, as the benchmark counts them."""
        return self.flops(architecture) - self.attention_flops(architecture)

    def attention_flops(self, architecture: LanguageModel) -> int:
        """Return the multiply-accumulates between queries, keys and values."""
        (num_tokens,) = self.input_shape
        return 2 * self.batch_size * num_tokens**2 * HEAD_WIDTH * sum(architecture.heads)

    def write(self, graph: Graph, architecture: LanguageModel) -> Value:
        embedding = graph.weight(self.vocabulary, architecture.embed_dim)
        (num_tokens,) = self.input_shape
        x = graph.op(
            "Gather", embedding, graph.input, channels=architecture.embed_dim, side=num_tokens, width=0
        )
        for heads, ratio in zip(architecture.heads, architecture.mlp_ratios, strict=True):
            x = graph.block(_attention, x, heads, architecture.bias)
            x = graph.block(_gated_mlp, x, ratio * architecture.embed_dim, architecture.bias)
        return graph.matmul(_layer_norm(graph, x), graph.weight(architecture.embed_dim, self.vocabulary))


class GPTSmall(_GPT):
    """Language models of the scale of GPT-2 small: HW-GPT-Bench's space S.

    Examples:
        >>> space = GPTSmall()
        >>> space.params(space.decode(np.zeros(len(space.genes), dtype=int)))
        23483520
    """

    name = "gpt_s"
    batch_size = 8
    widths, depths, head_counts = (192, 384, 768), (10, 11, 12), (4, 8, 12)


class GPTMedium(_GPT):
    """Language models of the scale of GPT-2 medium: HW-GPT-Bench's space M."""

    name = "gpt_m"
    batch_size = 4
    widths, depths, head_counts = (256, 512, 1024), (22, 23, 24), (8, 12, 16)


class GPTLarge(_GPT):
    """Language models of the scale of GPT-2 large: HW-GPT-Bench's space L."""

    name = "gpt_l"
    widths, depths, head_counts = (320, 640, 1280), (34, 35, 36), (8, 16, 20)


def _choice(value: Any, choices: tuple[int, ...], key: str, text: str) -> int:
    """Return a value of an architecture if it is one of the choices.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or value not in choices:
        raise ValueError(
            f"{key} of {abbreviated(text)} is {value!r}, expected one of {', '.join(map(str, choices))}"
        )
    return choices[choices.index(value)]


def _values(values: Any, depth: int, max_depth: int, key: str, text: str) -> list[Any]:
    """Return the values of the blocks: those of the first `depth` blocks.

    Raises:
        ValueError: they are no list, or too few or too many.
    """
    if not isinstance(values, list) or not depth <= len(values) <= max_depth:
        number = counted(len(values), "value") if isinstance(values, list) else repr(values)
        raise ValueError(
            f"{key} of {abbreviated(text)} is {number}, expected a list of {depth} to {max_depth} values, the"
            f" first {depth} of which count"
        )
    return values[:depth]


def _layer_norm(graph: Graph, x: Value) -> Value:
    """Write a layer norm over the features of tokens."""
    scale, bias = graph.weight(x.channels, fill=1.0), graph.weight(x.channels, fill=0.0)
    return graph.op("LayerNormalization", x, scale, bias)


def _linear(graph: Graph, x: Value, features: int, bias: bool) -> Value:
    """Write a linear layer on the features of tokens."""
    y = graph.matmul(x, graph.weight(x.channels, features))
    return graph.op("Add", y, graph.weight(features, fill=0.0)) if bias else y


def _attention(graph: Graph, x: Value, heads: int, bias: bool) -> Value:
    """Write a layer norm, causal self-attention with rotary positions, and a shortcut."""
    y, num_tokens = _layer_norm(graph, x), x.side
    queries, keys, values = (_project(graph, y, heads, bias) for _ in range(3))
    queries, keys = (graph.block(_rotary_positions, z) for z in (queries, keys))
    scale = Constant(HEAD_WIDTH**-0.25)  # of queries and keys, as in PyTorch
    keys = graph.op("Transpose", keys, side=HEAD_WIDTH, width=num_tokens, perm=[0, 1, 3, 2])
    scores = graph.matmul(graph.op("Mul", queries, scale), graph.op("Mul", keys, scale))
    weights = graph.op("Softmax", graph.op("Add", scores, _causal_mask(num_tokens)))
    merged = graph.op("Transpose", graph.matmul(weights, values), perm=[0, 2, 1, 3])
    features = heads * HEAD_WIDTH
    merged = graph.op(
        "Reshape",
        merged,
        Constant((0, num_tokens, features)),
        channels=features,
        side=num_tokens,
        width=0,
    )
    return graph.op("Add", x, _linear(graph, merged, x.channels, bias))


def _project(graph: Graph, x: Value, heads: int, bias: bool) -> Value:
    """Write the projection of tokens to queries, keys or values: [batch, heads, tokens, HEAD_WIDTH]."""
    y = _linear(graph, x, heads * HEAD_WIDTH, bias)
    split = Constant((0, x.side, heads, HEAD_WIDTH))
    y = graph.op("Reshape", y, split, channels=x.side, side=heads, width=HEAD_WIDTH)
    return graph.op("Transpose", y, channels=heads, side=x.side, width=HEAD_WIDTH, perm=[0, 2, 1, 3])


def _rotary_positions(graph: Graph, x: Value) -> Value:
    """Write the rotation of pairs of features, half a head apart, by angles proportional to the position."""
    half, axis = HEAD_WIDTH // 2, Constant((3,))
    first = graph.op("Slice", x, Constant((0,)), Constant((half,)), axis, width=half, side=x.side)
    second = graph.op("Slice", x, Constant((half,)), Constant((SLICE_END,)), axis, width=half, side=x.side)
    turned = graph.op("Concat", graph.op("Neg", second), first, width=HEAD_WIDTH, side=x.side, axis=3)
    cosines, sines = (_rotary_table(function, x.side) for function in ("Cos", "Sin"))
    return graph.op("Add", graph.op("Mul", x, cosines), graph.op("Mul", turned, sines))


@cache
def _rotary_table(function: str, num_tokens: int) -> Table:
    """Return the cosines or sines of the rotary angles, [num_tokens, HEAD_WIDTH]."""
    half = HEAD_WIDTH // 2
    steps = (
        ("Range", (Constant(0.0), Constant(float(num_tokens)), Constant(1.0)), ()),
        ("Unsqueeze", (0, Constant((1,))), ()),
        ("Range", (Constant(0.0), Constant(float(half)), Constant(1.0)), ()),
        ("Mul", (2, Constant(-log(ROTARY_BASE) / half)), ()),
        ("Exp", (3,), ()),
        ("Mul", (1, 4), ()),
        ("Concat", (5, 5), (("axis", 1),)),
        (function, (6,), ()),
    )
    return Table(f"{function}{num_tokens}_{HEAD_WIDTH}", (num_tokens, HEAD_WIDTH), steps)


@cache
def _causal_mask(num_tokens: int) -> Table:
    """Return the mask that is added to scores: minus infinity for keys after the query, otherwise 0."""
    shape = num_tokens, num_tokens
    steps = (
        ("Expand", (Constant(-inf), Constant(shape)), ()),
        ("Trilu", (0, Constant(1)), (("upper", 1),)),
    )
    return Table(f"Causal{num_tokens}", shape, steps)


def _gated_mlp(graph: Graph, x: Value, hidden: int, bias: bool) -> Value:
    """Write a layer norm, an MLP whose hidden features are gated by their SiLU, and a shortcut."""
    y = _layer_norm(graph, x)
    gate = _linear(graph, y, hidden, bias)
    gate = graph.op("Mul", gate, graph.op("Sigmoid", gate))
    y = graph.op("Mul", gate, _linear(graph, y, hidden, bias))
    return graph.op("Add", x, _linear(graph, y, x.channels, bias))
