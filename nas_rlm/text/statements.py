"""Splitting of tokenized texts into statements, so that a model encodes each distinct statement once.

Most statements of the networks of a space differ only in the names of values. A statement is therefore
represented by its tokens without names and, separately, by its names: a model reads a few dozen statements in
place of hundreds of tokens. Consecutive statements in which each is the only reader of the previous one count
as one statement, and so does a short function, whose names are the same in every network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

MAX_STATEMENT_TOKENS = 32  # longer statements and functions are split


class Statements(NamedTuple):
    """The statements of B texts, up to S in each.

    Args:
        unique: each distinct statement as the bytes of its int64 token ids, without names of values except in
            short functions.
        unique_index: int64 [B, S], index into `unique`; -1 for padding.
        names: int64 [B, S, N], token ids of the names in each statement, padded at the end. Statements that
            are merged into one have only the name that the last one defines and those that the first reads.
        sources: bool [B, S, S], True at [b, i, j] if statement j is the first of its scope to contain a name
            that statement i contains too.
    """

    unique: list[bytes]
    unique_index: np.ndarray
    names: np.ndarray
    sources: np.ndarray


def split_statements(ids: np.ndarray, kinds: np.ndarray) -> Statements:
    """Split tokenized texts into statements.

    Examples:
        >>> kinds = np.eye(10, dtype=np.uint8)[9] * ENDS_STATEMENT
        >>> cut = split_statements(np.array([[5, 9] * 20 + [6, 9]]), kinds)
        >>> len(cut.unique), cut.unique_index.shape, cut.unique_index[0, -2:].tolist()
        (2, (1, 21), [0, 1])

    Args:
        ids: token ids, int64 [B, T], padded at the end.
        kinds: flags of each token, uint8 [vocab_size], see `Tokenizer.kinds`.
    """
    index: dict[bytes, int] = {}
    rows, sources, names_of_statements = [], [], []
    for b, row in enumerate(ids):
        row = row[row != PAD]
        indices: list[int] = []
        for scope in np.split(row, np.flatnonzero(kinds[row] & ENDS_SCOPE) + 1):
            first_statement: dict[int, int] = {}
            for key, names in _split_scope(scope, kinds[scope]):
                s = len(indices)
                indices.append(index.setdefault(key, len(index)))
                names_of_statements.append(names)
                for name in names:
                    source = first_statement.setdefault(name, s)
                    if source != s:
                        sources.append((b, s, source))
        rows.append(indices)
    sizes = list(map(len, rows))
    is_statement = np.arange(max(sizes)) < np.array(sizes)[:, None]
    unique_index = np.full(is_statement.shape, -1)
    unique_index[is_statement] = np.concatenate(rows)
    source_mask = np.zeros((*is_statement.shape, max(sizes)), dtype=bool)
    if sources:
        source_mask[tuple(np.array(sources).T)] = True
    return Statements(list(index), unique_index, _pad_names(names_of_statements, is_statement), source_mask)


def _pad_names(names_of_statements: Sequence[list[int]], is_statement: np.ndarray) -> np.ndarray:
    """Return the names of statements as int64 [B, S, N], padded where `is_statement` [B, S] is False."""
    num_names = np.array(list(map(len, names_of_statements)))
    max_names = max(1, num_names.max())
    names = np.full((len(names_of_statements), max_names), PAD)
    names[np.arange(max_names) < num_names[:, None]] = list(chain.from_iterable(names_of_statements))
    padded = np.full((*is_statement.shape, max_names), PAD)
    padded[is_statement] = names
    return padded


def _split_scope(scope: np.ndarray, kinds: np.ndarray) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the tokens without names, and the names, of each statement of a scope.

    Args:
        scope: token ids of a network or function, int64 [T].
        kinds: flags of these tokens, uint8 [T].
    """
    if len(scope) <= MAX_STATEMENT_TOKENS:
        if len(scope):
            yield scope.tobytes(), []
        return
    is_name, starts, size = kinds & IDENTIFIER > 0, _statement_starts(kinds), scope.itemsize
    all_names, tokens = scope[is_name].tolist(), scope[~is_name].tobytes()
    name_starts = np.concatenate([[0], is_name.cumsum()])[starts].tolist()
    times = Counter(all_names)
    chain_tokens, chain_names = b"", list[int]()
    for (start, end), (a, z) in zip(pairwise(starts), pairwise(name_starts), strict=True):
        key, names = tokens[size * (start - a) : size * (end - z)], all_names[a:z]
        continues_chain = z - a == 2 and chain_names[:1] == names[1:] and times[names[1]] == 2
        if continues_chain and len(chain_tokens) + len(key) <= size * MAX_STATEMENT_TOKENS:
            chain_tokens, chain_names = chain_tokens + key, [names[0], *chain_names[1:]]
            continue
        if start:
            yield chain_tokens, chain_names
        chain_tokens, chain_names = key, names
    yield chain_tokens, chain_names


def _statement_starts(kinds: np.ndarray) -> list[int]:
    """Return the positions at which the statements of a scope start, and the end of the last one."""
    starts = [0, *(np.flatnonzero(kinds[:-1] & ENDS_STATEMENT) + 1).tolist(), len(kinds)]
    if max(np.diff(starts)) <= MAX_STATEMENT_TOKENS:
        return starts
    return sorted({*starts, *(k for a, z in pairwise(starts) for k in range(a, z, MAX_STATEMENT_TOKENS))})


def pad_statements(statements: Sequence[bytes], length: int, min_rows: int = 0) -> np.ndarray:
    """Return statements as token ids, int64 [rows, length], padded at the end.

    Args:
        statements: bytes of int64 token ids, at most `length` ids in each statement.
        length: number of columns.
        min_rows: minimum number of rows; missing rows are padding.
    """
    ids = np.full((max(min_rows, len(statements)), length), PAD, dtype=np.int64)
    for row, raw in zip(ids, statements, strict=False):
        row[: len(raw) // 8] = np.frombuffer(raw, dtype=np.int64)
    return ids


def group_by_length(statements: Sequence[bytes]) -> dict[int, list[int]]:
    """Group statements by their number of tokens, rounded up to a power of 2.

    Returns:
        Indices of the statements of each group; `order_after_grouping` restores the order.
    """
    groups: dict[int, list[int]] = {}
    for i, raw in enumerate(statements):
        groups.setdefault(1 << max(0, len(raw) // 8 - 1).bit_length(), []).append(i)
    return groups


def order_after_grouping(groups: dict[int, list[int]]) -> np.ndarray:
    """Return the position of each statement, int64 [S], in the concatenation of the groups."""
    return np.argsort([i for group in groups.values() for i in group])
