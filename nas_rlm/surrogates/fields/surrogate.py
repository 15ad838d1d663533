"""Surrogates of any texts: Gaussian processes on fields, n-grams and counts of texts.

A Gaussian process reads the numbers and words of a text by the words before them, see
`nas_rlm.surrogates.fields.text_fields`, with an inverse length scale for each number, so that it finds the
few fields that matter. Two more features are what ridge regressions on n-grams and on counts of characters
and words predict for a text from the others, which carry texts without fields, such as sentences, sequences
and formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import tensors_with_prefix
from nas_rlm.surrogates.fields.count_regression import CountRegression
from nas_rlm.surrogates.fields.target import (
    EARLIER_VERSION,
    MAX_SCALE_TEXTS,
    NUM_FOLDS,
    TARGET_TENSORS,
    FieldTarget,
)
from nas_rlm.surrogates.fields.text_fields import TextFields
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    PredictiveDistribution,
    temperatures_from_saved,
)
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate, ngram_counts
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from search_spaces.wording import counted

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MIN_TEXTS = 2  # with values of an objective
MAX_TEXTS = 2000  # that a Gaussian process is fitted to


@dataclass(frozen=True)
class TextFeatures:
    """Features of N texts.

    Args:
        fields: standardised fields, float64 [N, D].
        lacking: which of them a text lacks although nearly all labelled texts have them, bool [N, D].
        ngrams: n-gram features, sparse [N, B].
        counts: standardised counts, float64 [N, F].
    """

    fields: np.ndarray
    lacking: np.ndarray
    ngrams: csr_matrix
    counts: np.ndarray


@dataclass(frozen=True)
class FieldSurrogate:
    """Gaussian processes on fields, n-grams and counts of texts, one for each objective.

    Examples:
        >>> import numpy as np
        >>> texts = [f"width={w} act={a}" for w in range(20) for a in ("relu", "tanh")]
        >>> values = {"y": np.array([w + 5.0 * (a == "tanh") for w in range(20) for a in range(2)])}
        >>> surrogate = FieldSurrogate.fit(texts, values)
        >>> surrogate.predict(surrogate.transform(["width=7 act=relu"]), "y").median.round()
        array([7.])

    Args:
        fields: fields of the texts.
        ngrams: n-gram ridge regressions of the scores.
        counts: ridge regressions of the scores on counts.
        targets: the fitted Gaussian process of each objective.
        temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
    """

    fields: TextFields
    ngrams: NgramSurrogate
    counts: CountRegression
    targets: Mapping[str, FieldTarget]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives."""
        return tuple(self.targets)

    @classmethod
    def fit(cls, texts: Sequence[str], values: Mapping[str, np.ndarray], seed: int = 0) -> FieldSurrogate:
        """Fit a surrogate to M texts.

        Args:
            texts: M texts.
            values: labels of each objective, float64 [M], NaN where a text has none; each has at least
                `MIN_TEXTS`.
            seed: seed of the order of the texts, of which at most `MAX_TEXTS` are used.

        Raises:
            ValueError: an objective has fewer labels.
        """
        for name, column in values.items():
            count = int((~np.isnan(column)).sum())
            if count < MIN_TEXTS:
                raise ValueError(
                    f"{counted(count, 'text has', 'texts have')} {name}: expected at least {MIN_TEXTS}"
                )
        order = np.random.default_rng(seed).permutation(len(texts))
        drawn = {name: order[~np.isnan(column[order])][:MAX_TEXTS] for name, column in values.items()}
        used = np.unique(np.concatenate([*drawn.values()]))
        used_texts = [texts[i] for i in used]
        fields = TextFields.fit(used_texts)
        scores = {
            name: TargetTransform(column[used], RANKS).label_scores(column[used])
            for name, column in values.items()
        }
        of_characters, known_counts = _choose_ngrams(used_texts, scores)
        ngrams = NgramSurrogate.fit(used_texts, scores, of_characters=of_characters, counts=known_counts)
        left_out = _left_out_predictions(used_texts, scores, of_characters, known_counts)
        counts, left_out_counts = CountRegression.fit(used_texts, scores)
        columns = fields.transform(used_texts)
        targets = {}
        for name, rows in drawn.items():
            positions = np.searchsorted(used, rows)
            predicted = left_out[name][positions], left_out_counts[name][positions]
            features = np.column_stack([columns[positions], *predicted])
            targets[name] = FieldTarget.fit(
                torch.from_numpy(features), [*fields.group_sizes, 1, 1], values[name][rows]
            )
        return cls(fields, ngrams, counts, targets)

    def transform(self, texts: Sequence[str]) -> TextFeatures:
        """Return the features of N texts."""
        values = self.fields.values(texts)
        return TextFeatures(
            self.fields.standardised(values),
            self.fields.lacking(values),
            self.ngrams.transform(texts),
            self.counts.counts(texts),
        )

    def predict(self, features: TextFeatures, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N texts.

        Args:
            features: features of the texts.
            objective: one of this surrogate's objectives.
        """
        target = self.targets[objective]
        by_ngrams = self.ngrams.predict(features.ngrams, objective).mean
        by_counts = self.counts.predict(features.counts, objective)
        columns = np.column_stack([features.fields, by_ngrams, by_counts])
        means, stds = target.posterior(torch.from_numpy(columns), torch.from_numpy(features.lacking))
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(target.transform, means, stds, temperature)

    def with_width(self, objective: str, factor: float) -> FieldSurrogate:
        """Return a copy whose intervals of an objective are wider by a factor."""
        target = self.targets[objective]
        return replace(
            self, targets={**self.targets, objective: replace(target, width=factor * target.width)}
        )

    def without(self, objectives: Sequence[str]) -> FieldSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        targets = {name: target for name, target in self.targets.items() if name not in objectives}
        ngrams, counts = self.ngrams.without(objectives), self.counts.without(objectives)
        return replace(self, targets=targets, ngrams=ngrams, counts=counts) if targets and ngrams else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        tensors = {f"ngrams.{name}": tensor for name, tensor in self.ngrams.tensors().items()}
        tensors |= {f"counts.{name}": tensor for name, tensor in self.counts.tensors().items()}
        for k, target in enumerate(self.targets.values()):
            tensors |= {f"{name}{k}": tensor for name, tensor in target.tensors().items()}
        return tensors

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and scalars."""
        return {
            "kind": "fields",
            "objectives": self.objectives,
            "fields": self.fields.description(),
            "ngrams": self.ngrams.description(),
            "counts": self.counts.description(),
            "targets": {name: target.description() for name, target in self.targets.items()},
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> FieldSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        if "counts" not in description:
            raise ValueError(EARLIER_VERSION)
        fields = TextFields.from_description(description["fields"])
        counts = CountRegression.from_saved(tensors_with_prefix(tensors, "counts."), description["counts"])
        ngrams = NgramSurrogate.from_saved(tensors_with_prefix(tensors, "ngrams."), description["ngrams"])
        names = tuple(map(str, description["objectives"]))
        for kind, known in (("n-grams", ngrams.objectives), ("counts", tuple(counts.weights))):
            if names != known:
                raise ValueError(f"the {kind} are of {known}: expected {names}")
        targets = {}
        for k, name in enumerate(names):
            saved = {key: tensors[f"{key}{k}"] for key in TARGET_TENSORS if f"{key}{k}" in tensors}
            try:
                targets[name] = FieldTarget.from_saved(saved, description["targets"][name], len(fields.means))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return cls(fields, ngrams, counts, targets, *temperatures_from_saved(description))


def _choose_ngrams(texts: Sequence[str], scores: Mapping[str, np.ndarray]) -> tuple[bool, csr_matrix]:
    """Return whether n-grams of characters have smaller errors than those of tokens, and their counts."""
    part = slice(MAX_SCALE_TEXTS)
    known = {name: column[part] for name, column in scores.items() if np.isfinite(column[part]).any()}
    counts = [ngram_counts(texts, of_characters) for of_characters in (False, True)]
    errors = []
    for of_characters in (False, True):
        ngrams = NgramSurrogate.fit(
            texts[part], known, of_characters=of_characters, counts=counts[of_characters][part]
        )
        errors.append(sum(ngrams.residual_stds.values()))
    chosen = errors[1] < errors[0]
    return chosen, counts[chosen]


def _left_out_predictions(
    texts: Sequence[str], scores: Mapping[str, np.ndarray], of_characters: bool, counts: csr_matrix
) -> dict[str, np.ndarray]:
    """Return what n-grams predict for each text from the texts of other folds, float64 [M]."""
    folds = np.array([crc32(text.encode(errors="surrogatepass")) % NUM_FOLDS for text in texts])
    predictions = {name: np.zeros(len(texts)) for name in scores}
    for fold in np.unique(folds):
        inside, others = (np.flatnonzero(part).tolist() for part in (folds == fold, folds != fold))
        known = {name: s[others] for name, s in scores.items() if np.isfinite(s[others]).any()}
        if not known:
            continue
        ngrams = NgramSurrogate.fit(
            [texts[i] for i in others], known, of_characters=of_characters, counts=counts[others]
        )
        features = ngrams.transform([texts[i] for i in inside], counts[inside])
        for name in known:
            predictions[name][inside] = ngrams.predict(features, name).mean
    return predictions
