"""Batches of texts: tokens padded to one length, and predictions in the order of the texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from nas_rlm.text.tokenizer import PAD
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import as_list, is_whole_number
from search_spaces.wording import counted

Batch = list[tuple[str, list[int]]]  # texts and their token ids
DEFAULT_BATCH_SIZE = 64  # texts
MIN_CHUNK_SIZE, MAX_CHUNK_SIZE = 32, 512  # architectures that a process reads at a time
MAX_BATCH_TOKENS = 2**15
MAX_BATCH_PAIRS = 2**26  # of tokens of one text, since memory grows with the square of a text's length
MAX_NAMED_TEXTS, MAX_NAME_LENGTH = 100, 120  # in a warning; characters of a name
_text_names: ContextVar[Sequence[str]] = ContextVar("text_names", default=())


class TruncationWarning(UserWarning):
    """Texts are longer than the network reads: what it computes rests on their first part."""


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
        batch_size: maximum number of texts in a batch; `max_batch_size` also limits it.

    Raises:
        ValueError: a text is empty, or batch_size is not a positive integer.

    Returns:
        Batches of pairs of a text and its token ids.

    Warns:
        TruncationWarning: texts are truncated.
    """
    texts = as_list(texts, "texts")
    if not is_whole_number(batch_size) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}: expected an integer of at least 1")
    tokenized = [(text, encode(text)) for text in dict.fromkeys(texts)]
    if not all(ids for _, ids in tokenized):
        raise ValueError(f"text {texts.index('')} is empty: expected ONNX text, see nas_rlm.text.from_onnx")
    too_long = {text: len(ids) for text, ids in tokenized if len(ids) > max_length}
    if too_long:
        named = zip(names_of_texts(len(texts)), texts, strict=True)
        truncated = [(name, too_long[text]) for name, text in named if text in too_long]
        warnings.warn(_describe_truncated(truncated, max_length), TruncationWarning, stacklevel=5)
    batches: list[Batch] = []
    for text, ids in sorted(tokenized, key=lambda pair: len(pair[1])):
        ids = ids[:max_length]
        if not batches or len(batches[-1]) >= min(batch_size, max_batch_size(len(ids))):
            batches.append([])
        batches[-1].append((text, ids))
    return batches


def max_batch_size(length: int) -> int:
    """Return the maximum number of texts of `length` tokens in a batch, which bounds its memory."""
    return max(1, min(MAX_BATCH_TOKENS // length, MAX_BATCH_PAIRS // length**2))


@contextmanager
def named_texts(names: Sequence[str]) -> Iterator[None]:
    """Within the context, warnings name the texts instead of giving their indices.

    Args:
        names: name of each text of the predictions in the context.
    """
    token = _text_names.set(names)
    try:
        yield
    finally:
        _text_names.reset(token)


def names_of_texts(count: int) -> Sequence[str]:
    """Return the names of N texts for warnings, see `named_texts`.

    Args:
        count: number N of texts.
    """
    return _text_names.get() or [f"text {i}" for i in range(count)]


def _describe_truncated(truncated: Sequence[tuple[str, int]], max_length: int) -> str:
    """Return one line on the names and numbers of tokens of truncated texts."""
    listed = [
        f"{name[:MAX_NAME_LENGTH]} ({counted(length, 'token')})"
        for name, length in truncated[:MAX_NAMED_TEXTS]
    ]
    num_others = len(truncated) - len(listed)
    listed += [counted(num_others, "other")] if num_others else []
    return f"the model reads only the first {counted(max_length, 'token')} of {', '.join(listed)}"


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
