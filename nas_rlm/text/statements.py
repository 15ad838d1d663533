"""Texts as statements: each different one is read by itself, and names tell which of them belong together.

Networks of a space say much the same in most of their statements, but for the names of values. So what one
says besides names is worked out once, and a model reads a few dozen statements in the place of hundreds of
tokens. Statements that are a chain, each the only reader of the one before, are one, and so is a short
function, whose names are the same in every network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

LONGEST = 32  # tokens of a statement or function; a longer one is several statements


class Statements(NamedTuple):
    """B texts, each of up to S statements.

    Args:
        different: the tokens of each, int64 bytes; but for names, unless it is a function.
        places: int64 [B, S], which of the different ones each is; -1 fills up.
        names: int64 [B, S, N], those that each says besides, padded at the end; of a chain what it makes and
            what it reads.
        sources: bool [B, S, S]: the second brings a name into its scope that the first says as well.
    """

    different: list[bytes]
    places: np.ndarray
    names: np.ndarray
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
    rows, pairs, said = [], [], []
    for b, row in enumerate(ids):
        row = row[row != PAD]
        here: list[int] = []
        for scope in np.split(row, np.flatnonzero(kinds[row] & ENDS_SCOPE) + 1):
            first: dict[int, int] = {}
            for key, names in _of_scope(scope, kinds[scope]):
                s = len(here)
                here.append(known.setdefault(key, len(known)))
                said.append(names)
                for name in names:
                    source = first.setdefault(name, s)
                    if source != s:
                        pairs.append((b, s, source))
        rows.append(here)
    sizes = list(map(len, rows))
    filled = np.arange(max(sizes)) < np.array(sizes)[:, None]
    places = np.full(filled.shape, -1)
    places[filled] = np.concatenate(rows)
    of_each = np.array(list(map(len, said)))
    most = max(1, of_each.max())
    names_of_each = np.full((len(said), most), PAD)
    names_of_each[np.arange(most) < of_each[:, None]] = list(chain.from_iterable(said))
    all_names = np.full((*filled.shape, most), PAD)
    all_names[filled] = names_of_each
    sources = np.zeros((*filled.shape, max(sizes)), dtype=bool)
    if pairs:
        sources[tuple(np.array(pairs).T)] = True
    return Statements(list(known), places, all_names, sources)


def _of_scope(scope: np.ndarray, kind: np.ndarray) -> Iterator[tuple[bytes, list[int]]]:
    """What the statements of a network or function say, and the names that they say besides."""
    if len(scope) <= LONGEST:
        if len(scope):
            yield scope.tobytes(), []
        return
    is_name, starts, size = kind & IDENTIFIER > 0, _starts(kind), scope.itemsize
    names, rest = scope[is_name].tolist(), scope[~is_name].tobytes()
    named = np.concatenate([[0], is_name.cumsum()])[starts].tolist()
    times = Counter(names)
    run, own = b"", list[int]()
    for (start, end), (a, z) in zip(pairwise(starts), pairwise(named), strict=True):
        key, said = rest[size * (start - a) : size * (end - z)], names[a:z]
        is_next = z - a == 2 and own[:1] == said[1:] and times[said[1]] == 2
        if is_next and len(run) + len(key) <= size * LONGEST:
            run, own = run + key, [said[0], *own[1:]]
            continue
        if start:
            yield run, own
        run, own = key, said
    yield run, own


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
        found.setdefault(1 << max(0, len(raw) // 8 - 1).bit_length(), []).append(i)
    return found


def in_order(groups: dict[int, list[int]]) -> np.ndarray:
    """Where each statement is, int64 [S], among those of the groups one after the other."""
    return np.argsort([i for group in groups.values() for i in group])
