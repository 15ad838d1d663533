"""The trials of a study in its directory: an append-only log that several processes share.

The file trials.jsonl is the whole state. Each line is an event and is on disk before the work goes on: `ask`,
`add`, `continue`, `start`, `report`, `pause`, `complete`, `retry`, `fail` and `reopen`. Processes append
under a lock of the directory. A line that a killed process left incomplete is removed by the next process
that writes.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from nas_rlm.study.records import Result, Suggestion, Suggestions, TrialResult
from nas_rlm.study.trial import COMPLETE, FAILED, PAUSED, RUNNING, Trial, Values
from nas_rlm.study.writing import StorageError, locked, writing
from nas_rlm.utils.json_lines import append_records
from nas_rlm.utils.validation import printable
from search_spaces import SearchSpace
from search_spaces.loading import network_fingerprint

RESULTS = {"pause": PAUSED, "complete": COMPLETE, "fail": FAILED, "retry": RUNNING}  # event to state
LOG, LOCK, OWNERS, TRIALS = "trials.jsonl", ".lock", ".owners", "trials"


Suggest = Callable[[int], Suggestions]  # from a number of architectures


class TrialStore:
    """The trials of a directory.

    Args:
        directory: the directory of the study, which exists.
        space: its search space.
        seed: its seed.
        budgets: budgets of its evaluations, ascending; empty if they have none.

    Attributes:
        trials: all trials by number, as of the last `refresh`.
        finished: the trials that are complete or failed, in the order in which they finished.
        results: the results of evaluations in the order in which they arrived, also those of paused trials.
        cost: cost of all evaluations, see `Trial.cost`.
        candidates: candidates that were added with suggestions, in order.
        reporter: records the values of a step of a trial, for `Trial.report`.
        check: refuses the first event if another process has changed the settings of the directory.
    """

    def __init__(
        self, directory: Path, space: SearchSpace[Any], seed: int, budgets: Sequence[float] = ()
    ) -> None:
        self.directory, self.space, self.seed, self.budgets = directory, space, seed, tuple(budgets)
        self.path = directory / LOG
        self.trials: list[Trial] = []
        self.finished: list[Trial] = []
        self.results: list[TrialResult] = []
        self.cost = 0.0
        self.candidates: list[str] = []
        self.reporter: Callable[[Trial, int, Values], None] | None = None
        self.check: Callable[[], None] | None = None
        self._size = self._num_lines = 0  # of the log that was read

    def refresh(self) -> None:
        """Read the events that were appended since the last call.

        Raises:
            ValueError: a line is damaged, or lines that were read are gone, or all of them.
        """
        size = self._log_size()
        if size < self._size:
            raise ValueError(
                f"{self.path} was deleted or shortened while the study was open, perhaps by the training:"
                " open the study again, or choose another directory"
            )
        if not size:
            self._check_no_directories()
            return
        with open(self.path, "rb") as file:
            file.seek(self._size)
            *lines, _ = file.read().split(b"\n")  # the last line is empty or incomplete
        for line in lines:
            self._num_lines += 1
            self._size += len(line) + 1
            if not line.strip():  # of an editor
                continue
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
                raise ValueError(
                    f"{self.path} line {self._num_lines} is not an event of a study: {line[:80]!r}"
                ) from None

    def _log_size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _check_no_directories(self) -> None:
        """Refuse an empty log beside directories of trials, which have events."""
        directories = self.directory / TRIALS
        found = sorted(directories.iterdir()) if directories.is_dir() else []
        if found and not self._log_size():  # another process may have begun meanwhile
            raise ValueError(
                f"{self.path} has no trials, but {found[0]} is the directory of one: restore the log, or"
                " choose another directory"
            )

    @property
    def num_events(self) -> int:
        """Number of events that were read."""
        return self._num_lines

    def running(self) -> list[Trial]:
        """Return the trials that were asked for and have no result."""
        return [trial for trial in self.trials if trial.state == RUNNING]

    def ask(self, suggest: Suggest, count: int, owner: str = "") -> list[Trial]:
        """Add trials with suggested architectures, or continue the paused trials that have them.

        Args:
            suggest: returns at most as many architectures that no trial has, or a paused one; is called under
                the lock with the current trials, so that no two processes get the same architecture.
            count: number of trials.
            owner: see `Trial`.

        Returns:
            The trials; fewer where the space has no other architectures.
        """
        with self._locked():
            return self._ask(suggest, count, owner)

    def claim(
        self,
        suggest: Suggest,
        limit: float,
        owner: str,
        evaluation: str = "",
        max_cost: float = math.inf,
        count: int = 1,
    ) -> list[Trial]:
        """Return the next trials to evaluate; none if there are enough.

        They are those whose process died, or else new ones, or a paused one.

        Args:
            suggest: see `ask`.
            limit: number of finished trials that is wanted.
            owner: the process that evaluates them.
            evaluation: location of the function that evaluates them, if it has one.
            max_cost: cost of the study, with that of trials that are running, which is not to be exceeded.
            count: at most as many trials; in a study with budgets one.
        """
        with self._locked():
            owned = [trial for trial in self.running() if trial.owner]
            trials = [trial for trial in owned if not self._is_alive(trial.owner)][:count]
            is_last = [trial.budget is None or trial.budget == self.budgets[-1] for trial in owned]
            num_missing = limit - len(self.finished) - sum(is_last)
            if not trials and num_missing > 0:
                cost = self.cost + sum(trial.next_cost for trial in owned)
                trials = self._ask(suggest, int(min(count, num_missing)), owner, max_cost - cost)
            for trial in trials:
                self._start(trial, owner, evaluation)
            return trials

    def add(self, suggestion: Suggestion, result: Result, is_new_only: bool = False) -> Trial | None:
        """Add a trial that was evaluated before.

        Args:
            suggestion: its architecture.
            result: its result.
            is_new_only: add none, and return None, if a trial has the architecture.
        """
        with self._locked():
            known = (trial.architecture for trial in self.trials)
            if is_new_only and suggestion.architecture in known:
                return None
            number = len(self.trials)
            entry = self._entry(suggestion, number)
            result_event = self._result_event(self._new_trial(entry, is_added=True), result, is_added=True)
            # At once, since a process that is killed in between would leave a trial that runs for ever.
            self._append({"event": "add", "trials": [entry], "owner": ""}, result_event)
            return self.trials[number]

    def report(self, trial: Trial, step: int, values: Mapping[str, float]) -> None:
        """Record values of a step of a running trial.

        Raises:
            ValueError: the trial is not running.
        """
        with self._locked():
            self.check_running(trial)
            self._append({"event": "report", "trial": trial.number, "step": step, "values": dict(values)})

    def finish(self, trial: Trial, result: Result) -> None:
        """Record the result of a running trial, which is final unless it has less than the full budget.

        Raises:
            ValueError: the trial is not running.
        """
        with self._locked():
            self.check_running(trial)
            self._append(self._result_event(trial, result))

    def restart(self, trial: Trial, result: Result, owner: str) -> None:
        """Record a failed attempt of a trial and the start of the next one."""
        with self._locked():
            self._append({**self._result_event(trial, result), "event": "retry"})
            self._start(trial, owner, trial.evaluation)

    def reopen_failed(self) -> None:
        """Let failed trials, which processes evaluated, be claimed again."""
        with self._locked():
            failed = [trial for trial in self.finished if trial.state == FAILED and trial.owner]
            events = [
                {"event": "reopen", "trial": t.number, "network": network_fingerprint(self.space, t.parsed)}
                for t in failed  # the file of the space may have been changed
            ]
            if events:
                self._append(*events)

    def check_running(self, trial: Trial) -> None:
        """Refuse a trial that is paused or finished.

        Raises:
            ValueError: it is.
        """
        if trial.state == PAUSED:
            raise ValueError(f"trial {trial.number} is paused: it runs again once `ask` returns it")
        if trial.state != RUNNING:
            raise ValueError(f"trial {trial.number} is {trial.state} already: its result is final")

    @contextmanager
    def owner(self) -> Iterator[str]:
        """Yield a name of this process as the owner of trials, which is alive within the `with` block."""
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        path = self.directory / OWNERS / name
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        try:
            with locked(path):
                yield name
        finally:
            path.unlink(missing_ok=True)

    def _is_alive(self, owner: str) -> bool:
        """Whether the process of a name holds the lock of `owner`, which its end releases."""
        path = self.directory / OWNERS / owner
        if not path.exists():
            return False
        try:
            with FileLock(path).acquire(timeout=0):
                pass
        except Timeout:
            return True
        path.unlink(missing_ok=True)
        return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait for the lock of the directory, and read what other processes appended."""
        with locked(self.directory / LOCK):
            self.refresh()
            if self.path.exists() and self.path.stat().st_size > self._size:
                os.truncate(self.path, self._size)  # the incomplete line of a process that was killed
            yield

    def _ask(self, suggest: Suggest, count: int, owner: str, max_cost: float = math.inf) -> list[Trial]:
        """Add or continue trials whose evaluations cost at most as much; none if nothing is left to spend."""
        if max_cost <= 0:
            return []
        suggested, first = suggest(count), len(self.trials)
        suggestions, candidates = suggested.trials, [*suggested.candidates]
        if self.budgets and suggestions:
            name = suggestions[0].architecture
            paused = next((t for t in self.trials if t.state == PAUSED and t.architecture == name), None)
            reached = max(paused.budget_values) if paused else 0
            if next(budget for budget in self.budgets if budget > reached) - reached > max_cost:
                return []
            if paused:
                self._append(
                    {"event": "continue", "trial": paused.number, "owner": owner, "candidates": candidates}
                )
                return [paused]
        entries = [self._entry(suggestion, first + i) for i, suggestion in enumerate(suggestions)]
        if entries:
            self._append({"event": "ask", "trials": entries, "owner": owner, "candidates": candidates})
        return self.trials[first:]

    def _entry(self, suggestion: Suggestion, number: int) -> dict[str, Any]:
        """A trial in the event that adds it."""
        entry: dict[str, Any] = {"architecture": suggestion.architecture, "seed": self._trial_seed(number)}
        if network := network_fingerprint(self.space, self.space.parse(suggestion.architecture)):
            entry["network"] = network
        return entry | ({"predicted": suggestion.predicted} if suggestion.predicted else {})

    def _new_trial(self, entry: Mapping[str, Any], is_added: bool) -> Trial:
        """The next trial, of an entry of an event."""
        number, budget = len(self.trials), None
        if self.budgets:
            budget = self.budgets[-1 if is_added else 0]
        directory = self._evaluation_directory(number, budget)
        trial = Trial(number, str(entry["architecture"]), int(entry["seed"]), self.space, directory)
        trial.budget, trial.predicted = budget, entry.get("predicted", {})
        trial.network_fingerprint = str(entry.get("network", ""))  # older logs have none
        if self.reporter:
            trial.reporter = partial(self.reporter, trial)
        return trial

    def _evaluation_directory(self, number: int, budget: float | None) -> Path:
        """The directory of the evaluation of a trial with a budget."""
        directory = self.directory / TRIALS / f"{number:05d}"
        return directory if budget is None else directory / f"budget{budget:g}"

    def _result_event(self, trial: Trial, result: Result, is_added: bool = False) -> dict[str, Any]:
        """The event of a result."""
        is_paused = trial.budget is not None and trial.budget < self.budgets[-1]
        event = {
            "event": "fail" if result.error else "pause" if is_paused else "complete",
            "trial": trial.number,
            "values": dict(result.values),
            "cost": round(result.cost, 6),
            "environment": dict(result.environment),
            "details": dict(result.details),
        }
        if trial.budget is not None:
            event["budget_cost"] = 0 if is_added else trial.next_cost
        if result.additional:
            event["additional"] = dict(result.additional)
        return event | ({"error": printable(result.error)} if result.error else {})

    def _start(self, trial: Trial, owner: str, evaluation: str) -> None:
        self._append({"event": "start", "trial": trial.number, "owner": owner, "evaluation": evaluation})

    def _trial_seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])

    def _append(self, *events: Mapping[str, Any]) -> None:
        """Append events, under the lock, and apply them."""
        if self.check is not None and not self._num_lines:
            self.check()
        try:
            with writing(self.path):
                append_records(self.path, [{**event, "time": round(time.time(), 3)} for event in events])
        except StorageError:
            with suppress(OSError):
                os.truncate(self.path, self._size)  # a part of the lines
            raise
        self.refresh()

    def _apply(self, event: Mapping[str, Any]) -> None:
        """Change the trials as an event says."""
        kind = event["event"]
        self.candidates += event.get("candidates", ())
        if kind in ("ask", "add"):
            for entry in event["trials"]:
                trial = self._new_trial(entry, is_added=kind == "add")
                trial.owner = event["owner"]
                self.trials.append(trial)
            return
        trial = self.trials[event["trial"]]
        numbers = [*event.get("values", {}).values(), *event.get("additional", {}).values()]
        if event["trial"] < 0 or not all(map(_is_finite_number, numbers)):
            raise ValueError(kind)
        if kind == "start":
            trial.owner, trial.evaluation, trial.steps = event["owner"], event["evaluation"], {}
            trial.attempts += 1
        elif kind == "reopen":
            trial.state, trial.attempts, trial.error, trial.values = RUNNING, 0, "", {}
            trial.network_fingerprint = str(event["network"])
            self.finished.remove(trial)
        elif kind == "continue":
            reached = max(trial.budget_values)
            trial.state, trial.owner, trial.resume_from = RUNNING, event["owner"], trial.directory
            trial.budget = next(budget for budget in self.budgets if budget > reached)
            trial.directory = self._evaluation_directory(trial.number, trial.budget)
            trial.steps, trial.attempts = {}, 0
        elif kind == "report":
            trial.steps[int(event["step"])] = event["values"]
        elif kind in RESULTS:
            self._apply_result(trial, event)
        else:
            raise ValueError(kind)

    def _apply_result(self, trial: Trial, event: Mapping[str, Any]) -> None:
        """Change a trial, and the lists of results, as the event of a result says."""
        kind, cost = event["event"], event.get("budget_cost", event["cost"])
        trial.seconds += event["cost"]
        trial.cost += cost
        self.cost += cost
        trial.values, trial.error = event["values"], event.get("error", "")
        trial.environment, trial.details = event["environment"], event["details"]
        trial.additional = event.get("additional", {})
        if kind == "retry":
            return
        trial.state = RESULTS[kind]
        if trial.budget is not None and kind != "fail":
            trial.budget_values[trial.budget] = event["values"]
        self.results.append(TrialResult(trial, trial.budget, self.cost, kind == "fail"))
        if kind != "pause":
            self.finished.append(trial)


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
