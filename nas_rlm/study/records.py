"""What the log of a study holds: suggested architectures and results of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nas_rlm.study.trial import Trial


@dataclass(frozen=True)
class Suggestion:
    """An architecture to evaluate next.

    Args:
        architecture: the architecture in its space's notation.
        predicted: by objective, predicted quantiles at .1, .5 and .9; empty where there is no prediction.
    """

    architecture: str
    predicted: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Suggestions:
    """Suggested architectures.

    Args:
        trials: the architectures.
        candidates: further candidates that they were selected from, which later suggestions use as well.
    """

    trials: Sequence[Suggestion]
    candidates: Sequence[str] = ()


@dataclass(frozen=True)
class TrialResult:
    """A result in the order in which they arrived.

    Args:
        trial: the trial.
        budget: the budget of the evaluation; None in a study without budgets.
        total_cost: cost of all evaluations of the study up to this one, see `Trial.cost`.
        is_failure: whether the evaluation failed.
    """

    trial: Trial
    budget: float | None
    total_cost: float
    is_failure: bool


@dataclass(frozen=True)
class Result:
    """What the evaluation of a trial gave.

    Args:
        values: value of each objective; of a failed evaluation those that there are.
        error: why it failed; empty if it did not.
        cost: seconds that it took.
        environment: description of the machine and the packages.
        details: details of the measurement on the device.
        additional: further numbers by name, which are no objectives.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    cost: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    additional: Mapping[str, float] = field(default_factory=dict)
