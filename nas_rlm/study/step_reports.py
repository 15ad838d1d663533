"""Values during an evaluation, which `Trial.report` records from the study's process or another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nas_rlm.study.settings import read_settings
from nas_rlm.study.store import TrialStore
from nas_rlm.study.trial import Trial, Values
from nas_rlm.study.values import step_values


class StepReporter:
    """Records values of a trial's steps; where the trial was pickled, in the directory of its study.

    Args:
        directory: directory of the study.
        report: function of a trial, a step and its values that records them in this process.
    """

    def __init__(self, directory: Path, report: Callable[[Trial, int, Values], None]) -> None:
        self._directory, self._report = directory, report

    def __call__(self, trial: Trial, step: int, values: Values) -> None:
        self._report(trial, step, values)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (report_in_directory, self._directory)


def report_in_directory(directory: Path, trial: Trial, step: int, values: Values) -> None:
    """Record values of a step of a running trial in a study that this process has not opened.

    Args:
        directory: directory of the study.
        trial: the trial, or a copy of it.
        step: number of the step.
        values: what the evaluation gave.

    Raises:
        ValueError: the step or a value is invalid, or the trial is not running.
    """
    settings = read_settings(directory)
    store = TrialStore(directory, trial.space, settings.seed, settings.budgets)
    store.refresh()
    found = store.trials[trial.number]
    store.report(found, *step_values(settings, step, values))
    trial.steps = found.steps
