"""Ask for architectures of a study, tell their values, and predict others from them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from nas_rlm.data.omissions import to_number
from nas_rlm.rlm import RLM
from nas_rlm.search.lookup import Labels, read_labels, select_labels
from nas_rlm.search.settings import QUANTILE_LEVELS
from nas_rlm.study.evaluation import MAX_ERROR_LENGTH, Outcome, error_text, make_directory, save_weights
from nas_rlm.study.free_values import counted_values, predicted_values, with_measurement
from nas_rlm.study.records import Result, Suggestion, Suggestions
from nas_rlm.study.search_suggestion import make_suggester
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.step_reports import StepReporter
from nas_rlm.study.suggestion import Suggester
from nas_rlm.study.trial import WEIGHTS, Trial, Values
from nas_rlm.study.value_warnings import ValueWarnings
from nas_rlm.study.values import NotFiniteError, checked_value, given_values, step_values
from nas_rlm.study.view import StudyView
from nas_rlm.utils.validation import as_list, is_whole_number, quantile_levels
from search_spaces import SearchSpace
from search_spaces.loading import fingerprint
from search_spaces.wording import counted


class AskTellStudy(StudyView):
    """A study whose trials the caller evaluates; `nas_rlm.Study` adds the evaluation by functions.

    Attributes:
        python: command that starts Python where networks are measured; empty for this one.
        is_exhausted: whether the last suggestion found no further architecture without a trial.
    """

    python: str
    is_exhausted: bool
    _loaded_suggester: Suggester | None

    def _open(self, directory: Path, settings: StudySettings, space: SearchSpace[Any]) -> None:
        super()._open(directory, settings, space)
        self.python, self.is_exhausted = "", False
        self._is_optimizing = False  # then the page shows reported steps
        self._warnings = ValueWarnings(settings)
        self._loaded_suggester = None
        self._store.reporter = StepReporter(
            self.directory, lambda trial, step, values: self.tell(trial, values, step=step)
        )

    @overload
    def ask(self, *, candidates: Sequence[Any] | None = None) -> Trial: ...

    @overload
    def ask(self, n: int, candidates: Sequence[Any] | None = None) -> list[Trial]: ...

    def ask(self, n: int | None = None, candidates: Sequence[Any] | None = None) -> Trial | list[Trial]:
        """Return trials to evaluate: architectures that no trial has.

        In a study with budgets, they are to be evaluated with `trial.budget`, and may be paused trials that
        are continued, from the files in `trial.resume_from`.

        Args:
            n: number of trials, for a list; by default one trial.
            candidates: the architectures to choose from; by default those of the study.

        Raises:
            ValueError: the number is not positive, a candidate is not of the study, or each architecture has
                a trial.

        Warns:
            UserWarning: the space has fewer architectures without a trial; these are returned.
        """
        count = 1 if n is None else n
        if not is_whole_number(count) or count < 1:
            raise ValueError(f"the number of trials is {n!r}, expected a positive whole number")
        suggest, exhausted = self._suggest, self.settings.exhausted
        if candidates is not None:
            names = self.settings.checked_candidates(self.space, candidates)
            suggest = partial(self._suggest_among, names)
            exhausted = f"none of {counted(len(names), 'candidate')} is without a trial or can be continued"
        if self.settings.budgets:
            trials = [trial for _ in range(count) for trial in self._store.ask(suggest, 1)]
        else:
            trials = self._store.ask(suggest, int(count))
        for trial in trials:
            make_directory(trial)
        if not trials:
            raise ValueError(f"{exhausted}: there are no others")
        if len(trials) < count:
            warnings.warn(
                f"{counted(count, 'trial was', 'trials were')} asked for, and there are only {len(trials)}:"
                f" {exhausted}",
                stacklevel=2,
            )
        return trials[0] if n is None else trials

    def tell(
        self,
        trial: Trial | int,
        values: Values | None = None,
        *,
        step: int | None = None,
        failure: str | BaseException | None = None,
        cost: float = 0.0,
        weights: Any = None,
    ) -> None:
        """Record the values of a trial, the values of a step of its training, or its failure.

        In a study with budgets, a trial with less than the full budget is paused.

        Values of `flops`, `params`, of `device` and of `predicted` are added and not given. Further finite
        numbers are kept in `Trial.additional`.

        Args:
            trial: the trial, or its number.
            values: value of each objective, or a number where there is a single one to give. None for those
                of the last step. A trial with a value that is not finite is recorded as failed.
            step: number of the epoch or step, of a trial that is still running.
            failure: why the trial failed.
            cost: seconds that the evaluation took.
            weights: trained weights for the files of the front: a `state_dict`, or a torch module.

        Raises:
            ValueError: the trial is unknown, of another study or finished, a value is missing or out of
                range, there are values and a failure, weights of a failure or a step, or weights that are no
                tensors, or the cost is no finite number from 0.
            StorageError: the disk is full.

        Warns:
            UserWarning: there are values beside those of objectives; once.
        """
        cost = _checked_cost(cost)
        found = self._trial(trial)
        self._store.check_running(found)
        if weights is not None and (failure is not None or step is not None):
            raise ValueError(f"trial {found.number} has weights: expected them with its final values")
        if failure is not None:
            if values is not None or step is not None:
                raise ValueError(
                    f"trial {found.number} has a failure and values: expected one of them; values of a failed"
                    " trial are given before as those of steps"
                )
            error = error_text(failure) if isinstance(failure, BaseException) else str(failure)
            self._store.finish(found, Result(error=error[:MAX_ERROR_LENGTH] or "failed", cost=cost))
            return
        if step is not None:
            self._store.report(found, *step_values(self.settings, step, values))
            if self._is_optimizing:
                self._files.write_page_if_due(self._store)
            return
        if values is None:
            if not found.steps and self.settings.evaluated:
                raise ValueError(f"trial {found.number} has no values of any step: expected its values")
            values = found.last_values
        try:
            given = given_values(self.settings, values, complete=True)
            if weights is not None:
                save_weights(weights, found.directory / WEIGHTS, f"study.tell of trial {found.number}")
        except NotFiniteError as error:
            self._store.finish(found, Result(error=str(error), cost=cost))
        else:
            outcome = Outcome(given.objectives, cost=cost, additional=given.additional, ignored=given.ignored)
            self._finish(found, outcome)

    def add(self, architecture: Any, values: Values) -> Trial:
        """Add a trial that was evaluated before, such as a row of a table.

        Args:
            architecture: the architecture, or its text.
            values: value of each objective; those that are counted, measured or predicted may be left out.

        Raises:
            ValueError: the architecture is not of the space, or a value is missing, unknown or out of range.

        Warns:
            UserWarning: a trial has the architecture already; surrogates learn the mean of both.
        """
        parsed = self.space.parse(str(architecture))
        known = [trial.number for trial in self.trials if trial.architecture == str(parsed)]
        trial = self._add(parsed, values)
        if known:
            warnings.warn(
                f"trial {known[0]} has {parsed} already: both count, and surrogates learn their mean",
                stacklevel=2,
            )
        assert trial is not None
        return trial

    def _add(self, architecture: Any, values: Values, is_new_only: bool = False) -> Trial | None:
        """Add a trial of a parsed architecture; none if only new ones are added and a trial has it."""
        settings = self.settings
        measured: dict[str, float] = {}
        if isinstance(values, Mapping):
            measured = {n: checked_value(n, values[n]) for n in settings.measured if n in values}
            values = {name: value for name, value in values.items() if name not in measured}
        if missing := [name for name in settings.measured if name not in measured]:
            raise ValueError(f"the values have no {' and no '.join(missing)}: expected the measured values")
        given = given_values(settings, values, complete=True)
        objectives = {**given.objectives, **measured, **self._free_values(architecture)}
        result = Result(objectives, additional=given.additional)
        trial = self._store.add(Suggestion(str(architecture)), result, is_new_only)
        self._warnings.check_units(self._store.trials)
        return trial

    def add_table(self, labels: Labels) -> list[Trial]:
        """Add the rows of a table of the space that have all objectives which an evaluation gives.

        A row whose architecture has a trial is left out, so that a table can be added again when it has
        grown, or when the process was killed meanwhile.

        Args:
            labels: rows, a table, or the path of one.

        Returns:
            The trials that were added.

        Raises:
            ValueError: no row has them, or an architecture is not of the space.
        """
        names = self.settings.learned
        rows = select_labels(read_labels(labels), self.space, names)
        if missing := [name for name in names if name not in rows[0].targets]:
            raise ValueError(f"the table has no {' and no '.join(missing)} of {self.settings.space}")
        known = {trial.architecture for trial in self.trials}
        new = [row for row in rows if row.arch_str not in known]
        # Another process may add the same rows meanwhile.
        added = [self._add(self.space.parse(row.arch_str), row.targets, is_new_only=True) for row in new]
        return [trial for trial in added if trial is not None]

    def predict(
        self,
        architectures: Sequence[Any],
        objectives: Sequence[str] | None = None,
        quantiles: Sequence[float] = QUANTILE_LEVELS,
    ) -> np.ndarray:
        """Predict objectives of architectures from the trials; those of complete trials are their values.

        Args:
            architectures: N architectures, or their texts.
            objectives: K names; by default those of the study and of its constraints.
            quantiles: Q levels between 0 and 1.

        Returns:
            float64 [N, K, Q].

        Raises:
            ValueError: an architecture is not of the space, a level is invalid, or there are too few
                trials to predict.
        """
        names = [str(self.space.parse(str(a))) for a in as_list(architectures, "architectures")]
        if not names:
            raise ValueError("there are no architectures to predict")
        objectives = objectives or self.settings.search.all_objectives
        return self._suggester.predict(self.rows, names, objectives, quantile_levels(quantiles))

    @property
    def _suggester(self) -> Suggester:
        if self._loaded_suggester is None:
            name = self.settings.model_name
            if not name:
                raise ValueError("the study was made with a model in memory: open it with Study(…, model=…)")
            rlm = RLM.load(name)
            if rlm.fingerprint != self.settings.model_fingerprint:
                raise ValueError(f"the model {name!r} changed since the study was made")
            self._check_space(fingerprint(self.space) + rlm.fingerprint)
            self._loaded_suggester = make_suggester(self.space, rlm, self.settings, self.directory)
        return self._loaded_suggester

    def _suggest(self, count: int) -> Suggestions:
        """Architectures without a trial, by the trials that the store has read."""
        suggestions = self._suggester.suggest(self.rows, self._running, count, self._store.candidates)
        self.is_exhausted = not suggestions.trials
        return suggestions

    def _suggest_among(self, names: Sequence[str], count: int) -> Suggestions:
        """Architectures without a trial among given ones."""
        return self._suggester.suggest_among(self.rows, self._running, count, names)

    @property
    def _running(self) -> list[str]:
        """Architectures of running trials whose networks can be built."""
        names = [trial.architecture for trial in self._store.running()]
        return [name for name in names if not self.space.network_error(name)]

    def _finish(self, trial: Trial, outcome: Outcome) -> None:
        """Record the outcome of a trial, with the values that are counted, measured or predicted."""
        result: Result = outcome
        self._store.refresh()  # the steps that a worker reported
        self._warnings.name_additional(trial, outcome)
        if not result.error:
            try:
                result = replace(result, values={**result.values, **self._free_values(trial.parsed)})
            except ValueError as error:  # the network of an own space, which an evaluation need not build
                result = replace(result, error=str(error))
        if not result.error and not result.values.keys() >= set(self.settings.measured):
            result = with_measurement(result, trial, self.settings, self.python)
        self._store.finish(trial, result)
        self._warnings.name_failure(trial)
        self._warnings.check_network(trial)
        self._warnings.check_weights(trial)
        self._warnings.check_units(self._store.trials)

    def _free_values(self, architecture: Any) -> dict[str, float]:
        """The values of an architecture that are counted or predicted.

        Raises:
            ValueError: a user's own space cannot build its network.
        """
        if error := self.space.network_error(architecture):
            raise ValueError(error)
        values = counted_values(self.space, architecture, self.settings)
        if self.settings.predicted:
            values |= predicted_values(self._suggester, architecture, self.settings)
        return values


def _checked_cost(cost: object) -> float:
    """Return the cost of an evaluation in seconds.

    Raises:
        ValueError: it is no finite number from 0.
    """
    number = to_number(cost)
    if number is None or number < 0:
        raise ValueError(f"cost is {cost!r}: expected seconds, a finite number from 0")
    return number
