"""Times of a judge of programs, made comparable over the years.

A judge's machines and runtimes change: programs of one problem take 100 ms in one half-year and 0 in another.
Only ranks within a language and half-year agree, so that these are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from nas_rlm.data.rows import Row

PRIOR_PROGRAMS = 10  # weight of the rank among all half-years, since a half-year may have few programs


def make_times_comparable(rows: Sequence[Row], half_years: Mapping[int, str], objective: str) -> None:
    """Replace the times of dated rows by those at the same rank among all programs of their language.

    Args:
        rows: the rows, changed in place.
        half_years: half-year of each dated row, by its index.
        objective: name of the time.
    """
    by_space: dict[str, list[int]] = defaultdict(list)
    for i in half_years:
        if objective in rows[i].targets:
            by_space[rows[i].space].append(i)
    for indices in by_space.values():
        times = np.array([rows[i].targets[objective] for i in indices])
        comparable = comparable_times(times, [half_years[i] for i in indices])
        for i, time in zip(indices, comparable, strict=True):
            rows[i].targets[objective] = float(time)


def comparable_times(times: np.ndarray, periods: Sequence[str]) -> np.ndarray:
    """Return times as if all had been measured over all periods.

    Examples:
        >>> old, new = [10.0, 20.0, 30.0] * 20, [1.0, 2.0, 3.0] * 20
        >>> comparable_times(np.array(old + new), ["2022H1"] * 60 + ["2024H1"] * 60)[[0, 1, 2, 60, 61, 62]]
        array([ 2., 10., 30.,  1.,  3., 20.])

    The rank of a time within its period, as a share of the period's programs, becomes its rank among all.

    Args:
        times: times of programs of one language, in any unit [N].
        periods: period in which each was measured.
    """
    if len(set(periods)) < 2:
        return times
    order = np.sort(times)
    of_all = _quantile_levels(times)
    levels = np.empty(len(times))
    for period in set(periods):
        part = np.array([p == period for p in periods])
        own = part.sum() * _quantile_levels(times[part]) + PRIOR_PROGRAMS * of_all[part]
        levels[part] = own / (part.sum() + PRIOR_PROGRAMS)
    return np.interp(levels, (np.arange(len(order)) + 0.5) / len(order), order)


def _quantile_levels(values: np.ndarray) -> np.ndarray:
    """Return the share of values below each one; equal values count half."""
    order = np.sort(values)
    sides = [np.searchsorted(order, values, side) for side in ("left", "right")]
    return np.mean(sides, axis=0) / len(values)
