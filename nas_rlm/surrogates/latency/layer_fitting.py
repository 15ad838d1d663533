"""Fitting of layer surrogates, and their calibration on networks and families that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nas_rlm.graph.executed_layers import TERMS
from nas_rlm.surrogates.latency.features import CLASSES
from nas_rlm.surrogates.latency.layer_calibration import FamilyEvidence, LeftOutPredictions, spread
from nas_rlm.surrogates.latency.layer_costs import choose_free_share, fit_coefficients
from nas_rlm.surrogates.latency.layer_network import (
    NUM_EPOCHS,
    SMALLEST,
    WIDTH,
    LayerCounts,
    fit_layer_network,
    terms_by_type,
)
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate, leverages, standardised
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.utils.progress import progress_bar

KNOWN_QUANTILE = 0.95  # of the labelled networks' leverages, up to which a network counts as known
RIDGE = 1e-2  # of the covariances of hidden values
NUM_FOLDS = 10  # of the cross-validation over families
MAX_FOLD_NETWORKS, NUM_FOLD_EPOCHS = 4000, 12
HELD_OUT_SHARE = 0.1  # that the strength of the factors is chosen on


@dataclass(frozen=True)
class _HeldOut:
    """How surrogates predict networks that they were not fitted to.

    Args:
        shares: shares of free coefficients, chosen on families left out, float64 [K].
        strengths: strengths of the factors of known networks, float64 [K].
        unlike: strength for unlike networks, relative to those.
        known_errors: errors of log latencies of single networks that were left out, float64 [H, K].
        known_novelties: their novelties, float64 [H, K].
        left_out: predictions of all networks without their families.
    """

    shares: np.ndarray
    strengths: np.ndarray
    unlike: float
    known_errors: np.ndarray
    known_novelties: np.ndarray
    left_out: LeftOutPredictions

    def errors(self, latencies: np.ndarray) -> np.ndarray:
        """Return the errors of log latencies of all networks without their families, float64 [N, K]."""
        return self.left_out.errors(self.strengths, self.unlike, latencies)

    def with_strengths(self, surrogate: LayerSurrogate) -> LayerSurrogate:
        """Return a surrogate with these strengths of the factors."""
        return surrogate.with_strengths(self.strengths, self.unlike)


def families_and_folds(groups: Sequence[str], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the family of each of N networks, and the fold in which it is left out, int64 [N].

    Args:
        groups: names of the networks' families; if empty each network is a family.
        count: number N of networks.
    """
    families = np.unique([*groups] if groups else np.arange(count), return_inverse=True)[1]
    return families, (np.random.default_rng(0).permutation(families.max() + 1) % NUM_FOLDS)[families]


def fit_layers_of_texts(
    texts: Sequence[str], values: Mapping[str, np.ndarray], groups: Sequence[str] = ()
) -> LayerSurrogate:
    """Fit a layer surrogate to measured networks.

    Args:
        texts: texts of N networks.
        values: latencies above 0 by objective, float64 [N], NaN where a network is not measured.
        groups: names of the N networks' families, which the intervals are calibrated across. By default
            each network is a family.
    """
    return fit_layer_counts(LayerCounts.of_texts(texts), values, groups)


def fit_layer_counts(
    counts: LayerCounts, values: Mapping[str, np.ndarray], groups: Sequence[str] = ()
) -> LayerSurrogate:
    """Fit a layer surrogate to the layers of N measured networks; see `fit_layers_of_texts`."""
    latencies, count, names = np.stack([*values.values()], 1), len(counts.ends), tuple(values)
    families, _ = families_and_folds(groups, count)
    held_out = _held_out(names, counts, latencies, groups)
    fitted = fit_uncalibrated(names, counts, latencies, np.arange(count), NUM_EPOCHS, held_out.shares)
    errors, novelties = held_out.errors(latencies), held_out.left_out.novelties
    calibration, evidence = held_out.with_strengths(fitted).calibration, {}
    for k, name in enumerate(names):
        is_measured, is_predicted = np.isfinite(latencies[:, k]), np.isfinite(errors[:, k])
        evidence[name] = FamilyEvidence.of(errors[:, k], families[is_measured])
        if is_predicted.any():
            is_known = np.isfinite(held_out.known_errors[:, k])
            calibration[k, 2:5] = spread(
                *(errors[is_predicted, k], novelties[is_predicted, k]),
                *(held_out.known_errors[is_known, k], held_out.known_novelties[is_known, k]),
            )
    return replace(fitted, calibration=calibration, evidence=evidence)


def errors_of_left_out(
    counts: LayerCounts, values: Mapping[str, np.ndarray], groups: Sequence[str]
) -> np.ndarray:
    """Return the errors of log latencies by surrogates without each family, float64 [N, K].

    The evidence of a fitted surrogate sums them up. They are NaN where they are not known. Arguments are
    those of `fit_layer_counts`; `families_and_folds` has the parts that are left out.
    """
    latencies = np.stack([*values.values()], 1)
    return _held_out(tuple(values), counts, latencies, groups).errors(latencies)


def _held_out(
    names: tuple[str, ...], counts: LayerCounts, latencies: np.ndarray, groups: Sequence[str]
) -> _HeldOut:
    """Return predictions of networks and of families that surrogates were fitted without."""
    count = len(counts.ends)
    families, folds = families_and_folds(groups, count)
    is_held_out = np.random.default_rng(0).random(count) < HELD_OUT_SHARE
    shares = _free_shares(counts, latencies, families, folds)
    part = _fit_part(names, counts, latencies, ~is_held_out, shares)
    strengths, held_out = _strengths(part, counts, latencies, is_held_out), np.flatnonzero(is_held_out)
    known, novelties = part.with_strengths(strengths).log_latencies(counts.select(held_out))
    left_out = _leave_families_out(names, counts, latencies, folds, shares)
    unlike = left_out.best_strength(strengths, latencies, families)
    known_errors = known - np.log(latencies[held_out])
    return _HeldOut(shares, strengths, unlike, known_errors, novelties, left_out)


def _leave_families_out(
    names: tuple[str, ...],
    counts: LayerCounts,
    latencies: np.ndarray,
    folds: np.ndarray,
    shares: np.ndarray,
) -> LeftOutPredictions:
    """Return the predictions of each network by surrogates without its family.

    They are NaN where a device has too few labels in other families.
    """
    found = LeftOutPredictions(*(np.full_like(latencies, np.nan) for _ in range(3)))
    for fold in progress_bar(range(NUM_FOLDS), "leave families out", unit="fold", delay=2):
        is_left_out = folds == fold
        if not is_left_out.any() or is_left_out.all():
            continue
        part = _fit_part(names, counts, latencies, ~is_left_out, shares)
        is_known = np.isfinite(latencies[~is_left_out]).sum(0) >= MIN_LABELS
        cells = np.ix_(np.flatnonzero(is_left_out), np.flatnonzero(is_known))
        by_costs, by_factors, hidden = part.sums(counts)
        found.by_costs[cells], found.by_factors[cells] = by_costs[cells], by_factors[cells]
        found.novelties[cells] = part.novelties(hidden)[cells]
    return found


def _free_shares(
    counts: LayerCounts, latencies: np.ndarray, families: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """Return for each device the share of free coefficients, chosen on families left out, float64 [K]."""
    types = sorted({layer.type for layer in counts.layers})
    costs, shares = counts.sums(terms_by_type(counts.layers, types)), np.zeros(latencies.shape[1])
    for k in progress_bar(range(len(shares)), "choose coefficients", unit="device", delay=2):
        measured = np.flatnonzero(np.isfinite(latencies[:, k]))
        own = costs[measured], latencies[measured, k], types, families[measured], folds[measured]
        shares[k] = choose_free_share(*own)
    return shares


def _fit_part(
    names: tuple[str, ...],
    counts: LayerCounts,
    latencies: np.ndarray,
    is_used: np.ndarray,
    shares: np.ndarray,
) -> LayerSurrogate:
    """Fit to at most `MAX_FOLD_NETWORKS` of the used networks, to predict others."""
    networks = np.random.default_rng(0).permutation(np.flatnonzero(is_used))[:MAX_FOLD_NETWORKS]
    return fit_uncalibrated(names, counts, latencies, networks, NUM_FOLD_EPOCHS, shares)


def fit_uncalibrated(
    names: tuple[str, ...],
    counts: LayerCounts,
    latencies: np.ndarray,
    networks: np.ndarray,
    num_epochs: int,
    shares: np.ndarray,
) -> LayerSurrogate:
    """Fit to the given networks, without a calibration of strengths and intervals.

    Args:
        names: names of the K latencies.
        counts: layers of N networks.
        latencies: their latencies, float64 [N, K].
        networks: indices of the networks to fit to, int64 [M].
        num_epochs: passes over them.
        shares: shares of free coefficients, float64 [K].
    """
    used = {counts.layers[i].type for i in np.unique(counts.rows_of(networks)[1].numpy())}
    types = (*sorted(used), *(f"[{name}]" for name in CLASSES))
    terms = terms_by_type(counts.layers, types)
    costs, num_devices = counts.sums(terms), len(names)
    coefficients = np.zeros((num_devices, 1 + costs.shape[1]))
    for k in range(num_devices):
        measured = networks[np.isfinite(latencies[networks, k])]
        if len(measured):
            coefficients[k] = fit_coefficients(costs[measured], latencies[measured, k], types, shares[k])
    constants, own = coefficients[:, 0], coefficients[:, 1:]
    network = fit_layer_network(counts, networks, terms @ own.T, constants, latencies, num_epochs)
    empty = np.zeros((num_devices, WIDTH))
    surrogate = LayerSurrogate(
        names,
        types,
        own.reshape(num_devices, len(types), len(TERMS)),
        constants,
        network,
        empty,
        empty + 1,
        np.zeros((num_devices, WIDTH + 1, WIDTH + 1)),
        np.tile([np.inf, 1.0, 1.0, 0.0, 1.0, 0.0], (num_devices, 1)),
        {},
    )
    return _with_leverages(surrogate, counts, networks, np.isfinite(latencies))


def _with_leverages(
    surrogate: LayerSurrogate, counts: LayerCounts, networks: np.ndarray, is_measured: np.ndarray
) -> LayerSurrogate:
    """Return the surrogate with the distribution of the hidden values of its labelled networks."""
    hidden = surrogate.sums(counts)[2]
    mean, std = surrogate.hidden_mean.copy(), surrogate.hidden_std.copy()
    precision, calibration = surrogate.precision.copy(), surrogate.calibration.copy()
    for k in range(len(surrogate.objectives)):
        own = hidden[networks[is_measured[networks, k]], k]
        if not len(own):
            continue
        mean[k], std[k] = own.mean(0), own.std(0) + SMALLEST
        scaled = standardised(own, mean[k], std[k])
        precision[k] = np.linalg.inv(scaled.T @ scaled / len(scaled) + RIDGE * np.eye(WIDTH + 1))
        calibration[k, 0] = np.quantile(leverages(scaled, precision[k]), KNOWN_QUANTILE)
    return replace(surrogate, hidden_mean=mean, hidden_std=std, precision=precision, calibration=calibration)


def _strengths(
    surrogate: LayerSurrogate, counts: LayerCounts, latencies: np.ndarray, is_used: np.ndarray
) -> np.ndarray:
    """Return for each device the multiple of the log factors that fits the used networks best, [K]."""
    by_costs, by_factors, _ = surrogate.sums(counts)
    strengths = np.zeros(len(surrogate.objectives))
    for k in range(len(strengths)):
        used = is_used & np.isfinite(latencies[:, k])
        change = by_factors[used, k] - by_costs[used, k]
        missing = np.log(latencies[used, k]) - by_costs[used, k]
        strengths[k] = np.clip(change @ missing / max(change @ change, SMALLEST), 0, 1)
    return strengths
