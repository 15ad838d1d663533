"""Tokens of texts, and texts per second."""

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
    """Lengths of the texts of a space's networks, and how fast they are made.

    Args:
        median_tokens: median number of tokens of a text.
        mean_tokens: mean number of tokens.
        max_tokens: tokens of the longest text.
        per_second: networks per second from architecture to token ids, on one core, with warm caches.
    """

    median_tokens: float
    mean_tokens: float
    max_tokens: int
    per_second: float


def measure_text_speed(
    space: SearchSpace[Any], tokenizer: AnyTokenizer, count: int, seed: int = 0
) -> TextSpeed:
    """Measure lengths and speed of the texts of random networks.

    Args:
        space: the search space.
        tokenizer: the tokenizer.
        count: number of networks; as many others are read first to fill the caches.
        seed: seed of the networks.
    """
    rng = np.random.default_rng(seed)
    warm_up, architectures = ([space.sample(rng) for _ in range(count)] for _ in range(2))
    for text in from_architectures(space, warm_up):
        tokenizer.encode(text)
    with gc_paused():  # as `RLM.predict` does
        start = time.perf_counter()
        lengths = [len(tokenizer.encode(t)) for t in from_architectures(space, architectures)]
        elapsed = time.perf_counter() - start
    return TextSpeed(float(np.median(lengths)), float(np.mean(lengths)), max(lengths), count / elapsed)


def count_table_tokens(table: Table, tokenizer: AnyTokenizer, max_rows: int, seed: int = 0) -> list[int]:
    """Return the number of tokens of the texts of a table's rows.

    Args:
        table: the table.
        tokenizer: the tokenizer.
        max_rows: number of random rows; all rows if the table has fewer.
        seed: seed of the rows.
    """
    indices = np.random.default_rng(seed).permutation(len(table))[:max_rows]
    return [len(tokenizer.encode(text)) for text in texts_of_rows([table.rows[i] for i in indices])]


@dataclass(frozen=True)
class ExportedTokens:
    """Tokens of the text of a network that torch exported.

    Args:
        exporter: `dynamo` or `torchscript`.
        operators: operators of the exported graph.
        flat: tokens of the text without functions.
        outlined: tokens of the text that the model reads, with repeated blocks as functions.
        unknown: bytes of that text for which the tokenizer has no piece.
    """

    exporter: str
    operators: int
    flat: int
    outlined: int
    unknown: int


def count_exported_tokens(name: str, tokenizer: AnyTokenizer) -> list[ExportedTokens]:
    """Return the tokens of a reference network, for each exporter that can write it.

    Args:
        name: a network of `nas_rlm.data.reference_networks`.
        tokenizer: the tokenizer.
    """
    counts = []
    for exporter, model in export_all(name):
        flat, outlined = (tokenizer.encode(from_onnx(model, outlined=o)) for o in (False, True))
        unknown = tokenizer.num_unknown(outlined)
        counts.append(ExportedTokens(exporter, len(model.graph.node), len(flat), len(outlined), unknown))
    return counts
