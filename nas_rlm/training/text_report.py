"""Reports of fits to texts: metrics on holdout rows, of the model and of simple baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.data.text_data import TextData
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.predictive import MIN_LABELS, normal_quantiles
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from nas_rlm.training.text_network import LEVELS

RLM_METHOD, NGRAMS, MEDIAN = "rlm", "ngrams", "median"
METHODS = {
    RLM_METHOD: "the model: for each objective what predicts it, as named above",
    "network": "the network alone",
    "surrogate": "the Gaussian process on fields and n-grams alone",
    "both": "the product of both",
    NGRAMS: "baseline: a ridge regression on n-grams",
    MEDIAN: "baseline: the quantiles of the training rows",
}


@dataclass(frozen=True)
class HoldoutMetrics:
    """How well a method predicts holdout rows.

    Args:
        rows: number of rows with a value.
        spearman: Spearman correlation of medians and values.
        kendall: Kendall's tau of them.
        mae: mean absolute error of finite values.
        mape: mean absolute error relative to the value, in percent, of finite values other than 0.
        coverage: share of values within the quantiles at 0.1 and 0.9.
        within_10_percent: share of finite values other than 0 with a relative error of at most 10 %; NaN in
            results of earlier versions.
    """

    rows: int
    spearman: float
    kendall: float
    mae: float
    mape: float
    coverage: float
    within_10_percent: float = math.nan

    @classmethod
    def of(cls, quantiles: np.ndarray, true: np.ndarray) -> HoldoutMetrics:
        """Compare quantiles at `LEVELS` [N, 3] with values [N]."""
        low, median, high = quantiles.T
        finite = np.isfinite(true) & np.isfinite(median)
        with np.errstate(over="ignore"):  # of differences between the largest and the smallest floats
            errors = np.abs(median[finite] - true[finite])
            is_relative = true[finite] != 0
            relative = errors[is_relative] / np.abs(true[finite][is_relative])
        return cls(
            rows=len(true),
            spearman=spearman(_ranks(median), _ranks(true)),
            kendall=kendall(_ranks(median), _ranks(true)),
            mae=_mean(errors),
            mape=100 * _mean(relative),
            coverage=coverage(low, high, true),
            within_10_percent=_mean(relative <= 0.1),
        )


@dataclass(frozen=True)
class FitReport:
    """What a fit found.

    Args:
        rows: number of rows with a value.
        labels: number of values of each objective.
        holdout_rows: number of rows that were held out for the metrics.
        metrics: metrics by objective and method, see `METHODS`, of models that were fitted to the other rows;
            empty without holdout rows.
        sources: what predicts each objective: network, surrogate or both.
        epochs: number of epochs of the network.
        notes: what was left out, and what the rows were too few for.
    """

    rows: int
    labels: Mapping[str, int]
    holdout_rows: int
    metrics: Mapping[str, Mapping[str, HoldoutMetrics]]
    sources: Mapping[str, str]
    epochs: int
    notes: Sequence[str] = ()


def holdout_metrics(
    predicted: Mapping[str, np.ndarray], holdout: TextData, train: TextData | None = None
) -> dict[str, dict[str, HoldoutMetrics]]:
    """Return the metrics of methods and of simple baselines on holdout rows, by objective and method.

    Args:
        predicted: by method, quantiles at `LEVELS` of the K objectives of N rows, float64 [N, K, 3].
        holdout: the N rows.
        train: rows that the methods were fitted to; None for no baselines.
    """
    metrics: dict[str, dict[str, HoldoutMetrics]] = {}
    for k, name in enumerate(holdout.objectives):
        rows = holdout.labelled(name)
        if not len(rows) or (train is not None and not len(train.labelled(name))):
            continue
        quantiles = {method: q[rows, k] for method, q in predicted.items()}
        if train is not None:
            known = train.labelled(name)
            values = train.values[name][known]
            if len(values) >= MIN_LABELS:
                texts = [train.texts[i] for i in known]
                quantiles[NGRAMS] = ngram_quantiles(texts, values, [holdout.texts[i] for i in rows])
            quantiles[MEDIAN] = constant_quantiles(values, len(rows))
        true = holdout.values[name][rows]
        metrics[name] = {method: HoldoutMetrics.of(q, true) for method, q in quantiles.items()}
    return metrics


def ngram_quantiles(texts: Sequence[str], values: np.ndarray, test_texts: Sequence[str]) -> np.ndarray:
    """Return quantiles at `LEVELS`, float64 [N, 3], of a ridge regression on n-grams.

    Args:
        texts: M training texts, at least `MIN_LABELS`.
        values: their values, float64 [M].
        test_texts: N texts to predict.
    """
    transform = TargetTransform(values, RANKS)
    surrogate = NgramSurrogate.fit(texts, {"": transform.label_scores(values)})
    scores = surrogate.predict(surrogate.transform(test_texts), "").quantiles(LEVELS)
    return transform.inverse(scores)


def constant_quantiles(values: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the quantiles at `LEVELS` of training values, float64 [M], for each of N rows: [N, 3]."""
    constant = TargetTransform(values, RANKS).inverse(normal_quantiles(LEVELS))
    return np.tile(constant, (num_rows, 1))


def _mean(errors: np.ndarray) -> float:
    """Return the mean, which is infinite where the sum overflows; NaN for none."""
    with np.errstate(over="ignore"):
        return float(errors.mean()) if len(errors) else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values, which may be infinite."""
    return np.unique(values, return_inverse=True)[1].astype(float)
