"""The loop of a study: trials are asked for, evaluated by workers, and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from nas_rlm.study.evaluation import Outcome
from nas_rlm.study.trial import COMPLETE, FAILED, PAUSED, Trial
from nas_rlm.study.workers import Workers
from nas_rlm.utils.validation import is_whole_number

MAX_FIRST_FAILURES = 10  # failed trials without a complete one, after which the evaluation counts as broken


def check_counts(trials: int | None, timeout: float | None, retries: int, cost: float | None = None) -> None:
    """Check the limits of a loop.

    Raises:
        ValueError: one is not a positive number, or the retries are negative.
    """
    for name, value, minimum in (("trials", trials, 1), ("retries", retries, 0)):
        if value is not None and (not is_whole_number(value) or value < minimum):
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least {minimum}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}, expected a positive number of seconds")
    if cost is not None and not cost > 0:
        raise ValueError(f"cost is {cost!r}, expected a positive number")


def run_trials(
    workers: Workers,
    claim: Callable[[], Trial | None],
    finish: Callable[[Trial, Outcome], None],
    retry: Callable[[Trial, Outcome], None],
    retries: int = 0,
    timeout: float | None = None,
) -> Iterator[Trial]:
    """Evaluate trials until there is no further one, and yield each when it is finished or paused.

    Args:
        workers: evaluate trials.
        claim: returns the next trial, or None if there are enough.
        finish: records the outcome of a trial.
        retry: records an outcome of a trial that is evaluated again.
        retries: how many times a failed trial is evaluated again.
        timeout: seconds after which no further trial is started; None for no limit.

    Raises:
        RuntimeError: the first `MAX_FIRST_FAILURES` trials failed.
    """
    start, states = time.monotonic(), []
    try:
        while True:
            while workers.num_free and (timeout is None or time.monotonic() - start < timeout):
                trial = claim()
                if trial is None:
                    break
                workers.start(trial)
            if not workers.num_busy:
                return
            for trial, outcome in workers.wait():
                if outcome.error and trial.attempts <= retries:
                    retry(trial, outcome)
                    workers.start(trial)
                    continue
                finish(trial, outcome)
                states.append(trial.state)
                yield trial
                if states.count(FAILED) >= MAX_FIRST_FAILURES and not {COMPLETE, PAUSED} & set(states):
                    raise RuntimeError(
                        f"the first {len(states)} trials failed, the last one with {trial.error}"
                    )
    finally:
        workers.close()
