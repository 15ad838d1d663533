"""Ridge regression on counts: how often a text has each character, pair of characters and word.

N-gram regressions read the share of an n-gram in a text. What adds up, such as the mass of a formula or the
number of layers in a list, depends on counts instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.programs.kernel_ridge import dual_weights, left_out_predictions

MAX_CHARACTERS, MAX_WORDS = 4000, 2000  # of a text that are counted
MIN_TEXTS = 3  # that have a term
MAX_TERMS = 1000  # of most texts
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)  # for features of unit length
NUM_FOLDS = 4  # in which equal texts are in the same one
_WORD = re.compile(r"[^\W\d]+|\d+|[^\w\s]")


@dataclass(frozen=True)
class CountRegression:
    """A ridge regression of each objective's scores on standardised counts of terms.

    Examples:
        >>> import numpy as np
        >>> texts = ["a" * i + "b" * (7 * i % 10) for i in range(40)]
        >>> scores = np.array([text.count("a") for text in texts]) / 10 - 2
        >>> regression, left_out = CountRegression.fit(texts, {"y": scores})
        >>> regression.predict(regression.counts(["aaaabb"]), "y").round(1)
        array([-1.6])

    Args:
        terms: characters and pairs of them, and words, which have a null character before them.
        means: mean count of each term, float64 [F].
        scales: divisor of each count, float64 [F].
        weights: weights of each objective, float64 [F].
    """

    terms: tuple[str, ...]
    means: np.ndarray
    scales: np.ndarray
    weights: Mapping[str, np.ndarray]

    @classmethod
    def fit(
        cls, texts: Sequence[str], scores: Mapping[str, np.ndarray]
    ) -> tuple[CountRegression, dict[str, np.ndarray]]:
        """Fit a regression to M texts.

        Args:
            texts: M texts.
            scores: scores of each objective, of mean about 0, float64 [M], NaN where a text has none.

        Returns:
            The regression, and what it predicts for each text from the texts of other folds, float64 [M].
        """
        counted = [_count(text) for text in texts]
        shares = Counter(term for counts in counted for term in counts)
        frequent = [term for term, share in shares.most_common() if share >= MIN_TEXTS]
        varying = [term for term in frequent if len({counts[term] for counts in counted}) > 1]
        terms = tuple(sorted(varying[:MAX_TERMS]))
        matrix = _matrix(counted, terms)
        scales = matrix.std(0) * np.sqrt(max(1, len(terms)))
        unfitted = cls(terms, _rounded(matrix.mean(0)), _rounded(scales), {})
        rows = unfitted._standardised(matrix)
        folds = np.array([crc32(text.encode(errors="surrogatepass")) % NUM_FOLDS for text in texts])
        weights, left_out = {}, {}
        for name, column in scores.items():
            known = np.flatnonzero(np.isfinite(column))
            of_rows, predicted = _fit_rows(rows[known], column[known], folds[known])
            weights[name], left_out[name] = _rounded(of_rows), np.zeros(len(texts))
            left_out[name][known] = predicted
        return cls(terms, unfitted.means, unfitted.scales, weights), left_out

    def counts(self, texts: Sequence[str]) -> np.ndarray:
        """Return the standardised counts of N texts, float64 [N, F]."""
        return self._standardised(_matrix([_count(text) for text in texts], self.terms))

    def predict(self, counts: np.ndarray, objective: str) -> np.ndarray:
        """Return predicted scores, float64 [N].

        Args:
            counts: see `counts`, float64 [N, F].
            objective: one of the objectives.
        """
        predicted: np.ndarray = counts @ self.weights[objective]
        return predicted

    def without(self, objectives: Sequence[str]) -> CountRegression:
        """Return a copy without the given objectives."""
        weights = {name: column for name, column in self.weights.items() if name not in objectives}
        return replace(self, weights=weights)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        columns = {"means": self.means, "scales": self.scales}
        columns |= {f"weights{k}": column for k, column in enumerate(self.weights.values())}
        return {name: torch.from_numpy(column).float() for name, column in columns.items()}

    def description(self) -> dict[str, Any]:
        """Return the part of the regression that is saved as JSON."""
        return {"terms": self.terms, "objectives": tuple(self.weights)}

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> CountRegression:
        """Make a regression from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a scale is not above 0.
        """
        terms, names = tuple(map(str, description["terms"])), tuple(map(str, description["objectives"]))
        keys = ["means", "scales", *(f"weights{k}" for k in range(len(names)))]
        check_shapes(tensors, {key: (len(terms),) for key in keys})
        means, scales, *weights = (tensors[key].double().numpy() for key in keys)
        if not (scales > 0).all():
            raise ValueError("a scale of counts is not above 0")
        return cls(terms, means, scales, dict(zip(names, weights, strict=True)))

    def _standardised(self, matrix: np.ndarray) -> np.ndarray:
        return (matrix - self.means) / self.scales


def _fit_rows(rows: np.ndarray, scores: np.ndarray, folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights, and the predictions of left-out folds, with the penalty that predicts them best."""
    if not rows.shape[1] or len(set(folds.tolist())) < 2:
        return np.zeros(rows.shape[1]), np.zeros(len(rows))
    products = (rows @ rows.T).astype(np.float32)
    predictions = {
        penalty: left_out_predictions(products, scores, penalty, folds)[1] for penalty in PENALTIES
    }
    best = min(PENALTIES, key=lambda penalty: float(np.square(predictions[penalty] - scores).mean()))
    return rows.T @ dual_weights(products, scores, best).astype(float), predictions[best].astype(float)


def _count(text: str) -> Counter[str]:
    """Return the number of occurrences of each term of a text."""
    characters = text[:MAX_CHARACTERS]
    counts = Counter(characters)
    counts.update(characters[i : i + 2] for i in range(len(characters) - 1))
    words = (match[0] for match, _ in zip(_WORD.finditer(text), range(MAX_WORDS), strict=False))
    counts.update("\0" + word for word in words)
    return counts


def _matrix(counted: Sequence[Counter[str]], terms: Sequence[str]) -> np.ndarray:
    """Return the counts of terms, float64 [N, F]."""
    rows = [[counts[term] for term in terms] for counts in counted]
    return np.array(rows, dtype=float).reshape(len(counted), len(terms))


def _rounded(values: np.ndarray) -> np.ndarray:
    """Round values to the precision of checkpoints, float64."""
    return np.asarray(values, dtype=np.float32).astype(float)
