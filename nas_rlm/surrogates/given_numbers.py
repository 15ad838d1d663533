"""Given numbers of the rows to predict: checks, and groups of rows of which the same numbers are given."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nas_rlm.data.genome import Genome
from nas_rlm.data.objective_kinds import LATENCY_PREFIX, expected_value, is_accuracy
from nas_rlm.data.omissions import is_valid_target
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

MAX_BEYOND_LABELS = 0.5  # of their range, by which a number may be beyond all labels without a warning
MAX_LATENCY_FACTOR = 5.0  # the same of latencies, times the longest or the shortest one

Given = Mapping[str, float | Sequence[float] | np.ndarray]


def check_given(
    given: Given | None, num_rows: int, objectives: Sequence[str], known: Collection[str]
) -> dict[str, np.ndarray]:
    """Return given numbers as arrays, NaN where a row has none.

    Examples:
        >>> check_given({"accuracy/cifar10_4ep": 61.5}, 2, ["accuracy"], ["accuracy", "accuracy/cifar10_4ep"])
        {'accuracy/cifar10_4ep': array([61.5, 61.5])}

    Args:
        given: for each name one number for all rows, or N numbers, NaN where it is missing; None for none.
        num_rows: number N of rows to predict.
        objectives: the queried objectives.
        known: objectives of the model.

    Returns:
        float64 [N] by name.

    Raises:
        ValueError: a name is unknown, queried as well or computed exactly, there are not N numbers, or one
            is out of range.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"given is {given!r}: expected numbers by name, such as {{'accuracy/cifar10_4ep': 61.5}}"
        )
    checked = {}
    for name, values in given.items():
        if name not in known:
            raise ValueError(
                f"given has {name!r}, which the model does not know; {suggest(str(name), known)}"
            )
        if name in EXACT_OBJECTIVES:
            raise ValueError(f"given has {name}, which is computed from the network: leave it out")
        if name in objectives:
            raise ValueError(f"{name} is given and queried: leave it out of one of them")
        try:
            numbers = np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"given {name} is {values!r}: expected {expected_value(name)}") from None
        if numbers.ndim and numbers.shape != (num_rows,):
            raise ValueError(
                f"given {name} has the shape {list(numbers.shape)}: expected one number, or one for each of"
                f" {counted(num_rows, 'row')}"
            )
        for value in numbers.reshape(-1):
            if not np.isnan(value) and not (np.isfinite(value) and is_valid_target(name, float(value))):
                raise ValueError(f"given {name} is {value:g}: expected {expected_value(name)}")
        checked[name] = np.broadcast_to(numbers, num_rows).copy()
    return checked


def check_range(given: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> None:
    """Compare given numbers with the labels of the same objective that a model has learnt.

    Examples:
        >>> check_range({"accuracy/a": np.array([0.9])}, {"accuracy/a": np.array([60.0, 90.0])})
        Traceback (most recent call last):
        ValueError: given accuracy/a is 0.9, its labels are 60 to 90: expected a percentage, not a fraction

    Args:
        given: numbers by name, float64 [N], NaN where one is missing.
        labels: labels by name, float64 [M], NaN where a network has none.

    Raises:
        ValueError: an accuracy is a fraction or 0, and the labels are percentages.

    Warns:
        UserWarning: a number is far from all labels, as in another unit.
    """
    for name, numbers in given.items():
        known = labels.get(name, np.empty(0))
        known, values = known[np.isfinite(known)], numbers[np.isfinite(numbers)]
        if not len(known) or not len(values):
            continue
        low, high = float(known.min()), float(known.max())
        of_labels = f"its labels are {low:.4g} to {high:.4g}"
        if is_accuracy(name) and values.min() <= 1 < low:
            raise ValueError(
                f"given {name} is {values.min():g}, {of_labels}: expected a percentage, not a fraction"
            )
        margin = MAX_BEYOND_LABELS * (high - low)
        bounds = (low - margin, high + margin)
        if name.startswith(LATENCY_PREFIX):
            bounds = (low / MAX_LATENCY_FACTOR, high * MAX_LATENCY_FACTOR)
        far = values[(values < bounds[0]) | (values > bounds[1])]
        if len(far):
            warnings.warn(
                f"given {name} is {far[0]:.4g}, {of_labels}: predictions rest on the nearest labels, is it in"
                " another unit?",
                stacklevel=4,
            )


def rows_by_given(
    texts: Sequence[str], given: Mapping[str, np.ndarray], genomes: Sequence[Genome] = ()
) -> list[tuple[list[int], list[str]]]:
    """Group rows of which the same numbers are given, so that no text of a group has two predictions.

    Architectures with the same inference graph have the same text. No text is twice in a group with given
    numbers, nor with two genomes in any.

    Examples:
        >>> rows_by_given(["a", "b", "a"], {"loss": np.array([0.5, np.nan, 0.7])})
        [([0], ['loss']), ([1], []), ([2], ['loss'])]
        >>> rows_by_given(["a", "a", "a"], {}, [{"gene0": 1}, {"gene0": 2}, {"gene0": 1}])
        [([0, 2], []), ([1], [])]

    Args:
        texts: N texts.
        given: numbers by name, float64 [N], NaN where one is missing.
        genomes: genomes of the N networks; may be empty.

    Returns:
        Pairs of indices of rows and names of the numbers that all of them have; one at least.
    """
    groups: dict[tuple[tuple[str, ...], int], list[int]] = {}
    seen: dict[tuple[tuple[str, ...], str], list[Genome | int]] = {}  # variants of a text
    for i, text in enumerate(texts):
        names = tuple(name for name, values in given.items() if not np.isnan(values[i]))
        variants = seen.setdefault((names, text), [])
        variant = i if names else genomes[i] if genomes else {}
        if variant not in variants:
            variants.append(variant)
        groups.setdefault((names, variants.index(variant)), []).append(i)
    return [(rows, list(names)) for (names, _), rows in groups.items()] or [([], [])]
