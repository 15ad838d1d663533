"""Study: ask for architectures, evaluate them, tell their values, and get the Pareto front."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import check_device
from nas_rlm.files import check_new_directory
from nas_rlm.rlm import RLM
from nas_rlm.search.run_directory import MEASUREMENTS
from nas_rlm.search.settings import Constraint, constraint_texts
from nas_rlm.study.ask_tell import AskTellStudy
from nas_rlm.study.evaluation import (
    EvaluateFunction,
    Outcome,
    load_evaluation,
    location_of,
    run_evaluation,
)
from nas_rlm.study.optimization import Limits, run_trials
from nas_rlm.study.search_suggestion import make_suggester
from nas_rlm.study.settings import StudySettings, candidate_names, is_study, open_directory
from nas_rlm.study.suggestion import PoolSuggester, Suggester
from nas_rlm.study.trial import PAUSED, Trial
from nas_rlm.study.value_warnings import warn_of_minimised_scores
from nas_rlm.study.values import step_values
from nas_rlm.study.workers.device import DeviceWorkers
from nas_rlm.study.workers.pool import Workers
from nas_rlm.study.workers.processes import make_workers
from nas_rlm.study.writing import StorageError
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import as_list, shown
from search_spaces import SearchSpace
from search_spaces.loading import absolute_location, fingerprint

Callback = Callable[["Study", Trial], object]


class Study(AskTellStudy):
    """The search for the best networks of a space, each trained or measured by the user.

    The directory holds the state: a study that was killed is opened again and continues, and several
    processes can work on one directory. Architectures are suggested by surrogates that learn from the trials;
    the first ones are a diverse design.

    Examples:
        >>> from tempfile import mkdtemp
        >>> study = Study("nasbench201", ["accuracy", "flops"], mkdtemp())
        >>> trial = study.ask()
        >>> study.tell(trial, {"accuracy": 91.2})  # flops are counted
        >>> study.best.values["accuracy"]
        91.2
        >>> study.optimize(lambda trial: {"accuracy": 90.0}, trials=3)
        >>> len(study.trials)
        3

    Args:
        space: the search space, or the name or location of one.
        objectives: objectives to optimise. Kinds such as accuracy and throughput are maximised, and so are
            `maximise`; all others are minimised. `flops` and `params` are counted.
        directory: directory of the study, a new one or that of the same study.
        constraints: bounds such as `latency/pixel3<=20` on these or on other objectives.
        model: a model, a checkpoint directory, or the name of a shipped model. Its surrogates are sources of
            transfer, and it predicts the objectives of `predicted`.
        seed: seed of all random choices.
        device: measure the network of each trial on this device, such as `onnxruntime-cpu-1t`, whose latency
            or memory is among the objectives or constraints.
        predicted: objectives that are not evaluated: their values are the model's predictions.
        maximise: objectives that are maximised although their kind is not.
        python: command that starts Python where networks are measured, such as `ssh box .venv/bin/python`.
        budgets: ascending budgets of a training, such as 1, 4 and 16 epochs. A trial is evaluated with the
            first one, and is continued to the next ones only if its predicted final values are worth the
            cost. `best` and `front` have trials with the last budget.
        candidates: the only architectures that may be suggested; by default all of the space.

    Attributes:
        is_exhausted: whether the last suggestion found no further architecture without a trial.

    Raises:
        ValueError: an argument is invalid, or the directory holds other files or a study with other settings,
            or no architecture is found that meets the constraints on `flops` and `params`.

    Warns:
        UserWarning: an objective has a name like `val_acc`, but is of an unknown kind, and so is minimised.
    """

    def __init__(
        self,
        space: str | SearchSpace[Any],
        objectives: Sequence[str],
        directory: str | os.PathLike[str],
        *,
        constraints: Sequence[str | Constraint] = (),
        model: str | os.PathLike[str] | RLM = "nas",
        seed: int = 0,
        device: str = "",
        predicted: Sequence[str] = (),
        maximise: Sequence[str] = (),
        python: str = "",
        budgets: Sequence[float] = (),
        candidates: Sequence[Any] | None = None,
    ) -> None:
        search_space = search_spaces.register(space)  # surrogates know spaces by name
        settings = StudySettings(
            search_space.name,
            tuple(as_list(objectives, "objectives")),
            constraint_texts(constraints),
            tuple(as_list(maximise, "maximise")),
            str(Device.parse(device)) if device else "",
            tuple(as_list(predicted, "predicted")),
            seed,
            model_name="" if isinstance(model, RLM) else str(model),
            location=search_spaces.location_of(search_space),
            budgets=tuple(as_list(budgets, "budgets")),
            candidates=() if candidates is None else candidate_names(search_space, candidates),
        )
        if not settings.candidates:  # an error of an own space is found before a network is trained
            sampled = search_space.sample(np.random.default_rng(0))
            if error := search_space.network_error(sampled):
                raise ValueError(error)
        warn_of_minimised_scores(settings, stacklevel=3)
        rlm = model if isinstance(model, RLM) else RLM.load(model)
        settings = replace(settings, model=fingerprint(search_space) + rlm.fingerprint)
        suggester = make_suggester(search_space, rlm, settings, Path(directory))
        if isinstance(suggester, PoolSuggester) and not is_study(Path(directory)):
            suggester.check_constraints()
        self._create(suggester, Path(directory), python)

    @classmethod
    def of_suggester(cls, suggester: Suggester, directory: str | os.PathLike[str], python: str = "") -> Study:
        """Return a study with another way to suggest architectures.

        Args:
            suggester: suggests them; the study has its settings and space.
            directory: as of the class.
            python: as of the class.

        Raises:
            ValueError: the directory holds other files or a study with other settings.
        """
        study = cls.__new__(cls)
        study._create(suggester, Path(directory), python)
        return study

    def _create(self, suggester: Suggester, directory: Path, python: str) -> None:
        self._open(directory, suggester.settings, suggester.space)
        self._loaded_suggester, self.python = suggester, python
        open_directory(directory, self.settings)
        self._store.refresh()
        self._check_space(self.settings.model)

    def _open(self, directory: Path, settings: StudySettings, space: SearchSpace[Any]) -> None:
        super()._open(directory, settings, space)
        self._is_stopped = False

    def optimize(
        self,
        evaluate: EvaluateFunction | str | None = None,
        trials: int | None = None,
        timeout: float | None = None,
        workers: int = 0,
        callbacks: Iterable[Callback] = (),
        *,
        cost: float | None = None,
        time_limit: float | None = None,
        retries: int = 0,
        retry_failed: bool = False,
        ray: str = "",
        progress: bool = False,
    ) -> None:
        """Evaluate trials until the study has enough.

        report.html in the directory shows the state while it runs, with learning curves as they are
        reported, and the results are written at the end, see `report`. A trial whose evaluation raises an
        error, takes too long, or gives values that are not finite or out of range is recorded as failed, and
        the study goes on. Trials of a process that was killed, and those that ran when an error ended the
        study, are evaluated again.

        Args:
            evaluate: function of a trial that returns its values, or a pair of values and trained weights
                (a `state_dict` or module), which are stored; or its location, such as `mine.py:train`. In a
                study with budgets it is a function of the trial, the budget to reach, and the directory of
                its evaluation with the budget before, where it stored the state of the training, or None.
                A study whose objectives are all measured, counted or predicted needs no function: networks
                are then measured several at a time, into measured.parquet in the directory.
            trials: number of finished trials of the study, with those of earlier calls, at which it ends;
                None for no limit.
            timeout: seconds after which no further trial is started; None for no limit.
            workers: number of processes that evaluate trials, with a GPU or a set of cores each; 0 evaluates
                in this process.
            callbacks: functions of the study and a finished or paused trial. They may call `stop`.
            cost: cost of the study, with that of earlier calls, which is not exceeded; see `Study.cost`. In
                seconds, the last evaluation may exceed it. None for no limit.
            time_limit: seconds that one evaluation may take, for workers.
            retries: how many times a failed trial is evaluated again.
            retry_failed: evaluate the trials that failed in earlier calls again first, for example since the
                function was mended.
            ray: address of a Ray cluster that evaluates trials, `workers` at a time: auto, HOST:6379,
                ray://HOST:10001 or local.
            progress: show a progress bar.

        Raises:
            ValueError: an argument is invalid.
            WrongValuesError: an evaluation gave something other than a number for each objective.
            StorageError: a file of the study cannot be written, for example since the disk is full.
            RuntimeError: the first ten trials failed.
        """
        limits = Limits(trials, timeout, cost, retries)
        if cost and self.settings.budgets and cost < self.settings.budgets[0]:
            raise ValueError(f"cost is {cost:g}, less than the first budget, {self.settings.budgets[0]:g}")
        callbacks = as_list(callbacks, "callbacks")
        for callback in callbacks:
            if not callable(callback):
                raise ValueError(
                    f"a callback is {shown(callback)}: expected a function of a study and a trial"
                )
        pool: Workers
        if evaluate is None and self.settings.is_measured_only:
            table, num_results = self.directory / MEASUREMENTS, len(self._store.results)
            pool = DeviceWorkers(self.settings, table, num_results, self.python)
        else:
            if evaluate is None and not self.settings.evaluated:
                evaluate = _no_values
            pool = make_workers(self.directory, self.settings, evaluate, workers, time_limit, ray)
        if self.settings.device:
            check_device(Device.parse(self.settings.device), self.python)
        if retry_failed:
            self._store.reopen_failed()
        location = absolute_location(evaluate) if isinstance(evaluate, str) else location_of(evaluate)
        self.run_workers(pool, limits, callbacks, location, progress)

    def run_workers(
        self,
        pool: Workers,
        limits: Limits,
        callbacks: Iterable[Callback] = (),
        location: str = "",
        progress: bool = False,
    ) -> None:
        """Evaluate trials with given workers, see `optimize`.

        Args:
            pool: the workers.
            limits: when no further trial is started.
            callbacks: as of `optimize`.
            location: location of the function that evaluates trials, if it has one.
            progress: show a progress bar.
        """
        self._is_stopped = False
        with (
            self._optimizing(),
            self._store.owner() as owner,
            progress_bar(
                desc="study",
                total=limits.trials,
                initial=len(self._store.finished),
                unit="trial",
                disable=not progress,
            ) as bar,
        ):

            def claim() -> list[Trial]:
                if self._is_stopped:
                    return []
                trials = self._store.claim(
                    self._suggest, limits.max_trials, owner, location, limits.max_cost, pool.batch_size
                )
                if trials:
                    self._files.write_page_if_due(self._store)  # it shows them while they run
                return trials

            def retry(trial: Trial, outcome: Outcome) -> None:
                self._store.restart(trial, outcome, owner)

            def watch() -> None:
                self._store.refresh()  # the steps that workers report
                self._files.write_page_if_due(self._store)

            for trial in run_trials(pool, claim, self._finish, retry, limits, watch):
                bar.update(trial.state != PAUSED)
                self._files.write_page_if_due(self._store)
                for callback in callbacks:
                    callback(self, trial)
        self.report()
        self._warnings.name_unmet_constraints(self._store.finished)

    @contextmanager
    def _optimizing(self) -> Iterator[None]:
        """Write the page within a `with` block as values are reported, and once if an error ends it."""
        self._is_optimizing = True
        try:
            yield
        except BaseException:
            with suppress(StorageError):  # which may be what ended it
                self._files.write_page(self._store, is_running=False)
            raise
        finally:
            self._is_optimizing = False

    def retrain(
        self,
        trial: Trial | int,
        evaluate: EvaluateFunction | str = "",
        directory: str | os.PathLike[str] | None = None,
    ) -> tuple[Outcome, Path]:
        """Evaluate the architecture of a trial again, with its seed; the study stays as it is.

        Args:
            trial: the trial, or its number.
            evaluate: the function, or its location; by default that of the trial.
            directory: a new directory for weights and other files; by default one in that of the study.

        Returns:
            The outcome, and the directory.

        Raises:
            ValueError: there is no such trial, its function is not known, or the directory is not empty.
        """
        found = self._trial(trial)
        function = evaluate or found.evaluation
        if not function:
            raise ValueError(
                f"the function of trial {found.number} is not known: give its location, such as"
                " --train mine.py:train"
            )
        target = Path(directory or self.directory / "retrained" / f"{found.number:05d}")
        check_new_directory(target)
        loaded = load_evaluation(function) if isinstance(function, str) else function
        copy = Trial(found.number, found.architecture, found.seed, self.space, target)
        copy.budget = max(self.settings.budgets, default=None)
        copy.reporter = lambda *report: copy.steps.update([step_values(self.settings, *report)])
        return run_evaluation(loaded, copy, self.settings), target

    def stop(self) -> None:
        """Start no further trial in `optimize`, for callbacks."""
        self._is_stopped = True


def _no_values(trial: Trial) -> dict[str, float]:
    """Evaluate a trial of a study whose objectives are all counted or predicted."""
    return {}
