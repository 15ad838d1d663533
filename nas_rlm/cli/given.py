"""The options --given and --given-data: numbers that are measured of the inputs of a command line."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from nas_rlm.files import read_text
from nas_rlm.utils.faults import Faults
from nas_rlm.utils.validation import shown, suggest
from search_spaces.wording import counted

if TYPE_CHECKING:
    from search_spaces import SearchSpace

NAME_COLUMNS = ("arch", "arch_str", "identifier")  # of a CSV file, as `predict` and `measure` write them
GivenOption = tuple[tuple[str, float | None], ...]


def _parse_given(_: Any, tokens: Sequence[Any]) -> GivenOption:
    given: dict[str, float | None] = {}
    for token in tokens:
        for part in filter(None, (part.strip() for part in token.value.split(","))):
            name, equals, text = part.partition("=")
            try:
                value = float(text) if equals else None
            except ValueError:
                value = math.nan
            if not name or (value is not None and not math.isfinite(value)):
                raise ValueError(f"{part!r} is not NAME=NUMBER, such as accuracy/cifar10_12ep=89.2")
            if name in given:
                raise ValueError(f"{name} is given more than once")
            given[name] = value
    return tuple(given.items())


GivenNumbers = Annotated[
    GivenOption,
    Parameter(converter=_parse_given, n_tokens=1, negative="", metavar="NAME[=NUMBER]", show_default=False),
]


def given_numbers(
    given: GivenOption, data: Path | None, names: Sequence[str], space: SearchSpace[Any] | None
) -> dict[str, float | np.ndarray]:
    """Return the given numbers of N inputs.

    Args:
        given: pairs of a name and its number for all inputs, or None where a table has it.
        data: the table: parquet in the schema of tables, or CSV; None without one.
        names: architectures in the space's notation, or paths of files.
        space: space of the architectures; None for files.

    Returns:
        A number for all inputs, or float64 [N] with NaN where the table has none, by name.

    Raises:
        ValueError: a number has no value, or the table lacks a column or all inputs, or has several numbers
            of one network.
    """
    from_table = [name for name, value in given if value is None]
    if from_table and data is None:
        raise ValueError(
            f"--given {from_table[0]} has no value: expected =NUMBER, or a table by --given-data"
        )
    if data is None:
        return {name: value for name, value in given if value is not None}
    if not from_table:
        raise ValueError(f"--given-data {data} is not used: name its columns by --given, without =")
    columns = _read_csv(data, from_table) if data.suffix.lower() == ".csv" else _read_table(data, from_table)

    def canonical(name: str) -> str:
        try:
            return str(space.parse(name)) if space else name
        except ValueError:  # a network of another space
            return name

    found: dict[str, dict[str, float]] = {name: {} for name in columns}
    for name, column in columns.items():
        for key, value in column:
            first = found[name].setdefault(canonical(key), value)
            if first != value:
                raise ValueError(
                    f"{data} has {first:g} and {value:g} as {name} of {key!r}: expected one number for each"
                    " network"
                )
    keys = [canonical(name) for name in names]
    if not any(key in column for column in found.values() for key in keys):
        raise ValueError(f"{data} has none of the {counted(len(keys), 'network')}, such as {names[0]!r}")
    of_inputs = {name: np.array([column.get(k, math.nan) for k in keys]) for name, column in found.items()}
    return {name: of_inputs[name] if value is None else value for name, value in given}


def _read_table(data: Path, names: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """Return the columns of a parquet table by name, as pairs of architecture or identifier and number."""
    from nas_rlm.data import read

    table = read(data)
    for name in names:
        if name not in table.objectives:
            raise ValueError(f"{data} has no {name!r}; {suggest(name, table.objectives)}")
    return {
        name: [(r.arch_str or r.identifier, r.targets[name]) for r in table.rows if r.is_measured(name)]
        for name in names
    }


def _read_csv(data: Path, names: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """Return the columns of a CSV file by name, as `_read_table`; empty values are left out."""
    lines = read_text(data, "a CSV file with the columns arch and numbers").splitlines()
    records = csv.DictReader(lines)
    header = records.fieldnames or []
    key = next((column for column in NAME_COLUMNS if column in header), None)
    if key is None:
        raise ValueError(f"{data} has none of the columns {', '.join(NAME_COLUMNS)}: expected one of them")
    for name in names:
        if name not in header:
            raise ValueError(f"{data} has no column {name!r}; {suggest(name, header)}")
    columns: dict[str, list[tuple[str, float]]] = {name: [] for name in names}
    faults = Faults()
    for record in records:
        for name in names:
            text = (record[name] or "").strip()
            try:
                if text:
                    columns[name].append((record[key], float(text)))
            except ValueError:
                faults.add(f"line {records.line_num}: {name} is {shown(text)}")
    faults.check(f"{data} ", ": expected a number, or nothing")
    return columns
