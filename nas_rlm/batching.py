"""Texts in batches: their tokens padded to one length, and what was found of them in their own order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from tqdm import tqdm

from nas_rlm.text.tokenizer import PAD

Batch = list[tuple[str, list[int]]]  # texts with their tokens


def pad(sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Sequences as one int64 [B, T] tensor, padded at the end."""
    batch = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(batch, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(batch)


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
