"""A cache on disk for long lists of strings that are slow to compute: texts, keys and graph features."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nas_rlm.files import atomic_write

MIN_CACHED_ITEMS = 1000  # shorter lists are quick to compute and are not stored


def cached_strings(
    kind: str, key: object, count: int, compute: Callable[[], list[str]], min_count: int = MIN_CACHED_ITEMS
) -> list[str]:
    """Return a list of strings from the cache, or compute it and store it there.

    The cache is the directory NAS_RLM_CACHE, or ~/.cache/nas-rlm.

    Args:
        kind: what the strings are, such as `text`; part of the file's name.
        key: everything that the list depends on; its `repr` identifies the cached file.
        count: length of the list.
        compute: computes the list.
        min_count: shorter lists are not cached.
    """
    if count < min_count:
        return compute()
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:20]
    directory = Path(os.environ.get("NAS_RLM_CACHE", Path.home() / ".cache" / "nas-rlm"))
    path = directory / f"{kind}s-{digest}.parquet"
    if path.is_file():
        cached: list[str] = pq.read_table(path).column(kind).to_pylist()
        return cached
    strings = compute()
    with atomic_write(path) as temporary:
        pq.write_table(pa.table({kind: strings}), temporary)
    return strings
