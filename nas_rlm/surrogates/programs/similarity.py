"""Similarity of programs to labelled ones, by random projections of their n-grams.

The inner product of two projections estimates the cosine of the n-grams (Johnson and Lindenstrauss 1984). A
projection is a few bytes where the n-grams themselves are thousands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

DIMENSION = 64
SCALE = 127.0  # of a component in a byte
POWER, PRIOR_WEIGHT = 8, 0.05  # of similarities as weights of labels, and of the mean label 0
CHUNK_SIZE = 1024  # rows that are compared at a time


def project(ngrams: csr_matrix) -> np.ndarray:
    """Return projections of unit length in steps of a byte, int8 [N, DIMENSION].

    Args:
        ngrams: features, sparse [N, F].
    """
    projected = ngrams @ _signs(ngrams.shape[1])
    lengths = np.linalg.norm(projected, axis=1, keepdims=True)
    unit: np.ndarray = np.rint(SCALE * projected / np.maximum(lengths, 1e-9)).astype(np.int8)
    return unit


@lru_cache(maxsize=2)
def _signs(num_features: int) -> np.ndarray:
    """Return random signs, float32 [F, DIMENSION]."""
    bits = np.random.default_rng(0).integers(0, 256, (num_features, DIMENSION // 8), dtype=np.uint8)
    return np.unpackbits(bits, axis=1).astype(np.float32) * 2 - 1


def nearest(
    projections: np.ndarray,
    labelled: np.ndarray,
    scores: np.ndarray,
    left_out: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest similarity to a labelled program, and the mean label of similar ones.

    Args:
        projections: projections of N programs, int8 [N, DIMENSION].
        labelled: projections of M labelled programs, int8 [M, DIMENSION].
        scores: their normal scores, float [M].
        left_out: a group of each of the N and of the M programs, int [N] and [M]; labelled programs of the
            same group are not compared.

    Returns:
        Similarities, float32 [N], and means, float32 [N].
    """
    similarities, means = np.zeros(len(projections), np.float32), np.zeros(len(projections), np.float32)
    columns = labelled.astype(np.float32).T / SCALE
    for start in range(0, len(projections), CHUNK_SIZE):
        part = slice(start, start + CHUNK_SIZE)
        cosines = (projections[part].astype(np.float32) / SCALE) @ columns
        if left_out is not None:
            cosines[left_out[0][part, None] == left_out[1][None]] = 0.0
        weights = cosines.clip(0) ** POWER
        similarities[part] = cosines.max(1, initial=0.0)
        means[part] = weights @ scores.astype(np.float32) / (weights.sum(1) + PRIOR_WEIGHT)
    return similarities, means
