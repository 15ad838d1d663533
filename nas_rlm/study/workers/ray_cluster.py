"""Workers of a study on a Ray cluster: each trial is a task with a GPU or a share of the processors."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nas_rlm.search.ray_cluster import RayCluster
from nas_rlm.study.evaluation import EvaluateFunction, Outcome, error_text, load_evaluation, run_evaluation
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import OUTPUT, Trial, Values
from nas_rlm.study.values import WrongValuesError, step_values
from nas_rlm.study.workers.pool import Clock, Finished, Workers
from nas_rlm.study.writing import StorageError, writing

WAIT_SECONDS = 1.0


@dataclass
class _Evaluation:
    """What a task returns.

    Args:
        outcome: outcome of the evaluation, or the error that ends the study.
        files: contents of the trial's directory by relative path.
    """

    outcome: Outcome | StorageError | WrongValuesError
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class _Task:
    """A task that runs or waits for processors of the cluster.

    Args:
        trial: the trial that it evaluates.
        clock: when it began, and when its function was loaded.
    """

    trial: Trial
    clock: Clock = field(default_factory=Clock)


class RayWorkers(Workers):
    """Tasks of a Ray cluster; what they print and write is copied into the trial's directory at their end.

    Values that they report arrive at once.

    Args:
        address: address of the cluster, see `nas_rlm.search.ray_cluster.RayCluster`.
        function: evaluates a trial, or its location, which all machines need.
        settings: settings of the study.
        count: number of tasks at a time, which share the cluster's processors and GPUs.
        time_limit: seconds that an evaluation may take, without the time for which a task waits; None for no
            limit.

    Raises:
        ValueError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(
        self,
        address: str,
        function: EvaluateFunction | str,
        settings: StudySettings,
        count: int,
        time_limit: float | None,
    ) -> None:
        self.function, self.settings, self.count, self.time_limit = function, settings, count, time_limit
        self._cluster = RayCluster(address)
        self._ray = self._cluster.ray
        from ray.util import queue

        resources = self._ray.cluster_resources()
        share = max(1, int(resources.get("CPU", 1)) // count)
        gpus = min(1.0, resources.get("GPU", 0) / count)
        # A new process for each task frees the memory of the last one.
        remote = self._ray.remote(num_cpus=share, num_gpus=gpus, max_calls=1, max_retries=0)
        self._task = remote(_evaluate)
        # Trial, step and values; the trial alone before its function is loaded, and again after it.
        self._reports = queue.Queue(actor_options={"num_cpus": 0})
        self._running: dict[Any, _Task] = {}

    @property
    def num_busy(self) -> int:
        return len(self._running)

    def start(self, trial: Trial) -> None:
        resume_files = _read_files(trial.resume_from) if trial.resume_from else None
        request = trial.number, trial.architecture, trial.seed, self.settings, trial.budget, resume_files
        task = self._task.remote(self.function, self._reports, *request)
        self._running[task] = _Task(trial)

    def wait(self) -> Finished:
        done, _ = self._ray.wait(list(self._running), timeout=WAIT_SECONDS)
        self._record_reports()
        if done:
            return [self._finish(reference) for reference in done]
        late = [reference for reference, task in self._running.items() if task.clock.is_late(self.time_limit)]
        for reference in late:
            self._ray.cancel(reference, force=True)
        return [self._end_late(reference) for reference in late]

    def _record_reports(self) -> None:
        """Record what tasks reported since the last call; reports of ended tasks are dropped."""
        tasks = {task.trial.number: task for task in self._running.values()}
        for _ in range(self._reports.qsize()):
            number, *step_and_values = self._reports.get_nowait()
            if number not in tasks:
                continue
            task = tasks[number]
            if step_and_values:
                task.trial.report(*step_and_values)
            elif task.clock.load_start is None:
                task.clock.load_start = time.monotonic()
            else:
                task.clock.evaluation_start = time.monotonic()

    def _end_late(self, reference: Any) -> tuple[Trial, Outcome]:
        task = self._running.pop(reference)
        return task.trial, Outcome(error=task.clock.late_error(self.time_limit), cost=task.clock.seconds)

    def _finish(self, reference: Any) -> tuple[Trial, Outcome]:
        """The outcome of a task; its files are copied."""
        task = self._running.pop(reference)
        trial = task.trial
        try:
            evaluation: _Evaluation = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return trial, Outcome(error=error_text(error), cost=task.clock.seconds)
        with writing(trial.directory):
            _write_files(trial.directory, evaluation.files)
        if not isinstance(evaluation.outcome, Outcome):
            raise evaluation.outcome
        return trial, evaluation.outcome

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._cluster.__exit__(None, None, None)


def _evaluate(
    function: EvaluateFunction | str,
    reports: Any,
    number: int,
    architecture: str,
    seed: int,
    settings: StudySettings,
    budget: float | None,
    resume_files: Mapping[str, bytes] | None,
) -> _Evaluation:
    """Evaluate a trial in a process of the cluster.

    Args:
        function: evaluates a trial, or its location.
        reports: queue of its progress, see `RayWorkers`.
        number: number of the trial.
        architecture: its architecture.
        seed: its seed.
        settings: settings of the study.
        budget: budget to reach, in a study with budgets.
        resume_files: files of the evaluation with the budget before by relative path, if there is one.
    """
    reports.put((number,))
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as former:
        directory = Path(name)
        _write_files(Path(former), resume_files or {})
        with open(directory / OUTPUT, "w") as output, redirect_stdout(output), redirect_stderr(output):
            try:
                trial = Trial(number, architecture, seed, settings.load_space(), directory)
                trial.budget, trial.resume_from = budget, None if resume_files is None else Path(former)
                loaded = load_evaluation(function) if isinstance(function, str) else function
            except ValueError as error:
                return _Evaluation(Outcome(error=error_text(error)))

            def report(step: int, values: Values) -> None:
                checked, numbers = step_values(settings, step, values)
                trial.steps[checked] = numbers
                reports.put((number, checked, numbers))

            trial.reporter = report
            outcome: Outcome | StorageError | WrongValuesError
            try:
                outcome = run_evaluation(loaded, trial, settings, lambda: reports.put((number,)))
            except (StorageError, WrongValuesError) as error:
                outcome = error
        return _Evaluation(outcome, _read_files(directory))


def _read_files(directory: Path) -> dict[str, bytes]:
    """Return the contents of the files in a directory by relative path."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def _write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a directory by relative path."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
