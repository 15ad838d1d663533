"""Batches of texts: tokens padded to one length, and predictions in the order of the texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from nas_rlm.text.tokenizer import PAD
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import as_list

Batch = list[tuple[str, list[int]]]  # texts and their token ids
DEFAULT_BATCH_SIZE = 64  # texts
MIN_CHUNK_SIZE, MAX_CHUNK_SIZE = 32, 512  # architectures that a process reads at a time
MAX_BATCH_TOKENS = 2**15


def pad(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return sequences of token ids as one int64 array [B, T], padded at the end."""
    batch = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(batch, sequences, strict=True):
        row[: len(sequence)] = sequence
    return batch


def make_batches(
    texts: Sequence[str],
    encode: Callable[[str], list[int]],
    max_length: int,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[Batch]:
    """Tokenize each distinct text and group the texts into batches of similar length.

    Args:
        texts: ONNX texts of networks, or programs.
        encode: function that returns the token ids of a text.
        max_length: token sequences are truncated to this length.
        batch_size: maximum number of texts in a batch; `MAX_BATCH_TOKENS` also limits it.

    Raises:
        ValueError: a text is empty, or batch_size is not a positive integer.

    Returns:
        Batches of pairs of a text and its token ids.

    Warns:
        UserWarning: a text is truncated.
    """
    texts = as_list(texts, "texts")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}: expected an integer of at least 1")
    tokenized = [(text, encode(text)) for text in dict.fromkeys(texts)]
    if not all(ids for _, ids in tokenized):
        raise ValueError(f"text {texts.index('')} is empty: expected ONNX text, see nas_rlm.text.from_onnx")
    warn_of_truncation(
        [(texts.index(t), len(ids)) for t, ids in tokenized if len(ids) > max_length], max_length
    )
    batches: list[Batch] = []
    for text, ids in sorted(tokenized, key=lambda pair: len(pair[1])):
        ids = ids[:max_length]
        if not batches or len(batches[-1]) >= min(batch_size, max(1, MAX_BATCH_TOKENS // len(ids))):
            batches.append([])
        batches[-1].append((text, ids))
    return batches


def warn_of_truncation(lengths: Sequence[tuple[int, int]], max_length: int) -> None:
    """Warn that predictions rest on a part of texts.

    Args:
        lengths: index and number of tokens of each text that is too long.
        max_length: number of tokens that the model reads.
    """
    if lengths:
        index, length = lengths[0]
        more = f", and {len(lengths) - 1:,} further texts" if len(lengths) > 1 else ""
        warnings.warn(
            f"text {index} has {length:,} tokens{more}: the model reads only the first {max_length:,}, on"
            " which the prediction rests",
            stacklevel=6,
        )


def gather_predictions(
    texts: Sequence[str],
    batches: Sequence[Batch],
    predictions: Iterable[np.ndarray],
    shape: tuple[int, ...],
    progress: bool,
) -> np.ndarray:
    """Return the predictions of batches in the order of the texts.

    Args:
        texts: N texts.
        batches: batches of the distinct texts, from `make_batches`.
        predictions: predictions of each batch, float [B, *shape]; consumed one by one.
        shape: shape of the predictions of one text.
        progress: show a progress bar.

    Returns:
        float64 [N, *shape].
    """
    by_text: dict[str, np.ndarray] = {}
    total = sum(map(len, batches))
    with progress_bar(total=total, disable=not progress, unit="net", desc="predict") as bar:
        for batch, rows in zip(batches, predictions, strict=True):
            by_text.update((text, row) for (text, _), row in zip(batch, rows, strict=True))
            bar.update(len(batch))
    return np.array([by_text[text] for text in texts], dtype=float).reshape(-1, *shape)


def chunk_size(count: int) -> int:
    """Return the number of architectures in a chunk, the unit of work of a process.

    The number of chunks is 1, 2, 4 or a multiple of 8, so that 2, 4 or 8 processes finish at the same time.

    Examples:
        >>> chunk_size(1001)
        126

    Args:
        count: number of all architectures.
    """
    chunks = next((n for n in (8, 4, 2) if count >= n * MIN_CHUNK_SIZE), 1)
    rounds = max(1, -(-count // (chunks * MAX_CHUNK_SIZE)))
    return max(1, -(-count // (chunks * rounds)))
