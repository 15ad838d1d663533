"""Selection of the architectures to measure next by expected hypervolume improvement.

While there are too few measurements for surrogates, normal scores of the model's predictions stand for the
predictive distributions, and every second architecture is drawn at random: predictions for a space without
labels may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from nas_rlm.search.acquisition.expected_improvement import expected_improvement
from nas_rlm.search.acquisition.training_costs import relative_training_costs
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.result import FAILED
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.predictive import normal_scores

# Quantiles that stand for a predictive distribution: their normal scores, levels and probabilities. Far tails
# are among them, since late in a search only these are improvements.
SCORES = np.linspace(-4.5, 4.5, 37)
LEVELS = ndtr(SCORES)
PROBABILITIES = np.exp(-(SCORES**2) / 2) / np.exp(-(SCORES**2) / 2).sum()
REFERENCE_MARGIN = 0.1  # of the extent of measured costs, from the worst to the reference point
WHISKER = 1.5  # interquartile ranges beyond the quartiles, where outliers begin
PRIOR_CORRELATION = 0.6  # assumed between predicted and true normal scores without labels
# Less likely networks count as failing: the improvements that are expected of them are often large.
MIN_SUCCESS_PROBABILITY = 0.5
COST_EXPONENT = 0.5  # of the cost of a training, by which an improvement is divided


@dataclass(frozen=True)
class CostDistributions:
    """Predictive distributions of the costs of N architectures.

    Args:
        samples: costs in each objective with `PROBABILITIES`, float64 [N, K, S]; infinite where a value
            violates a constraint.
        medians: their medians, float64 [N, K].
        feasibility: probability that the other constraints hold, float64 [N].
        violation: by how much the medians violate constraints in total, float64 [N].
    """

    samples: np.ndarray
    medians: np.ndarray
    feasibility: np.ndarray
    violation: np.ndarray

    def subset(self, rows: np.ndarray | Sequence[int]) -> CostDistributions:
        """Return the distributions of some architectures."""
        return CostDistributions(
            self.samples[rows], self.medians[rows], self.feasibility[rows], self.violation[rows]
        )

    def improvement(self, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """Return the expected hypervolume that each architecture adds to a front: float64 [N]."""
        return expected_improvement(front, reference, self.samples, PROBABILITIES) * self.feasibility

    def _gain(self, row: int, front: np.ndarray, reference: np.ndarray) -> float:
        """The improvement of one architecture."""
        return float(self.subset([row]).improvement(front, reference)[0])

    def rank(self, num_greedy: int, known_costs: np.ndarray, divisors: np.ndarray | float = 1.0) -> list[int]:
        """Rank all architectures, the most promising first.

        The first ones are selected one after the other, each as if the medians of those before it were
        measured; of architectures with equal predictions, which are likely to compute the same, only one. The
        others follow by expected improvement. Where there is none, the order is that of violations and then
        of mean ranks.

        Args:
            num_greedy: number of the first ones.
            known_costs: costs of measured architectures that meet all constraints, float64 [M, K].
            divisors: positive numbers by which the expected improvements are divided, float64 [N].

        Returns:
            Indices, the most promising first.
        """
        if not len(self.medians):
            return []
        reference = reference_point(np.concatenate([known_costs, self.medians]))
        factors = 1 / np.broadcast_to(divisors, len(self.medians))
        first_gains = self.improvement(known_costs, reference) * factors
        gains, known = first_gains.copy(), known_costs
        selected: list[int] = []
        while len(selected) < num_greedy and gains.max(initial=0) > 0:
            best = int(gains.argmax())
            # Each was computed before others were selected, and can only become smaller.
            while (renewed := factors[best] * self._gain(best, known, reference)) < gains[best]:
                gains[best] = renewed
                best = int(gains.argmax())
            if not gains[best] > 0:
                break
            selected.append(best)
            gains[(self.samples == self.samples[best]).all((1, 2))] = 0
            if self.violation[best] <= 0:
                known = np.concatenate([known, self.medians[best : best + 1]])
        mean_ranks = np.mean([column.argsort().argsort() for column in self.medians.T], axis=0)
        order = np.lexsort([mean_ranks, self.violation, -first_gains]).tolist()
        return [*selected, *(i for i in order if i not in set(selected))]


def reference_point(costs: np.ndarray) -> np.ndarray:
    """Return a reference point for costs [M, K]: the worst of each that is no outlier, and a margin.

    An outlier is as in a box plot. Without them a few failed trainings would stretch the region that counts.
    """
    low, quartile, high, worst = np.quantile(costs, [0.0, 0.25, 0.75, 1.0], axis=0)
    high = np.minimum(worst, high + WHISKER * (high - quartile))
    extent = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    return np.asarray(high + REFERENCE_MARGIN * extent)


def cost_distributions(
    surrogate: OnlineSurrogate, settings: SearchSettings, names: Sequence[str]
) -> CostDistributions:
    """Return the predictive distributions of architectures by a surrogate that can predict.

    Only a learned objective is uncertain: a measurement does not reveal the others.

    Args:
        surrogate: the surrogate.
        settings: objectives and constraints.
        names: N architectures in the space's notation.
    """
    objectives, learned = settings.all_objectives, surrogate.objectives
    values = surrogate.predict_names(names, objectives, settings.quantile_levels)
    success = _success_probabilities(surrogate, names)
    feasibility = np.where(success < MIN_SUCCESS_PROBABILITY, 0.0, success)
    sampled = np.repeat(settings.medians(values)[:, :, None], len(LEVELS), axis=2)
    for k, name in enumerate(objectives):
        if name in learned:
            sampled[:, k] = surrogate.predict_names(names, [name], LEVELS.tolist())[:, 0]
    rows = settings.costs(sampled.swapaxes(1, 2).reshape(-1, len(objectives)))
    costs = rows.reshape(len(names), len(LEVELS), -1).swapaxes(1, 2).copy()
    for constraint in settings.parsed_constraints:
        k = objectives.index(constraint.objective)
        violated = np.stack([constraint.violation(column) > 0 for column in sampled[:, k].T], axis=1)
        if constraint.objective not in learned:
            feasibility *= constraint.violation(settings.constrained_values(constraint, values)) <= 0
        elif constraint.objective in settings.objectives:
            costs[:, settings.objectives.index(constraint.objective)][violated] = np.inf
        else:
            feasibility *= 1 - violated @ PROBABILITIES
    violation = settings.violations(values).clip(min=0).sum(1) + np.where(feasibility > 0, 0.0, 2 - success)
    return CostDistributions(costs, settings.costs(settings.medians(values)), feasibility, violation)


def _success_probabilities(surrogate: OnlineSurrogate, names: Sequence[str]) -> np.ndarray:
    """Return the probability that architectures do not fail, float64 [N]; 0 where they are expected to."""
    status = surrogate.status(names)
    runs = np.array([status.get(name) != FAILED for name in names], dtype=float)
    return runs * surrogate.success_probabilities(names)


def predicted_distributions(
    surrogate: OnlineSurrogate, settings: SearchSettings, names: Sequence[str]
) -> CostDistributions:
    """Return rough distributions of normal scores of costs, from what is known without labels.

    These are predictions of the model, or FLOPs for costs that it does not predict.

    Args:
        surrogate: a surrogate that cannot predict yet.
        settings: objectives.
        names: N architectures in the space's notation.
    """
    scores = []
    for name in settings.objectives:
        values = surrogate.prior_medians(names, name)
        if values is not None:
            scores.append(normal_scores(-values if settings.is_maximised(name) else values))
    means = PRIOR_CORRELATION * np.stack(scores, axis=1) if scores else np.zeros((len(names), 1))
    std = (1 - PRIOR_CORRELATION**2) ** 0.5
    samples = means[:, :, None] + std * SCORES
    success = _success_probabilities(surrogate, names)
    feasibility = np.where(success < MIN_SUCCESS_PROBABILITY, 0.0, success)
    return CostDistributions(samples, means, feasibility, np.where(feasibility > 0, 0.0, 2 - success))


def first_design(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    names: Sequence[str],
    count: int,
    pending: Sequence[str] = (),
) -> list[str]:
    """Select promising and random architectures in turn, before a surrogate can predict.

    A first design of one architecture at a time has as many of both as one that is selected at once.

    Args:
        surrogate: a surrogate that cannot predict yet.
        settings: objectives.
        names: candidates in random order, in the space's notation; those of the random half are the first.
        count: number to select.
        pending: architectures whose measurements are under way.
    """
    known = [*surrogate.measurements, *pending]
    predicted = predicted_distributions(surrogate, settings, [*names, *known])
    num_promising = sum(position % 2 == 0 for position in range(len(known), len(known) + count))
    is_known = np.arange(len(predicted.medians)) >= len(names)
    order = predicted.subset(~is_known).rank(num_promising, predicted.medians[is_known])
    promising = [names[i] for i in order[:num_promising]]
    by_violation = np.argsort(predicted.violation[~is_known], kind="stable").tolist()
    others = [names[i] for i in by_violation if i not in order[:num_promising]]
    return [*promising, *others][:count]


def select_by_improvement(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    names: Sequence[str],
    count: int,
    pending: Sequence[str] = (),
    divisors: np.ndarray | float = 1.0,
) -> list[str]:
    """Select the architectures with the largest expected hypervolume improvement.

    Args:
        surrogate: a surrogate that can predict.
        settings: objectives and constraints.
        names: candidates in the space's notation.
        count: number to select.
        pending: architectures whose measurements are under way; their median predictions count as measured.
        divisors: see `CostDistributions.rank`.

    Returns:
        The architectures, the most promising first, each selected as if the median predictions of the ones
        before it were measured.
    """
    known = [*(row.arch_str for row in surrogate.successful_rows), *pending]
    predicted = cost_distributions(surrogate, settings, [*names, *known])
    is_known = np.arange(len(predicted.medians)) >= len(names)
    known_costs = predicted.medians[is_known & (predicted.violation <= 0)]
    return [names[i] for i in predicted.subset(~is_known).rank(count, known_costs, divisors)[:count]]


def select_by_improvement_and_cost(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    names: Sequence[str],
    count: int,
    pending: Sequence[str] = (),
) -> list[str]:
    """Select architectures by expected improvement for the cost of their training, see `training_costs`.

    The improvement is divided by the root of the cost. Divided by the cost itself, the next ones would be
    small networks as long as these improve anything, see docs/results/search.md.

    Source: Snoek et al. 2012, Practical Bayesian Optimization of Machine Learning Algorithms, section 3.2.

    Arguments and returns are those of `select_by_improvement`.
    """
    costs = relative_training_costs(surrogate.cached_predictor.raw_features(names))
    return select_by_improvement(surrogate, settings, names, count, pending, costs**COST_EXPONENT)
