"""Features of the configurations of a program: their numbers and words that differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.configurations.text import MAX_NUMBER, Configuration
from nas_rlm.surrogates.predictive import EPSILON

MIN_ROWS_OF_A_WORD = 2  # on average; words that differ in nearly all configurations say nothing
# Deviations of the logarithm of a value where a number or a word is another one than in all labels. A value
# may grow with the cube of a number, which 80 % intervals should hold.
STD_OF_A_RATIO, STD_OF_A_WORD = 2.5, 0.5
FEATURE_TENSORS = ("positions", "is_log", "word_positions", "word_levels", "scaling", "numbers", "words")


@dataclass(frozen=True)
class ConfigurationFeatures:
    """Standardised numbers and words of the configurations of one program.

    Args:
        positions: positions among the numbers of those that differ; of those that rank the configurations
            alike, the first one, int64 [P].
        is_log: whether the logarithm of each counts, bool [P].
        word_positions: positions among the words of those that differ, repeated for each level, int64 [W].
        word_levels: the word that each of these features marks, int64 [W].
        scaling: mean and standard deviation of each feature, numbers first, float64 [2, P + W].
        numbers: the numbers that are equal in all labelled configurations, -1 where they differ, float64.
        words: the words that are equal in all of them, -1 where they differ, int64.
    """

    positions: np.ndarray
    is_log: np.ndarray
    word_positions: np.ndarray
    word_levels: np.ndarray
    scaling: np.ndarray
    numbers: np.ndarray
    words: np.ndarray

    @classmethod
    def fit(cls, configurations: Sequence[Configuration]) -> ConfigurationFeatures:
        """Fit to M configurations of one form."""
        numbers = np.array([found.numbers for found in configurations])
        words = np.array([found.words for found in configurations], np.int64)
        positions = _different_columns(numbers)
        levels = [
            (position, word)
            for position in _different_columns(words, is_ordered=False)
            for word in _levels(words[:, position])
        ]
        unscaled = cls(
            np.array(positions, np.int64),
            np.array([bool((numbers[:, position] > 0).all()) for position in positions], bool),
            np.array([position for position, _ in levels], np.int64),
            np.array([word for _, word in levels], np.int64),
            np.repeat([[0.0], [1.0]], len(positions) + len(levels), axis=1),
            np.where((numbers == numbers[0]).all(0), numbers[0], -1.0),
            np.where((words == words[0]).all(0), words[0], -1),
        )
        values = unscaled.transform(configurations)
        return replace(unscaled, scaling=np.stack([values.mean(0), values.std(0) + EPSILON]))

    @property
    def count(self) -> int:
        """Number of features D."""
        return self.scaling.shape[1]

    def transform(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return the standardised features of N configurations of the same form, float64 [N, D]."""
        values = np.array([found.numbers for found in configurations])[:, self.positions]
        values = np.where(self.is_log, np.log(np.maximum(values, 1 / MAX_NUMBER)), values)
        words = np.array([found.words for found in configurations], np.int64)[:, self.word_positions]
        columns = np.hstack([values, words == self.word_levels])
        standardised: np.ndarray = (columns - self.scaling[0]) / self.scaling[1]
        return standardised

    def unknown_std(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return how uncertain the logarithms of values are where numbers or words are new, float64 [N].

        It is 0 where all numbers and words that were equal in the labelled configurations are the same, and
        other words are known.
        """
        return np.array([self._unknown_std_of(found) for found in configurations])

    def _unknown_std_of(self, configuration: Configuration) -> float:
        """Return the deviation of one configuration; the same change in several positions counts once."""
        numbers, words = np.array(configuration.numbers), np.array(configuration.words, np.int64)
        is_changed = (self.numbers >= 0) & (numbers != self.numbers)
        changes = {*zip(self.numbers[is_changed].tolist(), numbers[is_changed].tolist(), strict=True)}
        steps = [abs(math.log(new / known)) if min(new, known) > 0 else 1.0 for known, new in changes]
        is_new = (self.words >= 0) & (words != self.words)
        new_words = {*zip(self.words[is_new].tolist(), words[is_new].tolist(), strict=True)}
        for position in np.unique(self.word_positions):
            if words[position] not in self.word_levels[self.word_positions == position]:
                new_words.add((position, words[position]))
        return STD_OF_A_RATIO * sum(steps) + STD_OF_A_WORD * len(new_words)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        found = {name: torch.from_numpy(getattr(self, name)) for name in FEATURE_TENSORS}
        return {**found, "is_log": found["is_log"].to(torch.uint8)}

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor]) -> ConfigurationFeatures:
        """Make features from their `tensors`.

        Raises:
            ValueError: a tensor is missing or has another shape, or a value is out of range.
        """
        sizes = {name: len(tensors.get(name, ())) for name in FEATURE_TENSORS}
        num_numbers, num_words = sizes["positions"], sizes["word_positions"]
        shapes = {name: (sizes[name],) for name in ("positions", "word_positions", "numbers", "words")}
        shapes |= {"is_log": (num_numbers,), "word_levels": (num_words,)}
        types = {
            **dict.fromkeys(("positions", "word_positions", "word_levels", "words"), torch.int64),
            "is_log": torch.uint8,
        }
        check_shapes(tensors, {**shapes, "scaling": (2, num_numbers + num_words)}, types)
        found = {name: tensors[name].numpy() for name in FEATURE_TENSORS}
        ends = ((found["positions"], sizes["numbers"]), (found["word_positions"], sizes["words"]))
        is_valid = num_numbers + num_words > 0 and (found["scaling"][1] > 0).all()
        if not (is_valid and all(((p >= 0) & (p < end)).all() for p, end in ends)):
            raise ValueError("the positions or deviations of the numbers of a program are out of range")
        return cls(**{**found, "is_log": found["is_log"] > 0, "scaling": found["scaling"].astype(float)})


def _different_columns(columns: np.ndarray, is_ordered: bool = True) -> list[int]:
    """Return the columns that differ; of those that differ alike, the first one.

    Args:
        columns: numbers or words of M configurations, [M, K].
        is_ordered: whether the order of values counts, as that of numbers does.
    """
    positions: list[int] = []
    known: set[tuple[int, ...]] = set()
    for position, column in enumerate(columns.T):
        _, first, codes = np.unique(column, return_index=True, return_inverse=True)
        if not is_ordered:
            codes = np.argsort(np.argsort(first))[codes]
        same = {tuple(codes.tolist()), *([tuple((codes.max() - codes).tolist())] if is_ordered else [])}
        if codes.max() > 0 and known.isdisjoint(same):
            positions.append(position)
            known.add(tuple(codes.tolist()))
    return positions


def _levels(words: np.ndarray) -> list[int]:
    """Return the words that features mark; none where they differ in nearly all configurations."""
    found: list[int] = np.unique(words).tolist()
    return found if len(found) * MIN_ROWS_OF_A_WORD <= len(words) else []
