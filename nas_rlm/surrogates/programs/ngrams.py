"""N-gram surrogates: ridge regression on token n-grams of programs.

Short pieces of a program, such as `[0] * n` or `map(int, input().split())`, say much about its memory and
time, and others identify the problem that it solves. All n-grams of one to three tokens are hashed into a
fixed number of buckets, so that a surrogate has one weight for each bucket. Each feature also occurs
multiplied by the size of the input, if the first line states it, since the latency of a kernel grows with the
size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    NormalScoreTransform,
    PredictiveDistribution,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # imported where it is used: networks need no scipy

NUM_BUCKETS = 1 << 17
NUM_FEATURES = 2 * NUM_BUCKETS + 1  # n-grams, n-grams times size, size
MAX_N, MAX_CHARACTER_N = 3, 4  # tokens or characters of an n-gram
MAX_CHARACTERS = 4000  # of a text whose n-grams of characters are counted
MAX_LOG_SIZE = 63.0  # base 2
N_GRAM_SIZE_WEIGHT, SIZE_WEIGHT = 0.7, 0.55  # relative to plain n-grams
MAX_PROGRAMS = 6000  # to learn from, for each objective
MAX_RIDGE_PROGRAMS = 2400  # of these that the ridge penalty is chosen on
NUM_FOLDS = 4
RIDGE_PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
MAX_QUANTILES = 1000  # of the labels, that are saved
MIN_RESIDUAL_STD = 1e-3
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SHAPE = re.compile(r"[\[(]([\d,\s]*)[\])]")
_COMMENT = re.compile(r"(?:#|//)[^\n]*")


@dataclass(frozen=True)
class NgramSurrogate:
    """A ridge regression on n-gram features of programs for each objective.

    Args:
        objectives: names of K objectives.
        idf: inverse document frequency of each bucket, float32 [NUM_BUCKETS].
        log_size_scaling: mean and standard deviation of the base-2 logarithms of input sizes.
        weights: weights of the regression of each objective, float32 [NUM_FEATURES].
        label_quantiles: evenly spaced quantiles of the labels of each objective, float64 [Q], where Q is at
            most MAX_QUANTILES.
        residual_stds: root mean squared error of each objective's normal scores in cross-validation.
        temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        of_characters: whether n-grams are of characters, for texts without words, instead of tokens.
    """

    objectives: tuple[str, ...]
    idf: np.ndarray
    log_size_scaling: tuple[float, float]
    weights: Mapping[str, np.ndarray]
    label_quantiles: Mapping[str, np.ndarray]
    residual_stds: Mapping[str, float]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)
    of_characters: bool = False

    @classmethod
    def fit(
        cls,
        programs: Sequence[str],
        values: Mapping[str, np.ndarray],
        groups: Sequence[str] = (),
        of_characters: bool = False,
        counts: csr_matrix | None = None,
    ) -> NgramSurrogate:
        """Fit a surrogate to measured programs, at most `MAX_PROGRAMS` for each objective.

        Args:
            programs: sources of M programs.
            values: labels of each objective, float64 [M], NaN where a program is not measured.
            groups: names of the problems that the M programs solve; cross-validation then keeps programs for
                one problem in one fold. By default only equal programs share a fold.
            of_characters: whether n-grams are of characters.
            counts: `ngram_counts` of the programs, where they are known already.
        """
        drawn = {
            name: np.random.default_rng(0).permutation(np.flatnonzero(np.isfinite(measured)))[:MAX_PROGRAMS]
            for name, measured in values.items()
        }
        used = np.unique(np.concatenate([*drawn.values()]))
        used_programs = [programs[i] for i in used]
        counts = ngram_counts(used_programs, of_characters) if counts is None else counts[used]
        sizes = log_sizes(used_programs)
        scaling = (float(sizes.mean()), float(sizes.std()) or 1.0)
        idf = inverse_document_frequency(counts)
        unfitted = cls(tuple(values), idf, scaling, {}, {}, {}, of_characters=of_characters)
        features = unfitted._features(counts, sizes)
        weights, quantiles, residual_stds = {}, {}, {}
        for name, measured in values.items():
            indices = drawn[name]
            scores = NormalScoreTransform(measured[indices]).scores
            rows = features[np.searchsorted(used, indices)]
            folds = _folds([(groups or programs)[i] for i in indices])
            part = slice(MAX_RIDGE_PROGRAMS)
            penalty, residual_stds[name] = _select_penalty(rows[part], scores[part], folds[part])
            weights[name] = _to_half_precision(rows.T @ _dual_weights(_gram(rows), scores, penalty))
            levels = np.linspace(0, 1, min(MAX_QUANTILES, len(indices)))
            quantiles[name] = np.quantile(measured[indices], levels)
        return replace(unfitted, weights=weights, label_quantiles=quantiles, residual_stds=residual_stds)

    @cached_property
    def transforms(self) -> dict[str, NormalScoreTransform]:
        """For each objective, the transform between values and normal scores."""
        return {
            name: NormalScoreTransform(values, kind_of(name).maximum, minimum=kind_of(name).minimum)
            for name, values in self.label_quantiles.items()
        }

    def transform(self, programs: Sequence[str], counts: csr_matrix | None = None) -> csr_matrix:
        """Return the features of N programs, sparse [N, NUM_FEATURES].

        Args:
            programs: sources of the programs.
            counts: their `ngram_counts`, where they are known already.
        """
        found = ngram_counts(programs, self.of_characters) if counts is None else counts
        return self._features(found, log_sizes(programs))

    def predict(self, features: csr_matrix, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N programs.

        Args:
            features: features of the programs, sparse [N, NUM_FEATURES].
            objective: one of this surrogate's objectives.
        """
        mean = features @ self.weights[objective]
        std = np.full(len(mean), self.residual_stds[objective])
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(self.transforms[objective], mean.astype(float), std, temperature)

    def without(self, objectives: Sequence[str]) -> NgramSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        names = tuple(name for name in self.objectives if name not in objectives)
        return replace(self, objectives=names) if names else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        tensors = {"idf": torch.from_numpy(self.idf).half()}
        for k, name in enumerate(self.objectives):
            tensors[f"weights{k}"] = torch.from_numpy(self.weights[name]).half()
            tensors[f"label_quantiles{k}"] = torch.from_numpy(self.label_quantiles[name])
        return tensors

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and scalars."""
        return {
            "kind": "ngrams",
            "objectives": self.objectives,
            "log_size_scaling": self.log_size_scaling,
            "residual_stds": {name: self.residual_stds[name] for name in self.objectives},
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
            "of_characters": self.of_characters,
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> NgramSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        objectives = description["objectives"]
        if not isinstance(objectives, list | tuple) or not all(isinstance(name, str) for name in objectives):
            raise ValueError(f"objectives {objectives!r} is not a list of names")
        names = tuple(objectives)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"objectives {names} are not distinct names")
        labels = [f"label_quantiles{k}" for k in range(len(names))]
        label_shapes = {key: (len(tensors.get(key, ())),) for key in labels}
        weight_shapes = {f"weights{k}": (NUM_FEATURES,) for k in range(len(names))}
        check_shapes(tensors, {"idf": (NUM_BUCKETS,), **weight_shapes, **label_shapes})
        if not (tensors["idf"] > 0).all():
            raise ValueError("an inverse document frequency is not above 0")
        quantiles = {name: tensors[key].double().numpy() for name, key in zip(names, labels, strict=True)}
        if not all(q.ndim == 1 and len(q) and (np.diff(q) >= 0).all() for q in quantiles.values()):
            raise ValueError("the label quantiles of an objective are empty or not in ascending order")
        numbers = numbers_from_saved(description, "residual_stds", "a residual standard deviation", names)
        scaling = size_scaling_from_saved(description)
        weights = {name: tensors[f"weights{k}"].float().numpy() for k, name in enumerate(names)}
        idf, of_characters = tensors["idf"].float().numpy(), description.get("of_characters") is True
        return cls(names, idf, scaling, weights, quantiles, **numbers, of_characters=of_characters)

    def _features(self, counts: csr_matrix, sizes: np.ndarray) -> csr_matrix:
        """Return tf-idf rows of unit length, the same times the size, and the size, [N, NUM_FEATURES]."""
        from scipy.sparse import csr_matrix, diags_array, hstack

        ngrams = tf_idf(counts, self.idf)
        mean, std = self.log_size_scaling
        size = ((sizes - mean) / std).astype(np.float32)
        by_size = diags_array(N_GRAM_SIZE_WEIGHT * size) @ ngrams
        by_size.eliminate_zeros()  # all of them, where no program states a size
        return csr_matrix(hstack([ngrams, by_size, csr_matrix(SIZE_WEIGHT * size[:, None])]))


def numbers_from_saved(
    description: Mapping[str, Any], key: str, described: str, objectives: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return numbers and temperatures by objective, under their keys of a saved description.

    Args:
        description: the saved description.
        key: key of numbers that every objective has.
        described: what one of these numbers is.
        objectives: names of the objectives.

    Raises:
        ValueError: one of them is missing or not above 0.
    """
    numbers = {
        name: {str(objective): float(value) for objective, value in description[name].items()}
        for name in (key, "temperatures", "network_temperatures")
    }
    is_positive = all(0 < v < np.inf for by_objective in numbers.values() for v in by_objective.values())
    if not is_positive or numbers[key].keys() != set(objectives):
        raise ValueError(f"{described} or a temperature is missing or not above 0")
    return numbers


def size_scaling_from_saved(description: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean and standard deviation of logarithms of input sizes.

    Args:
        description: a saved description.

    Raises:
        ValueError: they are out of range.
    """
    mean, std = map(float, description["log_size_scaling"])
    if not (np.isfinite(mean) and 0 < std < np.inf):
        raise ValueError(f"log_size_scaling {mean}, {std} is not a mean and a standard deviation above 0")
    return mean, std


def tf_idf(counts: csr_matrix, idf: np.ndarray) -> csr_matrix:
    """Return counts weighted by the inverse document frequency, in rows of unit length.

    Args:
        counts: counts by bucket, sparse [N, F].
        idf: inverse document frequencies, float32 [F].
    """
    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    weighted.data /= np.repeat(np.maximum(lengths, 1e-9), np.diff(weighted.indptr))
    return weighted


def ngram_counts(programs: Sequence[str], of_characters: bool = False) -> csr_matrix:
    """Count n-grams of each program by bucket, float32 [N, NUM_BUCKETS]."""
    count = character_ngrams if of_characters else token_ngrams
    return word_counts(map(count, programs), NUM_BUCKETS)


def token_ngrams(text: str) -> Iterator[str]:
    """Yield the n-grams of tokens of a text."""
    return _ngrams(_TOKEN.findall(text), MAX_N)


def character_ngrams(text: str) -> Iterator[str]:
    """Yield the n-grams of characters of a text, separated by blanks."""
    return _ngrams(text[:MAX_CHARACTERS], MAX_CHARACTER_N)


def _ngrams(tokens: Sequence[str], max_n: int) -> Iterator[str]:
    """Yield the sequences of up to `max_n` tokens."""
    return (" ".join(tokens[i : i + n]) for n in range(1, max_n + 1) for i in range(len(tokens) - n + 1))


def word_counts(words: Iterable[Iterable[str]], num_buckets: int) -> csr_matrix:
    """Count the words of each of N texts by the bucket of their hash, float32 [N, num_buckets].

    Args:
        words: words of each text.
        num_buckets: number of buckets.
    """
    from scipy.sparse import csr_matrix

    buckets: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for of_text in words:
        counter = Counter(crc32(word.encode(errors="surrogatepass")) % num_buckets for word in of_text)
        buckets.append(np.fromiter(counter.keys(), np.int32, len(counter)))
        counts.append(np.fromiter(counter.values(), np.float32, len(counter)))
    row_ends = np.cumsum([0, *map(len, buckets)])
    data = np.concatenate([np.empty(0, np.float32), *counts])
    indices = np.concatenate([np.empty(0, np.int32), *buckets])
    return csr_matrix((data, indices, row_ends), shape=(len(buckets), num_buckets))


def log_sizes(programs: Sequence[str]) -> np.ndarray:
    """Return the base-2 logarithm of the number of elements of each program's largest input, float32 [N].

    A comment in the first line states the shapes, such as `# input: [[4096, 64], [64]]`; without it the
    result is 0.
    """
    return np.array([_log_size(text) for text in programs], np.float32)


def input_shapes(program: str) -> list[tuple[float, ...]]:
    """Return the shapes of the inputs that a comment in the first line of a program states.

    Examples:
        >>> input_shapes("# input: [[4096, 64], [64]]")
        [(4096.0, 64.0), (64.0,)]
    """
    comment = _COMMENT.match(program)
    shapes = _SHAPE.findall(comment[0]) if comment else []
    return [tuple(map(float, re.findall(r"\d+", shape))) for shape in shapes]


def _log_size(text: str) -> float:
    logs = [sum(np.log2(max(1.0, size)) for size in shape) for shape in input_shapes(text)]
    return float(min(max(logs, default=0.0), MAX_LOG_SIZE))


def inverse_document_frequency(counts: csr_matrix) -> np.ndarray:
    """Return the smoothed inverse document frequency of each bucket, float32 [F]."""
    num_programs = np.bincount(counts.indices, minlength=counts.shape[1])
    return _to_half_precision(np.log((1 + counts.shape[0]) / (1 + num_programs)) + 1)


def _to_half_precision(values: np.ndarray) -> np.ndarray:
    """Round values to the precision of checkpoints, float32."""
    return np.asarray(values, dtype=np.float16).astype(np.float32)


def _gram(rows: csr_matrix) -> np.ndarray:
    """Return the inner products of rows, float64 [M, M]."""
    return np.asarray((rows @ rows.T).todense(), dtype=np.float64)


def _dual_weights(gram: np.ndarray, scores: np.ndarray, penalty: float) -> np.ndarray:
    """Return the dual coefficients of a ridge regression, one for each program, float64 [M]."""
    from scipy.linalg import cho_factor, cho_solve

    regularised = gram.copy()
    np.fill_diagonal(regularised, gram.diagonal() + penalty)
    weights: np.ndarray = cho_solve(cho_factor(regularised, overwrite_a=True), scores)
    return weights


def _folds(groups: Sequence[str]) -> np.ndarray:
    """Return the cross-validation fold of each program by a hash of its group, int [M]."""
    return np.array([crc32(group.encode(errors="surrogatepass")) % NUM_FOLDS for group in groups])


def _select_penalty(rows: csr_matrix, scores: np.ndarray, folds: np.ndarray) -> tuple[float, float]:
    """Return the ridge penalty with the smallest cross-validation error, and this root mean squared error."""
    gram = _gram(rows)
    errors = {}
    for penalty in RIDGE_PENALTIES:
        residuals = np.concatenate(
            [
                gram[np.ix_(folds == k, folds != k)]
                @ _dual_weights(gram[np.ix_(folds != k, folds != k)], scores[folds != k], penalty)
                - scores[folds == k]
                for k in np.unique(folds)
                if (folds != k).any()
            ]
            or [scores]
        )
        errors[penalty] = float(np.sqrt(np.mean(residuals**2)))
    best = min(reversed(RIDGE_PENALTIES), key=errors.__getitem__)  # the strongest among equals
    return best, max(errors[best], MIN_RESIDUAL_STD)
