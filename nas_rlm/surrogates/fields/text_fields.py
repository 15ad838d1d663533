"""Fields of texts as features: numbers by the word before them, words, and the length.

A field is what aligns the texts of a table: in `{"lr": 0.1, "act": "relu"}` the number 0.1 belongs to the
field `lr`, and `relu` follows `act`. The same holds for `lr=0.1 act=relu` and `--lr 0.1 --act relu`, so that
no format is assumed. Numbers within words, as in `63ms` and `resnet50_w2`, belong to the letters before them,
or to the word before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_TOKEN = re.compile(r"(?<![\w.])([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\d)|(\w+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)|([^\W\d_]+)")  # of a word with digits, such as 63ms or resnet50_w2
LENGTH = "length"  # name of the column of the length of a text in characters
MAX_TOKENS = 2000  # of a text that are read
MAX_NUMBER_FIELDS, MAX_WORD_FIELDS = 64, 200
MIN_TEXTS = 3  # that have a field
MIN_SHARE = 0.02  # of texts that have a field
WIDE_RATIO = (
    30.0  # of the upper to the lower tenth of positive numbers, above which their logarithms are used
)
USUAL_FIELDS = 10  # features of more fields are scaled down, so that distances between texts stay similar
MAX_STANDARDISED = 6.0  # larger features of new texts are cut
EXPECTED_SHARE = 0.98  # of texts that have a field, above which a text without it is an exception


@dataclass(frozen=True)
class TextFields:
    r"""The fields of a collection of texts, standardised.

    Examples:
        >>> fields = TextFields.fit(["a=1 b=x", "a=2 b=y", "a=3 b=x", "a=5 b=y"] * 3)
        >>> fields.numbers, [name.replace("\0", ">") for name in fields.words]
        (('a#0',), ['b>x', 'b>y'])
        >>> fields.transform(["a=2 b=x"]).shape
        (1, 3)
        >>> fields.lacking(fields.values(["a=2 b=z"]))  # another word follows b
        array([[False,  True,  True]])

    Args:
        numbers: names of number fields: the word before a number, and how many numbers of this word came
            before it in the text.
        words: names of word fields: a word, or a word and the one before it, separated by a null character.
        is_log: whether the logarithm of each number field is used, bool [len(numbers)].
        means: mean of each column, float64 [D].
        scales: divisor of each column, float64 [D].
        expected: whether nearly all texts have the number of a column, or one of the words that follow the
            column's word, bool [D].
    """

    numbers: tuple[str, ...]
    words: tuple[str, ...]
    is_log: np.ndarray
    means: np.ndarray
    scales: np.ndarray
    expected: np.ndarray

    @classmethod
    def fit(cls, texts: Sequence[str]) -> TextFields:
        """Find the fields of M texts."""
        parsed = [_parse(text) for text in texts]
        min_texts = max(MIN_TEXTS, MIN_SHARE * len(texts))
        numbers = _varying_numbers([numbers for numbers, _ in parsed], min_texts)
        words = _varying_words([words for _, words in parsed], min_texts)
        matrix = _matrix(parsed, numbers, words)
        is_log = np.array([_is_wide(column) for column in matrix[:, : len(numbers)].T], dtype=bool)
        matrix = _with_logs(matrix, is_log)
        means, stds = np.nanmean(matrix, 0), np.nanstd(matrix, 0)
        scales = np.where(stds > 0, stds, 1.0) * max(1.0, math.sqrt(len(means) / USUAL_FIELDS))
        present = _present(matrix, len(numbers), _preceding(words))
        return cls(numbers, words, is_log, means, scales, present.mean(0) >= EXPECTED_SHARE)

    @property
    def group_sizes(self) -> list[int]:
        """Sizes of the groups of columns that share a length scale: a number, or the words after a word."""
        return [1] * len(self.numbers) + list(Counter(_preceding(self.words)).values())

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Return the standardised fields of N texts, float64 [N, D]; a missing number is 0, the mean."""
        return self.standardised(self.values(texts))

    def values(self, texts: Sequence[str]) -> np.ndarray:
        """Return the fields of N texts, float64 [N, D], NaN where a text lacks a number."""
        return _matrix([_parse(text) for text in texts], self.numbers, self.words)

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Return the standardised fields of N texts from their `values`, float64 [N, D]."""
        matrix = _with_logs(values, self.is_log)
        limit = MAX_STANDARDISED * max(1.0, math.sqrt(len(self.means) / USUAL_FIELDS))
        standardised = np.nan_to_num((matrix - self.means) / self.scales, posinf=limit, neginf=-limit)
        return np.clip(standardised, -limit, limit)

    def lacking(self, values: np.ndarray) -> np.ndarray:
        """Return which columns N texts say nothing of although nearly all labelled texts do, bool [N, D].

        A text says nothing of the words after a word if none of them was frequent, as in `opt=new`.

        Args:
            values: the `values` of the texts, float64 [N, D].
        """
        return self.expected & ~_present(values, len(self.numbers), _preceding(self.words))

    def description(self) -> dict[str, Any]:
        """Return the fields as values that are valid JSON."""
        return {
            "numbers": self.numbers,
            "words": self.words,
            "is_log": self.is_log.tolist(),
            "means": self.means.tolist(),
            "scales": self.scales.tolist(),
            "expected": self.expected.tolist(),
        }

    @classmethod
    def from_description(cls, saved: Mapping[str, Any]) -> TextFields:
        """Make fields from their `description`.

        Raises:
            ValueError: the parts do not fit each other.
        """
        numbers, words = tuple(map(str, saved["numbers"])), tuple(map(str, saved["words"]))
        means, scales = (np.array(saved[key], dtype=float) for key in ("means", "scales"))
        is_log, expected = (np.array(saved[key], dtype=bool) for key in ("is_log", "expected"))
        count = len(numbers) + len(words)
        sizes = len(means), len(scales), len(expected), len(is_log)
        if sizes != (count, count, count, len(numbers)) or not (scales > 0).all():
            raise ValueError(f"means and scales of {count} text fields are missing or not valid")
        return cls(numbers, words, is_log, means, scales, expected)


def _preceding(words: Sequence[str]) -> list[str]:
    """Return the word before each word field, empty if it has none."""
    return [word.rpartition("\0")[0] for word in words]


def _present(matrix: np.ndarray, num_numbers: int, preceding: Sequence[str]) -> np.ndarray:
    """Return whether texts have the number of a column, or one of the words that follow the same word.

    Args:
        matrix: values of fields, float64 [N, D], NaN where a text lacks a number.
        num_numbers: number of columns of numbers, which come first.
        preceding: the word before each word field.
    """
    present = np.ones(matrix.shape, dtype=bool)
    present[:, :num_numbers] = ~np.isnan(matrix[:, :num_numbers])
    for word in {*preceding} - {""}:
        columns = [num_numbers + k for k, other in enumerate(preceding) if other == word]
        present[:, columns] = (matrix[:, columns] > 0).any(1, keepdims=True)
    return present


def _parse(text: str) -> tuple[dict[str, float], set[str]]:
    """Return the number fields and the word fields of a text."""
    numbers: dict[str, float] = {LENGTH: float(len(text))}
    words: set[str] = set()
    counts: Counter[str] = Counter()
    key = previous = ""
    for token, match in enumerate(_TOKEN.finditer(text)):
        if token == MAX_TOKENS:
            break
        number, word = match.groups()
        if word is None:
            numbers[f"{key}#{counts[key]}"] = float(number)
            counts[key] += 1
            previous = ""
            continue
        words.add(word)
        if previous:
            words.add(f"{previous}\0{word}")
        within = key
        for part in _PART.finditer(word) if any(map(str.isdigit, word)) else ():
            digits, letters = part.groups()
            if letters is not None:
                within = letters
                words.add(letters)
            else:
                numbers[f"{within}#{counts[within]}"] = float(digits)
                counts[within] += 1
        key = previous = word
    return numbers, words


def _varying_numbers(parsed: Sequence[Mapping[str, float]], min_texts: float) -> tuple[str, ...]:
    """Return the number fields of enough texts whose values differ, those of most texts first."""
    counts = Counter(name for numbers in parsed for name in numbers)
    frequent = [name for name, count in counts.most_common() if count >= min_texts]
    varying = [name for name in frequent if len({numbers.get(name) for numbers in parsed}) > 1]
    return tuple(varying[:MAX_NUMBER_FIELDS])


def _varying_words(parsed: Sequence[set[str]], min_texts: float) -> tuple[str, ...]:
    """Return the word fields that enough texts have and enough lack, sorted by the word before them.

    Of fields that the same texts have, the one with the word before it is returned.
    """
    total = len(parsed)
    counts = Counter(name for words in parsed for name in words)
    found = [name for name, count in counts.items() if min_texts <= count <= total - min_texts]
    found.sort(key=lambda name: (abs(2 * counts[name] - total), "\0" not in name, name))
    distinct: dict[bytes, str] = {}
    for name in found:
        if len(distinct) == MAX_WORD_FIELDS:
            break
        distinct.setdefault(np.packbits([name in words for words in parsed]).tobytes(), name)
    return tuple(sorted(distinct.values(), key=lambda name: (name.rpartition("\0")[0], name)))


def _matrix(
    parsed: Sequence[tuple[Mapping[str, float], set[str]]], numbers: Sequence[str], words: Sequence[str]
) -> np.ndarray:
    """Return the values of fields, float64 [N, D], NaN where a text lacks a number."""
    rows = [
        [
            *(found.get(name, math.nan) for name in numbers),
            *(float(name in present) for name in words),
        ]
        for found, present in parsed
    ]
    matrix = np.array(rows, dtype=float).reshape(len(parsed), len(numbers) + len(words))
    return np.clip(matrix, -1e150, 1e150)  # so that squares stay finite


def _is_wide(column: np.ndarray) -> bool:
    """Return whether numbers, NaN where missing, are positive and vary by a large factor."""
    present = column[np.isfinite(column)]
    if len(present) == 0 or present.min() <= 0:
        return False
    low, high = np.quantile(present, (0.1, 0.9))
    return bool(high > WIDE_RATIO * low)


def _with_logs(matrix: np.ndarray, is_log: np.ndarray) -> np.ndarray:
    """Return values of fields with logarithms of the number fields where `is_log`."""
    columns = np.flatnonzero(is_log)
    result = matrix.copy()
    result[:, columns] = np.log(np.maximum(matrix[:, columns], np.finfo(float).tiny))
    return result
