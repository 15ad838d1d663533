"""Texts as statements: each different one is read by itself, and names tell which of them belong together.

Networks of a space say much the same in most of their statements. So what a statement says is worked out
once, and a model reads a few dozen of them in the place of hundreds of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

LONGEST = 32  # tokens of a statement; a longer one is several


class Statements(NamedTuple):
    """B texts, each of up to S statements.

    Args:
        different: the tokens of each, int64 bytes.
        places: int64 [B, S], which of the different ones each is; -1 fills up.
        sources: bool [B, S, S]: the second brings a name into its scope that the first says as well.
    """

    different: list[bytes]
    places: np.ndarray
    sources: np.ndarray


def statements(ids: np.ndarray, kinds: np.ndarray) -> Statements:
    """Cut texts into statements.

    >>> cut = statements(np.array([[5, 9, 5, 9, 6, 9]]), kinds=np.eye(10, dtype=np.uint8)[9] * ENDS_STATEMENT)
    >>> len(cut.different), cut.places.tolist()
    (2, [[0, 0, 1]])

    Args:
        ids: int64 [B, T], padded at the end.
        kinds: uint8 [vocab_size], see `Tokenizer.kinds`.
    """
    known: dict[bytes, int] = {}
    told: list[tuple[list[int], bool]] = []  # of each different one, its names, and whether a scope ends
    rows, pairs = [], []
    for b, row in enumerate(ids):
        row = row[row != PAD]
        raw, size, here = row.tobytes(), row.itemsize, []
        first: dict[int, int] = {}
        starts = _starts(kinds[row])
        for s, (start, end) in enumerate(pairwise(starts)):
            key = raw[size * start : size * end]
            place = known.setdefault(key, len(known))
            if place == len(told):
                some = row[start:end]
                kind = kinds[some]
                told.append((some[kind & IDENTIFIER > 0].tolist(), bool((kind & ENDS_SCOPE).any())))
            here.append(place)
            names, is_end = told[place]
            for name in names:
                source = first.setdefault(name, s)
                if source != s:
                    pairs.append((b, s, source))
            if is_end:
                first = {}
        rows.append(here)
    most = max(map(len, rows))
    places = np.full((len(rows), most), -1)
    for b, here in enumerate(rows):
        places[b, : len(here)] = here
    sources = np.zeros((len(rows), most, most), dtype=bool)
    if pairs:
        sources[tuple(np.array(pairs).T)] = True
    return Statements(list(known), places, sources)


def _starts(kind: np.ndarray) -> list[int]:
    """Where statements start, and where the last one ends."""
    starts = [0, *(np.flatnonzero(kind[:-1] & ENDS_STATEMENT) + 1).tolist(), len(kind)]
    if max(np.diff(starts)) <= LONGEST:
        return starts
    return sorted({*starts, *(at for a, z in pairwise(starts) for at in range(a, z, LONGEST))})


def read(some: Sequence[bytes], length: int, rows: int = 0) -> np.ndarray:
    """Statements as tokens, int64 [rows, length]: padded, and at least as many rows as are asked for."""
    ids = np.full((max(rows, len(some)), length), PAD, dtype=np.int64)
    for row, raw in zip(ids, some, strict=False):
        row[: len(raw) // 8] = np.frombuffer(raw, dtype=np.int64)
    return ids


def by_length(different: Sequence[bytes]) -> dict[int, list[int]]:
    """Which statements have up to 1, 2, 4, ... tokens; `in_order` undoes it."""
    found: dict[int, list[int]] = {}
    for i, raw in enumerate(different):
        found.setdefault(1 << (len(raw) // 8 - 1).bit_length(), []).append(i)
    return found


def in_order(groups: dict[int, list[int]]) -> np.ndarray:
    """Where each statement is, int64 [S], among those of the groups one after the other."""
    return np.argsort([i for group in groups.values() for i in group])
