"""What all workers of a study have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from nas_rlm.study.evaluation import Outcome
from nas_rlm.study.trial import Trial

MAX_START_SECONDS = 600  # that a worker with a time limit may take to load its function, beyond the limit

Finished = list[tuple[Trial, Outcome]]


class Workers(ABC):
    """Evaluates trials, a limited number at a time."""

    count = 1  # trials at a time

    @property
    def batch_size(self) -> int:
        """Number of trials that are asked for at once."""
        return 1

    @property
    @abstractmethod
    def num_busy(self) -> int:
        """Number of trials that are evaluated now, or wait."""

    @property
    def num_free(self) -> int:
        """Number of trials that can be started now."""
        return self.count - self.num_busy

    @abstractmethod
    def start(self, trial: Trial) -> None:
        """Start the evaluation of a trial."""

    @abstractmethod
    def wait(self) -> Finished:
        """Wait until some trials are finished, and return them with their outcomes; or none after a while."""

    @abstractmethod
    def close(self) -> None:
        """End all evaluations."""


@dataclass
class Clock:
    """When the evaluation of a trial in another process began, in monotonic seconds.

    Args:
        load_start: when the process began to load its function; None while it waits for processors.
        evaluation_start: when the function was loaded; None if it is not yet.
    """

    load_start: float | None = None
    evaluation_start: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the evaluation so far, or of loading before it."""
        start = self.load_start if self.evaluation_start is None else self.evaluation_start
        return 0.0 if start is None else time.monotonic() - start

    def is_late(self, time_limit: float | None) -> bool:
        """Return whether the evaluation takes longer than a number of seconds, or loading very long."""
        if time_limit is None:
            return False
        return self.seconds > time_limit + (MAX_START_SECONDS if self.evaluation_start is None else 0)

    def late_error(self, time_limit: float | None) -> str:
        """Return the error of an evaluation that was late."""
        if self.evaluation_start is None:
            return f"TimeoutError: the function was not loaded after {self.seconds:.0f} s"
        return f"TimeoutError: the evaluation took longer than {time_limit:g} s"
