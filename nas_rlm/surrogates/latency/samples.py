"""What measured samples of a latency say: duplicates, outliers, and how well they predict each other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from nas_rlm.metrics import kendall, spearman

MAX_UNEXPLAINED, MIN_SPEARMAN = 0.5, 0.7  # leave-one-out results that are worse deserve a warning
MAX_DIFFERENCE = 0.1  # of measurements of one network, relative to their median
MIN_UNDECIDED_FACTOR = 2.0  # between two latencies of a network, of which the other networks choose one
MAX_OUTLIER_SHARE = 0.1  # of the samples
MIN_OUTLIER_FACTOR = 4.0  # between the measured and the expected latency of an outlier
MIN_SHORT_FACTOR = 30.0  # likewise of one that is too short: a device may skip most of a network
MIN_OUTLIER_DEVIATIONS = 5.0  # robust standard deviations of the other errors
MAD_TO_STD = 1.4826  # of a normal distribution
MIN_POSSIBLE = 1e-3  # longest latency of several networks; a call of a runtime alone takes about as long
MAX_IN_SECONDS = 0.1  # latencies above it are taken for milliseconds
MAX_MACS_PER_MS = 5e9  # of a network that is executed on its own; beyond it latencies may be in seconds
MIN_IN_MICROSECONDS = 100.0  # latencies below it are taken for milliseconds
MIN_MACS_PER_MS = 3e5  # of a network on a slow processor; below it latencies may be in microseconds
MAX_LISTED = 3  # networks in a warning

Model = TypeVar("Model")


@dataclass(frozen=True)
class LeaveOneOutEvidence:
    """How well a surrogate predicts each of its labelled networks from the others.

    Args:
        labels: number of labelled networks.
        spearman: Spearman correlation of predicted and measured latencies.
        kendall: Kendall's tau of them.
        relative_error: mean absolute error, relative to the measured latency (MAPE).
        within_10_percent: share of the predictions within 10 % of the measured latency.
        spread: the relative error if the median latency were predicted for each network.
    """

    labels: int
    spearman: float
    kendall: float
    relative_error: float
    within_10_percent: float
    spread: float

    @classmethod
    def of(cls, predicted: np.ndarray, measured: np.ndarray) -> LeaveOneOutEvidence:
        """Return the evidence of predicted and measured latencies, each float64 [M]."""
        errors = np.abs(predicted / measured - 1)
        return cls(
            len(measured),
            spearman(predicted, measured),
            kendall(predicted, measured),
            float(errors.mean()),
            float((errors <= 0.1).mean()),
            float(np.abs(np.median(measured) / measured - 1).mean()),
        )

    @property
    def is_weak(self) -> bool:
        """Whether the labels explain little: their error is not much below the one of the median.

        Equal labels explain nothing either, of which `check_plausible` warns.
        """
        if self.spread == 0:
            return False
        return self.relative_error > MAX_UNEXPLAINED * self.spread or self.spearman < MIN_SPEARMAN

    def __str__(self) -> str:
        ranks = f"Spearman {self.spearman:.3f}" if self.spread else "no ranks, since all latencies are equal"
        return (
            f"leave-one-out on {self.labels} networks: {ranks},"
            f" error {self.relative_error:.1%}, {self.within_10_percent:.0%} within 10 %"
        )


class Outlier(NamedTuple):
    """A sample that is far from what the other samples predict.

    Args:
        sample: its position among the samples.
        measured: its measured latency.
        expected: the latency that the other samples predict.
    """

    sample: int
    measured: float
    expected: float


@dataclass(frozen=True)
class RepeatedMeasurements:
    """The measured latencies of each of N different networks.

    Examples:
        >>> import numpy as np
        >>> found = RepeatedMeasurements.of_networks(["a", "b", "a"], np.array([1.0, 5.0, 1.02]))
        >>> found.first_samples, found.medians
        ([0, 1], array([1.01, 5.  ]))

    Args:
        samples: indices of the samples of each network.
        latencies: their latencies in ms, sorted.
    """

    samples: tuple[tuple[int, ...], ...]
    latencies: tuple[np.ndarray, ...]

    @classmethod
    def of_networks(cls, texts: Sequence[str], values: np.ndarray) -> RepeatedMeasurements:
        """Return the measurements of networks with different texts.

        Args:
            texts: texts of M measured networks.
            values: their latencies, float64 [M].
        """
        samples_of: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            samples_of.setdefault(text, []).append(i)
        samples = tuple(map(tuple, samples_of.values()))
        return cls(samples, tuple(np.sort(values[list(own)]) for own in samples))

    @property
    def first_samples(self) -> list[int]:
        """Index of the first sample of each network."""
        return [own[0] for own in self.samples]

    @property
    def medians(self) -> np.ndarray:
        """Median latency of each network, float64 [N]."""
        return np.array([np.median(own) for own in self.latencies])

    @property
    def undecided(self) -> np.ndarray:
        """Indices of networks whose median is between two latencies that differ much, int64 [U]."""
        halves = [(own[(len(own) - 1) // 2], own[len(own) // 2]) for own in self.latencies]
        return np.array(
            [i for i, (low, high) in enumerate(halves) if high > MIN_UNDECIDED_FACTOR * low], np.int64
        )

    def nearest(self, networks: np.ndarray, log_expected: np.ndarray) -> np.ndarray:
        """Return the medians, but of some networks the latency that is nearest to an expected one.

        Args:
            networks: indices of U networks.
            log_expected: logarithms of their expected latencies, float64 [U].

        Returns:
            float64 [N].
        """
        values = self.medians
        for i, expected in zip(networks, log_expected, strict=True):
            own = self.latencies[i]
            values[i] = own[np.abs(np.log(own) - expected).argmin()]
        return values

    def warn_of_contradictions(self, used: np.ndarray, names: Sequence[str], objective: str) -> None:
        """Warn of networks whose latencies differ by more than `MAX_DIFFERENCE` of their median.

        Args:
            used: the latency that is used of each network, float64 [N].
            names: names of the networks.
            objective: name of the latency.

        Warns:
            UserWarning: there are such networks.
        """
        contradictions = [
            f"{name} ({_range(own)} ms, {value:.4g} ms is used)"
            for name, own, value in zip(names, self.latencies, used, strict=True)
            if np.ptp(own) > MAX_DIFFERENCE * np.median(own)
        ]
        if contradictions:
            warnings.warn(
                f"measurements of the same network differ by more than {MAX_DIFFERENCE:.0%} in {objective};"
                f" measure again: {_listed(contradictions)}",
                stacklevel=2,
            )


def check_plausible(values: np.ndarray, macs: np.ndarray, objective: str) -> None:
    """Warn of latencies that do not depend on the network, or that look like another unit.

    Args:
        values: latencies of M networks in milliseconds, float64 [M].
        macs: their multiply-accumulates, float64 [M].
        objective: name of the latency.

    Warns:
        UserWarning: all latencies are equal, or too short or too long for the multiply-accumulates.
    """
    if np.ptp(values) == 0:
        warnings.warn(
            f"all {len(values)} networks have the same {objective}, {values[0]:.4g} ms, and so do all"
            " predictions: expected latencies that differ",
            stacklevel=2,
        )
    elif values.max() < MIN_POSSIBLE or (
        values.max() < MAX_IN_SECONDS and np.median(macs / values) > MAX_MACS_PER_MS
    ):
        warnings.warn(
            f"{objective} is between {values.min():.3g} and {values.max():.3g} for networks of"
            f" {np.median(macs):.2g} multiply-accumulates, which is short: expected milliseconds, no seconds",
            stacklevel=2,
        )
    elif values.min() > MIN_IN_MICROSECONDS and np.median(macs / values) < MIN_MACS_PER_MS:
        warnings.warn(
            f"{objective} is between {values.min():.3g} and {values.max():.3g} for networks of"
            f" {np.median(macs):.2g} multiply-accumulates, which is long: expected milliseconds, no"
            " microseconds or nanoseconds",
            stacklevel=2,
        )


def fit_without_outliers(
    fit: Callable[[np.ndarray], Model],
    log_left_out: Callable[[Model], np.ndarray],
    log_predicted: Callable[[Model, int], float],
    values: np.ndarray,
) -> tuple[Model, list[Outlier]]:
    """Fit a model to samples, and again without each outlier that leave-one-out predictions reveal.

    A sample is an outlier if it took `MIN_OUTLIER_FACTOR` times as long as a model of the others predicts,
    far outside of their own errors: what disturbs a measurement makes it longer. So it is if it took less
    than a `MIN_SHORT_FACTOR`th, as in another unit. It spoils the predictions of the others as well, so that
    the sample with the largest error is left out before its error is judged. Of the longest and the shortest
    one, it is the one without which the others have smaller errors.

    Args:
        fit: returns a model that is fitted to the samples with given indices.
        log_left_out: returns logarithms of the latency of each sample of a model, predicted from the others.
        log_predicted: returns the logarithm of the latency that a model predicts for one sample.
        values: latencies of M samples, float64 [M].

    Returns:
        The model of the samples that are no outliers, and the outliers.
    """
    logs = np.log(values)
    outliers: list[Outlier] = []
    kept = np.arange(len(values))
    model = fit(kept)
    while len(outliers) < int(MAX_OUTLIER_SHARE * len(values)):
        suspects = kept[_suspects(logs[kept] - log_left_out(model))].tolist()
        if not suspects:
            break
        others = {suspect: kept[kept != suspect] for suspect in suspects}
        models = {suspect: fit(others[suspect]) for suspect in suspects}
        errors = {s: np.abs(log_left_out(models[s]) - logs[others[s]]) for s in suspects}
        suspect = min(suspects, key=lambda s: float(errors[s].mean()))
        expected = log_predicted(models[suspect], suspect)
        error = logs[suspect] - expected
        factor = MIN_OUTLIER_FACTOR if error > 0 else MIN_SHORT_FACTOR
        threshold = MIN_OUTLIER_DEVIATIONS * MAD_TO_STD * float(np.median(errors[suspect]))
        if abs(error) < max(threshold, np.log(factor)):
            break
        outliers.append(Outlier(suspect, float(values[suspect]), float(np.exp(expected))))
        kept, model = others[suspect], models[suspect]
    return model, outliers


def _suspects(errors: np.ndarray) -> list[int]:
    """Return the samples that are too long or too short by most, if they are by much.

    Args:
        errors: logarithms of measured latencies minus those predicted from the others, float64 [M].
    """
    longest, shortest = int(errors.argmax()), int(errors.argmin())
    too_long = [longest] if errors[longest] >= np.log(MIN_OUTLIER_FACTOR) else []
    return [*too_long, *([shortest] if errors[shortest] <= -np.log(MIN_SHORT_FACTOR) else [])]


def warn_of_outliers(outliers: Sequence[Outlier], names: Sequence[str], objective: str) -> None:
    """Warn of samples that are left out.

    Args:
        outliers: the outliers.
        names: names of all samples.
        objective: name of the latency.

    Warns:
        UserWarning: there are outliers.
    """
    if outliers:
        found = [f"{names[o.sample]}: {o.measured:.4g} ms, expected {o.expected:.4g} ms" for o in outliers]
        warnings.warn(
            f"the other networks contradict {len(outliers)} of the measurements of {objective}, which"
            f" {'is' if len(outliers) == 1 else 'are'} left out; measure again: {_listed(found)}",
            stacklevel=2,
        )


def warn_of_short_samples(
    log_left_out: np.ndarray, values: np.ndarray, names: Sequence[str], objective: str
) -> None:
    """Warn of samples that took much less time than the others predict.

    They stay unless they are outliers, since a device may skip what a network need not compute.

    Args:
        log_left_out: logarithms of the latency of each sample, predicted from the others, float64 [M].
        values: measured latencies, float64 [M].
        names: names of the samples.
        objective: name of the latency.

    Warns:
        UserWarning: there are such samples.
    """
    is_short = log_left_out - np.log(values) > np.log(MIN_OUTLIER_FACTOR)
    found = [
        f"{names[i]}: {values[i]:.4g} ms, expected {np.exp(log_left_out[i]):.4g} ms"
        for i in np.flatnonzero(is_short).tolist()
    ]
    if found:
        warnings.warn(
            f"measurements of {objective} are much shorter than the other networks let expect; measure again,"
            f" unless the device can skip most of these networks: {_listed(found)}",
            stacklevel=2,
        )


def _range(values: np.ndarray) -> str:
    """Return sorted values as text; only the first and the last if they are many."""
    is_short = len(values) <= MAX_LISTED
    return (", " if is_short else " to ").join(f"{v:.4g}" for v in (values if is_short else values[[0, -1]]))


def _listed(items: Sequence[str]) -> str:
    """Return the first items as text, and how many more there are."""
    num_others = len(items) - MAX_LISTED
    return "; ".join(items[:MAX_LISTED]) + (f"; and {num_others} more" if num_others > 0 else "")
