"""Files of JSON lines that survive interruptions: each line is on disk before the work goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Append records as JSON lines, and return the lines when they are on disk.

    Args:
        path: the file, which need not exist; its directory must.
        records: the records.
    """
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    with open(path, "ab") as file:
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())
    return lines


def read_lines(path: Path) -> tuple[list[bytes], bytes]:
    r"""Return the lines of a file, and the incomplete last line that an interruption left, or `b""`.

    Each line ends with `\n`. A file that does not exist has no lines.
    """
    *lines, incomplete = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [line + b"\n" for line in lines], incomplete


def truncate_after(path: Path, lines: Sequence[bytes]) -> None:
    """Remove all that follows the first lines of a file, such as an incomplete last line.

    Args:
        path: the file.
        lines: its first lines, see `read_lines`.
    """
    os.truncate(path, sum(map(len, lines)))
