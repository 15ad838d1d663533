"""How good and how fast: fronts looked up in a table of measurements, texts a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.data.reference_networks import export_all
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Table
from nas_rlm.graph.cache import gc_paused
from nas_rlm.model.checkpoint import AnyTokenizer
from nas_rlm.text import from_architectures, from_onnx
from search_spaces import SearchSpace


@dataclass(frozen=True)
class TextSpeed:
    """What texts of a space cost.

    Args:
        tokens, mean: of a network, the median and the mean.
        most: of the longest.
        per_second: networks from genotype to token ids on one core, once as many have been read before.
    """

    tokens: float
    mean: float
    most: int
    per_second: float


def text_speed(space: SearchSpace[Any], tokenizer: AnyTokenizer, count: int, seed: int = 0) -> TextSpeed:
    """Measure the way from random genotypes to token ids.

    Args:
        space: where the genotypes come from.
        tokenizer: whose tokens are counted.
        count: of networks.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    warm, architectures = ([space.sample(rng) for _ in range(count)] for _ in range(2))
    for text in from_architectures(space, warm):
        tokenizer.encode(text)
    with gc_paused():  # as `RLM.predict` does
        start = time.perf_counter()
        lengths = [len(tokenizer.encode(t)) for t in from_architectures(space, architectures)]
        elapsed = time.perf_counter() - start
    return TextSpeed(float(np.median(lengths)), float(np.mean(lengths)), max(lengths), count / elapsed)


def table_tokens(table: Table, tokenizer: AnyTokenizer, count: int, seed: int = 0) -> list[int]:
    """Tokens of the texts of rows of a table: of so many that are drawn, or of all if there are fewer."""
    drawn = np.random.default_rng(seed).permutation(len(table))[:count]
    return [len(tokenizer.encode(text)) for text in texts_of_rows([table.rows[i] for i in drawn])]


@dataclass(frozen=True)
class ForeignTokens:
    """What the text of an exported network costs.

    Args:
        exporter: "dynamo" or "torchscript".
        operators: of the exported graph.
        flat: tokens without functions.
        outlined: tokens of the text that a model reads.
        unknown: bytes for which the tokenizer has no piece, in the latter.
    """

    exporter: str
    operators: int
    flat: int
    outlined: int
    unknown: int


def foreign_tokens(name: str, tokenizer: AnyTokenizer) -> list[ForeignTokens]:
    """Measure a reference network of `nas_rlm.data.reference_networks`, by each exporter that can write it."""
    found = []
    for exporter, model in export_all(name):
        flat, outlined = (tokenizer.encode(from_onnx(model, outlined=o)) for o in (False, True))
        unknown = tokenizer.num_unknown(outlined)
        found.append(ForeignTokens(exporter, len(model.graph.node), len(flat), len(outlined), unknown))
    return found
