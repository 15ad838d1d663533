"""The loop of a study: trials are asked for, evaluated by workers, and recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nas_rlm.study.evaluation import Outcome
from nas_rlm.study.trial import COMPLETE, FAILED, PAUSED, Trial
from nas_rlm.study.workers.pool import Workers
from nas_rlm.utils.validation import is_whole_number

MAX_FIRST_FAILURES = 10  # failed trials without a complete one, after which the evaluation counts as broken


class TrialsFailed(RuntimeError):
    """All of the first trials failed: the evaluation is broken."""


@dataclass(frozen=True)
class Limits:
    """Limits of a loop.

    Args:
        trials: number of finished trials of the study at which it ends; None for no limit.
        timeout: seconds after which no further trial is started; None for no limit.
        cost: cost of the study that is not exceeded; None for no limit.
        retries: how many times a failed trial is evaluated again.

    Raises:
        ValueError: a limit is not a positive number, or the retries are negative.
    """

    trials: int | None = None
    timeout: float | None = None
    cost: float | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        for name, minimum in (("trials", 1), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and (not is_whole_number(value) or value < minimum):
                raise ValueError(f"{name} is {value!r}, expected a whole number of at least {minimum}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout!r}, expected a positive number of seconds")
        if self.cost is not None and not self.cost > 0:
            raise ValueError(f"cost is {self.cost!r}, expected a positive number")

    @property
    def max_trials(self) -> float:
        """Number of trials, infinite without a limit."""
        return math.inf if self.trials is None else self.trials

    @property
    def max_cost(self) -> float:
        """Cost, infinite without a limit."""
        return math.inf if self.cost is None else self.cost

    @property
    def seconds(self) -> float:
        """Seconds after which no further trial is started, infinite without a limit."""
        return math.inf if self.timeout is None else self.timeout


def run_trials(
    workers: Workers,
    claim: Callable[[], Sequence[Trial]],
    finish: Callable[[Trial, Outcome], None],
    retry: Callable[[Trial, Outcome], None],
    limits: Limits,
    watch: Callable[[], object] = lambda: None,
) -> Iterator[Trial]:
    """Evaluate trials until there is no further one, and yield each when it is finished or paused.

    Args:
        workers: evaluate trials.
        claim: returns the next trials; none if there are enough.
        finish: records the outcome of a trial.
        retry: records an outcome of a trial that is evaluated again.
        limits: limits of the time and of the attempts of a trial; `claim` heeds the others.
        watch: is called from time to time while trials are evaluated.

    Raises:
        TrialsFailed: the first `MAX_FIRST_FAILURES` trials failed.
    """
    start, states = time.monotonic(), []
    try:
        while True:
            while workers.num_free and time.monotonic() - start < limits.seconds:
                if not (trials := claim()):
                    break
                for trial in trials:
                    workers.start(trial)
            if not workers.num_busy:
                return
            while not (finished := workers.wait()):
                watch()
            for trial, outcome in finished:
                if outcome.error and trial.attempts <= limits.retries:
                    retry(trial, outcome)
                    workers.start(trial)
                    continue
                finish(trial, outcome)
                states.append(trial.state)
                yield trial
                if states.count(FAILED) >= MAX_FIRST_FAILURES and not {COMPLETE, PAUSED} & set(states):
                    raise TrialsFailed(
                        f"the first {len(states)} trials failed, the last one with {trial.error}"
                    )
    finally:
        workers.close()
