"""Results as JSON lines: added one by one, so that a benchmark which was interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_rlm.files import check_target


class Results:
    """What a file holds, and what is added to it.

    Args:
        path: of the file; None for none.
        names: what each result tells at least, the first one first.

    Attributes:
        records: all results, the newest last.

    Raises:
        ValueError: the path is a folder, or a line of the file is no such result; a last line that was
            written in part is dropped.
    """

    def __init__(self, path: Path | None, names: Sequence[str]) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path is None:
            return
        check_target(path)
        if path.exists() and not path.is_file():
            raise ValueError(f"{str(path)!r} is no regular file: expected a new one, or results")
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                if not set(names) <= set(record):
                    raise ValueError
            except (ValueError, TypeError, RecursionError):
                raise ValueError(
                    f"{str(path)!r} line {number} is no result of this benchmark: {line[:80]!r}"
                ) from None
            self.records.append(record)
        rest = content[len(whole) :]
        if rest and not (self.records or rest.startswith(f'{{"{names[0]}": '.encode())):
            raise ValueError(f"{str(path)!r} is no file of results: it holds {rest[:80]!r}")
        if rest:
            os.truncate(path, len(whole))

    def add(self, record: Mapping[str, Any]) -> None:
        """Note a result and wait until it is on disk."""
        self.records.append(dict(record))
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
