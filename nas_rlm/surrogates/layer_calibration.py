"""Intervals of layer surrogates, from errors of networks whose families were left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nas_rlm.surrogates.predictive import normal_quantiles

EXPONENTS = (0.5, 0.75, 1.0)  # with which an interval may grow with novelty
COVERED = 0.8  # share of the measurements in an interval between the quantiles at 0.1 and 0.9
MIN_STD = 0.005


@dataclass(frozen=True)
class DeviceEvidence:
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

    def __str__(self) -> str:
        learnt_from = f"{self.networks:,} networks of {self.families} families"
        if self.relative_error is None or self.within_10_percent is None:
            return f"{learnt_from}; the error on other families is not known"
        return (
            f"{learnt_from}; with families left out: error {self.relative_error:.1%},"
            f" {self.within_10_percent:.0%} within 10 %"
        )


def std_of_errors(errors: np.ndarray) -> float:
    """Return the standard deviation whose 80 % intervals have 80 % of the errors, float64 [M]."""
    if not len(errors):
        return MIN_STD
    bound = float(np.quantile(np.abs(errors), COVERED))
    return max(MIN_STD, bound / float(normal_quantiles([(1 + COVERED) / 2])[0]))


def spread_of_errors(errors: np.ndarray, novelties: np.ndarray, min_std: float) -> tuple[float, float]:
    """Return the standard deviation of log latencies, and the exponent with which novelty increases it.

    Args:
        errors: errors of the log latencies of networks whose families were left out, float64 [M].
        novelties: their novelties, float64 [M].
        min_std: standard deviation of the errors of networks of known families.
    """
    logs = np.log(np.maximum(novelties, 1))
    best = (np.inf, 1.0, 0.0)
    for exponent in EXPONENTS:
        scaled = errors / np.exp(exponent * logs)
        std = max(min_std, std_of_errors(scaled))
        loss = float((np.abs(scaled) / std).mean() + np.log(std) + exponent * logs.mean())
        best = min(best, (loss, std, exponent))
    return best[1], best[2]
