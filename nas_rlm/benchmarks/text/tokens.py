"""Tokens and statements of texts, and texts per second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.data.reference_networks import export_all
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Table
from nas_rlm.graph.cache import gc_paused
from nas_rlm.model.checkpoint import AnyTokenizer
from nas_rlm.text import from_architectures, from_onnx
from nas_rlm.text.statements import split_statements
from search_spaces import SearchSpace


@dataclass(frozen=True)
class TextLengths:
    """Lengths of texts.

    Args:
        tokens: number of tokens of each text.
        statements: number of statements of each text, over which a network with statement layers attends.
    """

    tokens: list[int]
    statements: list[int]

    @classmethod
    def of(cls, token_ids: Sequence[Sequence[int]], tokenizer: AnyTokenizer) -> TextLengths:
        """Return the lengths of tokenized texts."""
        kinds = tokenizer.kinds()
        splits = (split_statements(np.array([ids]), kinds) for ids in token_ids)
        return cls(list(map(len, token_ids)), [split.unique_index.shape[1] for split in splits])


def measure_text_speed(
    space: SearchSpace[Any], tokenizer: AnyTokenizer, count: int, seed: int = 0
) -> tuple[TextLengths, float]:
    """Measure lengths and speed of the texts of random networks.

    Args:
        space: the search space.
        tokenizer: the tokenizer.
        count: number of networks; as many others are read first to fill the caches.
        seed: seed of the networks.

    Returns:
        The lengths, and networks per second from architecture to token ids, on one core, with warm caches.
    """
    rng = np.random.default_rng(seed)
    warm_up, architectures = ([space.sample(rng) for _ in range(count)] for _ in range(2))
    for text in from_architectures(space, warm_up):
        tokenizer.encode(text)
    with gc_paused():  # as `RLM.predict` does
        start = time.perf_counter()
        token_ids = [tokenizer.encode(text) for text in from_architectures(space, architectures)]
        elapsed = time.perf_counter() - start
    return TextLengths.of(token_ids, tokenizer), count / elapsed


def table_text_lengths(table: Table, tokenizer: AnyTokenizer, max_rows: int, seed: int = 0) -> TextLengths:
    """Return the lengths of the texts of a table's rows.

    Args:
        table: the table.
        tokenizer: the tokenizer.
        max_rows: number of random rows; all rows if the table has fewer.
        seed: seed of the rows.
    """
    indices = np.random.default_rng(seed).permutation(len(table))[:max_rows]
    texts = texts_of_rows([table.rows[i] for i in indices])
    return TextLengths.of([tokenizer.encode(text) for text in texts], tokenizer)


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
