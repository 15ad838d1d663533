"""Surrogates of any texts: Gaussian processes on fields, n-grams and counts of texts.

A Gaussian process reads the numbers and words of a text by the words before them, see
`nas_rlm.surrogates.text_fields`, with an inverse length scale for each number, so that it finds the few
fields that matter. Two more features are what ridge regressions on n-grams and on counts of characters and
words predict for a text from the others, which carry texts without fields, such as sentences, sequences and
formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes, tensors_with_prefix
from nas_rlm.surrogates.count_regression import CountRegression
from nas_rlm.surrogates.gaussian_process import (
    GaussianProcess,
    compute_alpha,
    fit_hyperparameters,
    leave_one_out,
    leave_one_out_posterior,
)
from nas_rlm.surrogates.ngrams import NgramSurrogate, ngram_counts
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    EPSILON,
    PredictiveDistribution,
    normal_quantiles,
    student_width,
)
from nas_rlm.surrogates.target_transform import LINEAR, RANKS, SCALES, TargetTransform
from nas_rlm.surrogates.text_fields import TextFields
from search_spaces.wording import counted

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MIN_TEXTS = 2  # with values of an objective
MAX_TEXTS = 2000  # that a Gaussian process is fitted to
MAX_SCALE_TEXTS = 300  # that the scale of a target is chosen on
OTHER_SCALE_PENALTY = 1.05  # of errors on a scale that is not that of the values
MAX_REFITTED_TEXTS = 500  # for which hyperparameters are fitted without each fold: few texts overfit them
MIN_WIDTH, MAX_WIDTH = 1e-3, 10.0  # of intervals, relative to those of the Gaussian process
INTERVAL_SHARE = 0.8  # of values that intervals contain
KNOWN_SHARE = 0.95  # of labelled texts whose standard deviations intervals were calibrated for
FEW_TEXTS = 10  # below which left-out errors say little: intervals are those of Student's t distribution
NUM_FOLDS = 4  # that are left out in turn
NUM_IMPUTED = 64  # labelled texts of which fields are taken that a text lacks
NUM_REGRESSIONS = 2  # whose predictions are features: on n-grams and on counts
PROCESS_TENSORS = (
    "features",
    "scores",
    "hyperparameters",
    "alpha",
    "regression_hyperparameters",
    "regression_alpha",
)


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
class FittedTarget:
    """The Gaussian processes of one objective.

    A process on many fields overfits few texts that fields do not explain, such as sentences. A second one
    is linear in the last two features alone, what the regressions predict. The means of both are averaged.

    Args:
        transform: transform between values and scores.
        features: features of the M labelled texts, float64 [M, D + 2]: fields, and what n-grams and counts
            predict.
        scores: scores of their labels, float64 [M].
        hyperparameters: see `nas_rlm.surrogates.gaussian_process`, float64 [D + 3].
        alpha: as for the hyperparameters, float64 [M].
        regression_hyperparameters: those of the second process, float64 [3].
        regression_alpha: as for these hyperparameters, float64 [M].
        share: weight of the first process in the mean, from 0 to 1.
        width: factor of the standard deviations, which calibrates intervals.
        known_std: the largest standard deviation for which a narrower `width` holds: that of most labelled
            texts, predicted from the others.
    """

    transform: TargetTransform
    features: Tensor
    scores: Tensor
    hyperparameters: Tensor
    alpha: Tensor
    regression_hyperparameters: Tensor
    regression_alpha: Tensor
    share: float
    width: float
    known_std: float

    @classmethod
    def fit(cls, features: Tensor, group_sizes: Sequence[int], values: np.ndarray) -> FittedTarget:
        """Fit Gaussian processes to M labels, float64 [M], on the scale whose left-out labels they rank best.

        Args:
            features: features of the M texts in random order, float64 [M, D + 2].
            group_sizes: number of features in each group that shares a length scale.
            values: the labels; infinite ones are the largest or smallest.
        """
        transform = _choose_transform(features, group_sizes, values)
        scores = torch.from_numpy(transform.label_scores(values)).float().double()
        features = features.float().double()  # the precision of checkpoints
        regressions, sizes = features[:, -NUM_REGRESSIONS:], [1] * NUM_REGRESSIONS
        hyperparameters, alpha, left_out = _fit_process(features, group_sizes, scores)
        of_regressions, regression_alpha, other = _fit_process(regressions, sizes, scores, NUM_REGRESSIONS)
        is_enough = len(scores) >= FEW_TEXTS
        share = _best_share(left_out[0] - scores, other[0] - scores) if is_enough else 1.0
        means, stds = (share * a + (1 - share) * b for a, b in zip(left_out, other, strict=True))
        width = interval_width((scores - means).numpy(), stds.numpy())
        if not is_enough:
            width = max(1.0, width) * student_width(len(scores))
        known_std = float(stds.quantile(KNOWN_SHARE))
        processes = hyperparameters, alpha, of_regressions, regression_alpha
        return cls(transform, features, scores, *processes, share, width, known_std)

    def posterior(self, features: Tensor, lacking: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N texts, each float64 [N].

        A text that lacks a field is predicted with the fields of labelled texts, and has the mean and the
        variance of the mixture. For a number beyond all labelled ones the variance grows with the distance
        and with the effect of the field on the labelled texts.

        Args:
            features: features of the texts, float64 [N, D + 2].
            lacking: fields that they lack, bool [N, D].
        """
        means, stds = self._posterior(features)
        fields = self.features[:, :-NUM_REGRESSIONS]
        texts = features[:, :-NUM_REGRESSIONS]
        distances = torch.maximum(texts - fields.amax(0), fields.amin(0) - texts).clamp(min=0)
        distances /= torch.from_numpy(fields.numpy().std(0)) + EPSILON
        for i in lacking.any(1).nonzero().ravel().tolist():
            means[i], stds[i], effect = self._imputed(features[i], lacking[i])
            stds[i] = math.hypot(stds[i], effect)
        for i, column in ((distances > 0) & ~lacking).nonzero().tolist():
            *_, effect = self._imputed(features[i], torch.tensor([column]))
            stds[i] = math.hypot(stds[i], effect * float(distances[i, column]))
        return means, stds

    def _imputed(self, features: Tensor, columns: Tensor) -> tuple[float, float, float]:
        """Predict a text with some fields of labelled texts.

        Args:
            features: features of the text, float64 [D + 2].
            columns: which fields are replaced, indices or bool [D].

        Returns:
            The mean score, the root of the mean variance, and the standard deviation of the means.
        """
        labelled = self.features[:NUM_IMPUTED]
        imputed = features.repeat(len(labelled), 1)
        imputed[:, :-NUM_REGRESSIONS][:, columns] = labelled[:, :-NUM_REGRESSIONS][:, columns]
        means, stds = self._posterior(imputed)
        return float(means.mean()), float(np.sqrt(np.square(stds).mean())), float(means.std())

    def _posterior(self, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N texts that lack no field."""
        first = GaussianProcess(self.features, self.scores, self.hyperparameters, self.alpha)
        second = GaussianProcess(
            self.features[:, -NUM_REGRESSIONS:],
            self.scores,
            self.regression_hyperparameters,
            self.regression_alpha,
            num_linear=NUM_REGRESSIONS,
        )
        both = first.posterior(features), second.posterior(features[:, -NUM_REGRESSIONS:])
        means, stds = (self.share * a + (1 - self.share) * b for a, b in zip(*both, strict=True))
        unknown = (stds - self.known_std).clamp(min=0)
        return means.numpy(), (self.width * (stds - unknown) + max(1.0, self.width) * unknown).numpy()

    def description(self) -> dict[str, Any]:
        """Return the part that is saved as JSON."""
        scalars = {"share": self.share, "width": self.width, "known_std": self.known_std}
        return {**self.transform.description(), **scalars}


def _fit_process(
    features: Tensor, group_sizes: Sequence[int], scores: Tensor, num_linear: int = 0
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return hyperparameters and alpha of a Gaussian process, and its posterior of each score from others."""
    hyperparameters = fit_hyperparameters(features, group_sizes, scores, num_linear).float().double()
    alpha = compute_alpha(features, scores, hyperparameters, num_linear).float().double()
    if len(scores) > MAX_REFITTED_TEXTS:
        left_out = leave_one_out_posterior(features, scores, hyperparameters, num_linear)
    else:
        left_out = _left_out_posterior(features, group_sizes, scores, num_linear)
    return hyperparameters, alpha, left_out


def _best_share(first: Tensor, second: Tensor) -> float:
    """Return the weight of the first of two predictors that minimises the squared error of their mean.

    Args:
        first: errors of the first predictor [M].
        second: errors of the second.
    """
    difference = second - first
    return float(((second * difference).sum() / (difference.square().sum() + EPSILON)).clamp(0, 1))


def _left_out_posterior(
    features: Tensor, group_sizes: Sequence[int], scores: Tensor, num_linear: int
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each score from the texts of other folds, each float64 [M]."""
    fold = torch.arange(len(scores)) % NUM_FOLDS
    means, stds = torch.zeros_like(scores), torch.ones_like(scores)
    for k in range(NUM_FOLDS):
        others = fold != k
        known = features[others], scores[others]
        hyperparameters = fit_hyperparameters(known[0], group_sizes, known[1], num_linear)
        alpha = compute_alpha(*known, hyperparameters, num_linear)
        process = GaussianProcess(*known, hyperparameters, alpha, num_linear=num_linear)
        means[~others], stds[~others] = process.posterior(features[~others])
    return means, stds


def interval_width(errors: np.ndarray, stds: np.ndarray) -> float:
    """Return the factor of standard deviations at which 80 % intervals contain 80 % of the errors.

    Args:
        errors: errors of M means, float64 [M].
        stds: predicted standard deviations, float64 [M].
    """
    sizes = np.abs(errors) / np.maximum(stds, EPSILON)
    width = np.quantile(sizes, INTERVAL_SHARE) / normal_quantiles([(1 + INTERVAL_SHARE) / 2])[0]
    return float(np.clip(width, MIN_WIDTH, MAX_WIDTH))


def _choose_transform(features: Tensor, group_sizes: Sequence[int], values: np.ndarray) -> TargetTransform:
    """Return the transform with the smallest error of left-out labels, in their normal scores."""
    ranks = TargetTransform(values, RANKS)
    if np.isinf(values).any() or np.ptp(values) == 0:
        return ranks
    part = slice(MAX_SCALE_TEXTS)
    true = ranks.forward(values[part])
    errors = {}
    for scale in SCALES:
        transform = TargetTransform(values, scale)
        scores = torch.from_numpy(transform.label_scores(values[part]))
        if not scores.isfinite().all() or scores.std() == 0:
            continue
        hyperparameters = fit_hyperparameters(features[part], group_sizes, scores)
        predicted = transform.inverse(leave_one_out(features[part], scores, hyperparameters).numpy())
        error = float(np.mean(np.abs(ranks.forward(predicted) - true)))
        errors[scale] = error if scale == LINEAR else OTHER_SCALE_PENALTY * error
    return TargetTransform(values, min(errors, key=errors.__getitem__)) if errors else ranks


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
        temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
    """

    fields: TextFields
    ngrams: NgramSurrogate
    counts: CountRegression
    targets: Mapping[str, FittedTarget]
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
            targets[name] = FittedTarget.fit(
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
            tensors[f"finite{k}"] = torch.from_numpy(target.transform.finite)
            for name in PROCESS_TENSORS:
                tensors[f"{name}{k}"] = getattr(target, name).float()
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
        if "counts" not in description or any("known_std" not in t for t in description["targets"].values()):
            raise ValueError("the surrogate of texts is that of an earlier version: fit the model again")
        fields = TextFields.from_description(description["fields"])
        counts = CountRegression.from_saved(tensors_with_prefix(tensors, "counts."), description["counts"])
        ngrams = NgramSurrogate.from_saved(tensors_with_prefix(tensors, "ngrams."), description["ngrams"])
        names = tuple(map(str, description["objectives"]))
        for kind, known in (("n-grams", ngrams.objectives), ("counts", tuple(counts.weights))):
            if names != known:
                raise ValueError(f"the {kind} are of {known}: expected {names}")
        targets = {}
        for k, name in enumerate(names):
            saved, count = description["targets"][name], len(tensors.get(f"scores{k}", ()))
            width = len(fields.means) + NUM_REGRESSIONS
            shapes = {
                "features": (count, width),
                "scores": (count,),
                "hyperparameters": (width + 1,),
                "alpha": (count,),
                "regression_hyperparameters": (NUM_REGRESSIONS + 1,),
                "regression_alpha": (count,),
                "finite": (len(tensors.get(f"finite{k}", ())),),
            }
            check_shapes(tensors, {f"{key}{k}": shape for key, shape in shapes.items()})
            for key in ("width", "known_std"):
                if not 0 < float(saved[key]) < np.inf:
                    raise ValueError(f"the {key} of {name} is {saved[key]}: expected a number above 0")
            if not 0 <= float(saved["share"]) <= 1:
                raise ValueError(f"the share of {name} is {saved['share']}: expected a number from 0 to 1")
            targets[name] = FittedTarget(
                TargetTransform.from_saved(tensors[f"finite{k}"].double().numpy(), saved),
                tensors[f"features{k}"].double(),
                tensors[f"scores{k}"].double(),
                tensors[f"hyperparameters{k}"].double(),
                tensors[f"alpha{k}"].double(),
                tensors[f"regression_hyperparameters{k}"].double(),
                tensors[f"regression_alpha{k}"].double(),
                share=float(saved["share"]),
                width=float(saved["width"]),
                known_std=float(saved["known_std"]),
            )
        temperatures, network = (
            {str(name): float(t) for name, t in description[key].items()}
            for key in ("temperatures", "network_temperatures")
        )
        if not all(0 < t < np.inf for t in (*temperatures.values(), *network.values())):
            raise ValueError("a temperature is not above 0")
        return cls(fields, ngrams, counts, targets, temperatures, network)


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
