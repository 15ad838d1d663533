"""Results as JSON lines: added one by one, so that a benchmark which was interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nas_rlm.files import check_target

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Found = TypeVar("Found", bound="DataclassInstance")
PLACES = 4


class Results(Generic[Found]):
    """What a benchmark found in one setting, in a file that may hold what it found in others too.

    Args:
        path: of the file; None for none.
        kind: a dataclass of figures, which is what is found each time.
        setting: names and values of what all have in common.
        keys: names of what tells one from the others.
        places: of figures, in the file.

    Attributes:
        found: by the values of their keys, the newest last.

    Raises:
        ValueError: the path is a directory, or a line of the file is no such result; a last line that was
            written in part is dropped.
    """

    def __init__(
        self,
        path: Path | None,
        kind: type[Found],
        setting: Mapping[str, Any],
        keys: Sequence[str],
        places: int = PLACES,
    ) -> None:
        self.path, self._setting, self._keys, self._places = path, dict(setting), tuple(keys), places
        self._figures = [field.name for field in fields(kind)]
        self.found: dict[tuple[Any, ...], Found] = {}
        for record in self._records(path) if path else ():
            if all(record[name] == value for name, value in setting.items()):
                figures = {name: record[name] for name in self._figures}
                self.found[tuple(record[name] for name in keys)] = kind(**figures)

    def add(self, key: Sequence[Any], found: Found) -> None:
        """Note a result and wait until it is on disk."""
        self.found[tuple(key)] = found
        if self.path is not None:
            rounded = {name: round(figure, self._places) for name, figure in asdict(found).items()}
            record = {**self._setting, **dict(zip(self._keys, key, strict=True)), **rounded}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _records(self, path: Path) -> list[dict[str, Any]]:
        check_target(path)
        if path.exists() and not path.is_file():
            raise ValueError(f"{str(path)!r} is no regular file: expected a new one, or results")
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        records = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                records.append(self._checked(json.loads(line)))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise ValueError(
                    f"{str(path)!r} line {number} is no result of this benchmark: {line[:80]!r}"
                ) from None
        rest = content[len(whole) :]
        first = [*self._setting, *self._keys][0]
        if rest and not (records or rest.startswith(f'{{"{first}": '.encode())):
            raise ValueError(f"{str(path)!r} is no file of results: it holds {rest[:80]!r}")
        if rest:
            os.truncate(path, len(whole))
        return records

    def _checked(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record that has all names, with numbers as figures.

        Raises:
            KeyError, TypeError: it has not.
        """
        hash(tuple(record[name] for name in self._keys))
        if not all(type(record[name]) in (int, float) for name in self._figures):
            raise TypeError
        if not self._setting.keys() <= record.keys():
            raise KeyError
        return record
