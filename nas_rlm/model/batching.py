"""Texts in batches: their tokens padded to one length, and what was found of them in their own order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tqdm import tqdm

from nas_rlm.text.tokenizer import PAD
from nas_rlm.utils.validation import listed

Batch = list[tuple[str, list[int]]]  # texts with their tokens
MOST = 64  # texts of a batch, where nobody says
TOKENS = 2**15  # of a batch, at most


def pad(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Sequences as one int64 [B, T] array, padded at the end."""
    batch = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(batch, sequences, strict=True):
        row[: len(sequence)] = sequence
    return batch


def in_batches(
    texts: Sequence[str], encode: Callable[[str], list[int]], longest: int, batch_size: int = MOST
) -> list[Batch]:
    """Each distinct text with its tokens, in batches of similar length.

    Args:
        texts: of networks or programs.
        encode: from a text to its tokens.
        longest: so many of them are read.
        batch_size: texts of a batch, at most.

    Raises:
        ValueError: an empty text, or no size of a batch.

    Warns:
        UserWarning: a text is longer than what is read.
    """
    texts = listed(texts, "texts")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}: expected a whole number from 1 on")
    read = [(text, encode(text)) for text in dict.fromkeys(texts)]
    if not all(ids for _, ids in read):
        raise ValueError(f"text {texts.index('')} is empty: expected ONNX text, see nas_rlm.text.from_onnx")
    found = max((len(ids) for _, ids in read), default=0)
    if found > longest:
        warnings.warn(
            f"a network has {found:,} tokens, of which the model reads the first {longest:,}", stacklevel=5
        )
    batches: list[Batch] = []
    for text, ids in sorted(read, key=lambda one: len(one[1])):
        ids = ids[:longest]
        if not batches or len(batches[-1]) >= min(batch_size, max(1, TOKENS // len(ids))):
            batches.append([])
        batches[-1].append((text, ids))
    return batches


def gathered(
    texts: Sequence[str],
    batches: Sequence[Batch],
    values: Iterable[np.ndarray],
    shape: tuple[int, ...],
    progress: bool,
) -> np.ndarray:
    """What was found of batches, for each text: float64 [N, *shape].

    Args:
        texts: N texts.
        batches: of them, see `RLM.in_batches`.
        values: of each batch, one after the other.
        shape: of one text's numbers.
        progress: show a bar.
    """
    found: dict[str, np.ndarray] = {}
    total = sum(map(len, batches))
    with tqdm(total=total, disable=not progress, unit="net", desc="predict") as bar:
        for batch, numbers in zip(batches, values, strict=True):
            found.update((text, own) for (text, _), own in zip(batch, numbers, strict=True))
            bar.update(len(batch))
    return np.array([found[text] for text in texts], dtype=float).reshape(-1, *shape)
