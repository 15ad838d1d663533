"""The trials of a study as the result of a search, as rows of a table, and as records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.data.tables import Row
from nas_rlm.plotting.front import draw_front, front_info
from nas_rlm.search.fidelity_surrogate import level_name
from nas_rlm.search.result import MEASURED, PREDICTED, SearchResult
from nas_rlm.search.settings import QUANTILE_LEVELS
from nas_rlm.study.records import TrialResult
from nas_rlm.study.settings import ADDITIONAL, StudySettings
from nas_rlm.study.trial import COMPLETE, FAILED, RUNNING, Trial

ERROR_TYPE = re.compile(r"[A-Za-z_]\w*(?=:|$)")  # at the start of a trial's error


def search_result(settings: StudySettings, trials: Sequence[Trial]) -> SearchResult:
    """Return complete trials, and running ones at their predictions, as the result of a search.

    Args:
        settings: settings of the study.
        trials: trials that are complete or have predictions.
    """
    objectives, levels = settings.search.all_objectives, settings.search.quantile_levels
    values = np.empty((len(trials), len(objectives), len(levels)))
    for i, trial in enumerate(trials):
        for k, name in enumerate(objectives):
            is_complete = trial.state == COMPLETE
            values[i, k] = (
                trial.values[name]
                if is_complete
                else np.interp(levels, QUANTILE_LEVELS, trial.predicted[name])
            )
    status = {t.architecture: MEASURED if t.state == COMPLETE else PREDICTED for t in trials}
    return SearchResult(settings.search, [t.architecture for t in trials], values, status)


def failures_by_type(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Return failed trials by the type of their errors, in the order of the first of each type.

    Those whose failure was given as a text are together, with an empty type.
    """
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.state == FAILED:
            found.setdefault(error_type(trial.error), []).append(trial)
    return found


def failure_summary(trials: Sequence[Trial]) -> str:
    """Return how many trials failed, with what and the last error; empty if none did."""
    failed, by_type = [trial for trial in trials if trial.state == FAILED], failures_by_type(trials)
    if not failed:
        return ""
    counts = ", ".join(f"{len(of_type):,} {kind or 'others'}" for kind, of_type in by_type.items())
    shown = f" ({counts})" if len(by_type) > 1 else ""
    return f"{len(failed):,} failed{shown}, the last one: {failed[-1].error}"


def error_type(error: str) -> str:
    """Return the type at the start of a trial's error; empty if it is a text without one."""
    found = ERROR_TYPE.match(error)
    return found[0] if found else ""


def result_rows(settings: StudySettings, results: Sequence[TrialResult]) -> list[Row]:
    """Return results as rows of the learned objectives; those of failed trials have no values.

    In a study with budgets, a row has all values that the trial had so far, with the names of
    `nas_rlm.search.fidelity_surrogate.level_name`.

    Args:
        settings: settings of the study.
        results: results in the order in which they arrived.
    """
    return [Row(settings.space, r.trial.architecture, _learned_values(settings, r)) for r in results]


def _learned_values(settings: StudySettings, result: TrialResult) -> dict[str, float]:
    """The learned objectives of a trial when a result arrived."""
    trial = result.trial
    if result.is_failure:
        return {}
    if result.budget is None:
        return {name: trial.values[name] for name in settings.learned}
    values = {name: trial.budget_values[result.budget][name] for name in settings.measured}
    for level, budget in enumerate(settings.budgets):
        if budget <= result.budget and budget in trial.budget_values:
            of_budget = trial.budget_values[budget]
            values |= {level_name(n, settings.budgets, level): of_budget[n] for n in settings.evaluated}
    return values


def front_of(settings: StudySettings, trials: Sequence[Trial]) -> list[Trial]:
    """Return the complete trials on the Pareto front that meet the constraints."""
    complete = [trial for trial in trials if trial.state == COMPLETE]
    return [complete[i] for i in search_result(settings, complete).front]


def draw_trials(
    settings: StudySettings, trials: Sequence[Trial], pairs: Sequence[tuple[str, str]] = ()
) -> Figure:
    """Draw complete trials, running ones at their predictions, and the front.

    Args:
        settings: settings of the study.
        trials: its trials.
        pairs: x and y objective of each panel; by default each other objective against the first.

    Raises:
        ValueError: no trial is complete, or a pair has an unknown objective.
    """
    if not any(trial.state == COMPLETE for trial in trials):
        raise ValueError("no trial is complete yet: there is nothing to draw")
    shown = [t for t in trials if t.state == COMPLETE or (t.state == RUNNING and t.predicted)]
    return draw_front(front_info(search_result(settings, shown), {}, pairs))


def trial_records(settings: StudySettings, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return a flat record of each trial; see `nas_rlm.Study.to_records`."""
    front = front_of(settings, trials)
    additional = dict.fromkeys(name for trial in trials for name in trial.additional)
    return [
        {
            "number": trial.number,
            "architecture": trial.architecture,
            "state": trial.state,
            **{name: trial.values.get(name) for name in settings.search.all_objectives},
            "is_on_front": trial in front,
            **({"budget": max(trial.budget_values, default=0)} if settings.budgets else {}),
            "cost": trial.cost,
            **({"seconds": trial.seconds} if settings.budgets else {}),
            "seed": trial.seed,
            "error": trial.error,
            **{f"{ADDITIONAL}{name}": trial.additional.get(name) for name in additional},
        }
        for trial in trials
    ]
