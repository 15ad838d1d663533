"""Calibration of layer surrogates on families that were left out: strength of factors, width of intervals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from nas_rlm.surrogates.predictive import normal_quantiles
from search_spaces.wording import counted

MAX_NOVELTY = 2.0  # from which on a network is unlike all known ones
NOVEL_STD = 0.3  # smallest one of the log latency of a network that is unlike all labelled ones
MAX_LOG_STD = 1.0  # of the log latency of any network
UNLIKE_STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the factors of unlike networks, relative to known ones
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # with which an interval may grow with novelty
COVERED = 0.8  # share of the measurements in an interval between the quantiles at 0.1 and 0.9
KNOWN_FACTORS = (1.0, 1.4, 2.0, 2.8, 4.0)  # of the width that intervals of known networks need
MIN_STD, MAX_STD, NUM_STDS = 0.005, 2.0, 80  # standard deviations of log latencies, and how many are tried
_BOUND = float(normal_quantiles([(1 + COVERED) / 2])[0])  # half the width of a standard normal's interval


@dataclass(frozen=True)
class FamilyEvidence:
    """How well a device's latencies of one family are predicted from those of other families.

    Args:
        networks: number of labelled networks.
        families: number of their families; that of the networks if they have none.
        relative_error: mean absolute error, relative to the measured latency (MAPE); None where no family
            could be left out.
        within_10_percent: share of the predictions within 10 % of the measured latency; None likewise.
    """

    networks: int
    families: int
    relative_error: float | None = None
    within_10_percent: float | None = None

    @classmethod
    def of(cls, errors: np.ndarray, families: np.ndarray) -> FamilyEvidence:
        """Return the evidence of a device.

        Args:
            errors: errors of log latencies without a network's family, float64 [N], NaN where not known.
            families: families of the M measured networks.
        """
        counts = len(families), len(np.unique(families))
        known = errors[np.isfinite(errors)]
        if not len(known):
            return cls(*counts)
        relative = np.abs(np.expm1(known))
        return cls(*counts, float(relative.mean()), float((relative <= 0.1).mean()))

    def __str__(self) -> str:
        learnt_from = f"{counted(self.networks, 'network')} of {counted(self.families, 'family', 'families')}"
        if self.relative_error is None or self.within_10_percent is None:
            return f"{learnt_from}; the error on other families is not known"
        return (
            f"{learnt_from}; with families left out: error {self.relative_error:.1%},"
            f" {self.within_10_percent:.0%} within 10 %"
        )


@dataclass(frozen=True)
class LeftOutPredictions:
    """Predictions of N networks on K devices by surrogates that were fitted without their families.

    Args:
        by_costs: log latencies without factors, float64 [N, K], NaN where they are not known.
        by_factors: log latencies with factors, float64 [N, K].
        novelties: novelties of the networks, float64 [N, K].
    """

    by_costs: np.ndarray
    by_factors: np.ndarray
    novelties: np.ndarray

    def errors(self, strengths: np.ndarray, unlike: float, latencies: np.ndarray) -> np.ndarray:
        """Return errors of log latencies, float64 [N, K].

        Args:
            strengths: strengths of the factors of known networks, float64 [K].
            unlike: strength for unlike networks, relative to those.
            latencies: measured latencies, float64 [N, K].
        """
        weights = factor_weights(self.novelties, strengths, unlike * strengths)
        errors: np.ndarray = self.by_costs + weights * (self.by_factors - self.by_costs) - np.log(latencies)
        return errors

    def best_strength(self, strengths: np.ndarray, latencies: np.ndarray, families: np.ndarray) -> float:
        """Return the strength for unlike networks with the smallest errors of the families.

        Large errors of single families count more: the root mean square of the mean absolute errors of each
        family decides.

        Args:
            strengths: strengths of the factors of known networks, float64 [K].
            latencies: measured latencies, float64 [N, K].
            families: indices of the networks' families, int64 [N].
        """
        if not np.isfinite(self.by_costs).any():
            return 0.0
        losses = []
        for unlike in UNLIKE_STRENGTHS:
            errors = np.abs(self.errors(strengths, unlike, latencies))
            is_known = np.isfinite(errors)
            sums, counts = np.zeros((2, families.max() + 1, errors.shape[1]))
            np.add.at(sums, families, np.where(is_known, errors, 0))
            np.add.at(counts, families, is_known)
            losses.append(float(np.mean((sums[counts > 0] / counts[counts > 0]) ** 2)))
        return UNLIKE_STRENGTHS[int(np.argmin(losses))]


def factor_weights(novelties: np.ndarray, known: np.ndarray, unlike: np.ndarray) -> np.ndarray:
    """Return how much log factors count for networks of the given novelties, float64 [N, K].

    Args:
        novelties: novelties, float64 [N, K]. Up to 1 a network counts as known.
        known: strengths of the factors of known networks, float64 [K].
        unlike: strengths from `MAX_NOVELTY` on, float64 [K].
    """
    weights: np.ndarray = unlike + (known - unlike) * np.clip(MAX_NOVELTY - novelties, 0, 1)
    return weights


def log_stds(
    novelties: np.ndarray,
    std: float | np.ndarray,
    exponent: float | np.ndarray,
    known_std: float | np.ndarray,
) -> np.ndarray:
    """Return logarithms of standard deviations of log latencies.

    Up to a novelty of 1 it is that of known networks, from `MAX_NOVELTY` on that of others, and between them
    its logarithm is interpolated.

    Args:
        novelties: novelties, float64 [N] or [N, K].
        std: standard deviation of networks that are not known, float64 [K] or one.
        exponent: power of the novelty with which it grows.
        known_std: standard deviation of known networks.
    """
    share = np.clip(novelties - 1, 0, 1)
    logs: np.ndarray = (
        np.log(known_std)
        + share * (np.log(std) - np.log(known_std))
        + exponent * np.log(np.maximum(novelties, 1))
    )
    return logs


def predicted_stds(novelties: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Return standard deviations of predicted log latencies, float64 [N, K].

    They are those of `log_stds`, but at least `NOVEL_STD` for networks unlike all labelled ones, and at most
    `MAX_LOG_STD`.

    Args:
        novelties: novelties, float64 [N, K].
        calibration: for each device the result of `spread`, float64 [K, 3].
    """
    smallest = np.where(novelties > MAX_NOVELTY, np.log(NOVEL_STD), -np.inf)
    stds: np.ndarray = np.exp(np.clip(log_stds(novelties, *calibration.T), smallest, np.log(MAX_LOG_STD)))
    return stds


def spread(
    errors: np.ndarray, novelties: np.ndarray, known_errors: np.ndarray, known_novelties: np.ndarray
) -> tuple[float, float, float]:
    """Return standard deviation, exponent and standard deviation of known networks, see `log_stds`.

    The 80 % intervals have at least 80 % of the networks whose families were left out. Among those choices,
    the one with the highest likelihood of both kinds of errors is returned, by Laplace distributions.

    Args:
        errors: errors of the log latencies of networks whose families were left out, float64 [M].
        novelties: their novelties, float64 [M].
        known_errors: errors of left-out networks of known families, float64 [L].
        known_novelties: their novelties, float64 [L].
    """
    smallest = _std_of(known_errors)
    stds = np.geomspace(smallest, max(MAX_STD, 2 * smallest), NUM_STDS)
    best = (np.inf, float(stds[-1]), 0.0, float(stds[-1]))
    for exponent, factor in product(EXPONENTS, KNOWN_FACTORS):
        known_std = factor * smallest
        low, high = min(int(np.searchsorted(stds, known_std)), NUM_STDS - 1), NUM_STDS - 1
        while low < high:  # the smallest standard deviation whose intervals are wide enough
            middle = (low + high) // 2
            logs = log_stds(novelties, stds[middle], exponent, known_std)
            is_wide = (np.abs(errors) <= _BOUND * np.exp(logs)).mean() >= COVERED
            low, high = (low, middle) if is_wide else (middle + 1, high)
        chosen = float(stds[low]), exponent, known_std
        loss = _loss(errors, log_stds(novelties, *chosen)) + _loss(
            known_errors, log_stds(known_novelties, *chosen)
        )
        best = min(best, (loss, *chosen))
    return best[1:]


def _std_of(errors: np.ndarray) -> float:
    """Return the standard deviation whose 80 % intervals have 80 % of the errors, float64 [M]."""
    if not len(errors):
        return MIN_STD
    return max(MIN_STD, float(np.quantile(np.abs(errors), COVERED)) / _BOUND)


def _loss(errors: np.ndarray, logs: np.ndarray) -> float:
    """Return the mean negative log likelihood of M errors, up to constants; 0 for none."""
    return float((np.abs(errors) / np.exp(logs) + logs).mean()) if len(errors) else 0.0
