"""Train, validation and test splits that keep equivalent architectures together.

A hash of the seed and the key of an architecture decides its subset, so it does not depend on the other rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nas_rlm.data.row_texts import keys_of_rows
from nas_rlm.data.tables import Row, Table


def split(table: Table, fraction: float = 0.1, seed: int = 0, by_group: bool = False) -> tuple[Table, Table]:
    """Split a table into training and validation rows.

    Architectures that compute the same function are in the same subset.

    Args:
        table: the full table.
        fraction: fraction of the architectures in the validation rows.
        seed: seed of the hash.
        by_group: keep programs for the same problem in the same subset as well.

    Returns:
        The training and the validation rows.

    Raises:
        ValueError: `by_group` is set, and a program does not name its problem.
    """
    train, validation = _split_by_hash(table, (fraction,), seed, by_group)
    return train, validation


def train_validation_test_split(
    table: Table, fraction: float = 0.1, seed: int = 0, by_group: bool = False
) -> tuple[Table, Table, Table]:
    """Split a table into training, validation and test rows.

    The training rows are those of `split`; the rows that it holds out are divided into halves.

    Args:
        table: the full table.
        fraction: fraction of the architectures in the validation and test rows together.
        seed: seed of the hash.
        by_group: keep programs for the same problem in the same subset as well.

    Returns:
        The training rows; the validation rows, for early stopping and calibration; and the test rows.

    Raises:
        ValueError: `by_group` is set, and a program does not name its problem.
    """
    train, test, validation = _split_by_hash(table, (fraction, fraction / 2), seed, by_group)
    return train, validation, test


def split_by_source(table: Table) -> tuple[Table, Table]:
    """Split programs into those by the main sources of each language, and those by other people or groups.

    Examples:
        >>> rows = [Row("A", "", {}, f"{i}", source="main" if i else "other") for i in range(9)]
        >>> [len(part) for part in split_by_source(Table("", rows))]
        [8, 1]

    Args:
        table: programs with sources. Those of a source that wrote at least half of a language are training
            rows, in all languages.

    Returns:
        The training rows, without programs that are among the test rows too; and the test rows.

    Raises:
        ValueError: a row has no source, or there is no other source.
    """
    if any(not row.source for row in table.rows):
        raise ValueError(f"{table.name} has rows without source in their metadata: cannot split by source")
    written: dict[str, Counter[str]] = {}
    for row in table.rows:
        written.setdefault(row.space, Counter())[row.source] += 1
    main = {source for counts in written.values() for source, n in counts.items() if 2 * n >= counts.total()}
    keys = keys_of_rows(table.rows)
    tested = {key for row, key in zip(table.rows, keys, strict=True) if row.source not in main}
    if not tested:
        raise ValueError(f"{table.name} has no source but the main ones: cannot split by source")
    train = [r for r, key in zip(table.rows, keys, strict=True) if r.source in main and key not in tested]
    test = [row for row in table.rows if row.source not in main]
    return replace(table, rows=train), replace(table, rows=test)


def is_held_out(key: str, fraction: float, seed: int = 0) -> bool:
    """Return whether the hash of an architecture's key puts it into the held-out fraction.

    Args:
        key: key of the architecture, see `nas_rlm.data.row_texts.keys_of_rows`.
        fraction: fraction of all keys that is held out.
        seed: seed of the hash.
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()
    return int(digest[:8], 16) / 2**32 < fraction


def sample_by_space(table: Table, max_rows: int, objectives: Sequence[str]) -> Table:
    """Return at most so many rows of each space, those with most of the objectives first.

    Examples:
        >>> rows = [Row("a", str(i), {"accuracy": 1.0} if i else {}) for i in range(9)]
        >>> len(sample_by_space(Table("", rows), 8, ["accuracy"]).where_measured("accuracy"))
        8

    Args:
        table: the full table.
        max_rows: maximum number of rows of a space; where there are more, they are drawn with a fixed seed.
        objectives: names of objectives.
    """
    rows = [table.rows[i] for i in np.random.default_rng(0).permutation(len(table))]
    rows.sort(key=lambda row: -sum(row.is_measured(name) for name in objectives))
    counts: Counter[str] = Counter()
    kept = []
    for row in rows:
        counts[row.space] += 1
        if counts[row.space] <= max_rows:
            kept.append(row)
    return replace(table, rows=kept)


def _split_by_hash(table: Table, fractions: Sequence[float], seed: int, by_group: bool) -> list[Table]:
    """Split a table into `len(fractions) + 1` tables; table k has the rows that k of the fractions hold out.

    The fractions decrease, so that each holds out a subset of the rows that the previous one holds out.
    """
    keys = keys_of_rows(table.rows)
    if by_group and any(row.is_program and not row.group for row in table.rows):
        raise ValueError(
            f"{table.name} has programs without problem or kernel in their metadata: cannot split by group"
        )
    groups = [row.group or key for row, key in zip(table.rows, keys, strict=True)] if by_group else keys
    subsets = [sum(is_held_out(group, f, seed) for f in fractions) for group in groups]
    last_subset: dict[str, int] = {}  # a program that belongs to two problems stays in one subset
    for key, subset in zip(keys, subsets, strict=True):
        last_subset[key] = max(subset, last_subset.get(key, 0))
    rows: list[list[Row]] = [[] for _ in range(len(fractions) + 1)]
    for row, key, subset in zip(table.rows, keys, subsets, strict=True):
        if subset == last_subset[key]:
            rows[subset].append(row)
    return [Table(table.name, subset_rows) for subset_rows in rows]
