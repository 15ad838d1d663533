"""Columns of values that a benchmark stores apart from its architectures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nas_rlm.data.omissions import Omissions
from search_spaces.wording import counted


def aligned_columns(
    columns: Mapping[str, Any], num_architectures: int, omissions: Omissions
) -> dict[str, Sequence[Any]]:
    """Return the columns that have a value for each architecture, and count the others.

    Args:
        columns: list, array or tensor of the values of each objective.
        num_architectures: number of architectures.
        omissions: counts the entries that are not valid.
    """
    aligned = {}
    for objective, values in columns.items():
        try:
            length = 0 if isinstance(values, str | bytes | dict) else len(values)
        except TypeError:
            length = 0
        if length == num_architectures:
            aligned[objective] = values
        else:
            reason = f"it has {counted(length, 'value')} for {counted(num_architectures, 'architecture')}"
            omissions.add(objective, reason, objective, num_architectures)
    return aligned
