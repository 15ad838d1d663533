"""Worker process that evaluates one trial of a study.

    python -m nas_rlm.study.workers.worker DIRECTORY NUMBER FUNCTION

It writes a line when the function is loaded, and one with what became of the trial, to its standard output, a
pipe, which needs no space on a disk.
What the function prints goes to the standard error.
The variable NAS_RLM_CORES has the processors that it may use. It ends when its standard input is closed,
which happens when the process that started it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nas_rlm.study.evaluation import Outcome, error_text, load_evaluation, run_evaluation
from nas_rlm.study.settings import read_settings
from nas_rlm.study.store import TrialStore
from nas_rlm.study.values import WrongValuesError, step_values
from nas_rlm.study.writing import StorageError

STOPPING = {kind.__name__: kind for kind in (StorageError, WrongValuesError)}  # errors that end the study
STARTED = b'{"started": true}\n'  # the line before the evaluation


def evaluate_trial(
    directory: Path, number: int, location: str, start: Callable[[], None] = lambda: None
) -> Outcome:
    """Evaluate a running trial.

    Args:
        directory: directory of the study.
        number: number of the trial.
        location: `FILE.py:FUNCTION` or `MODULE:FUNCTION`.
        start: is called just before the function.

    Raises:
        WrongValuesError: the function gave something other than a number for each objective.
        StorageError: a file cannot be written.
    """
    settings = read_settings(directory)
    store = TrialStore(directory, settings.load_space(), settings.seed, settings.budgets)
    store.reporter = lambda trial, step, values: store.report(trial, *step_values(settings, step, values))
    store.refresh()
    trial = store.trials[number]
    try:
        function = load_evaluation(location)
    except ValueError as error:
        return Outcome(error=error_text(error))
    return run_evaluation(function, trial, settings, start)


def message_of(outcome: Outcome | Exception) -> bytes:
    """Return the line that a worker writes.

    Args:
        outcome: what became of its trial: an outcome, or an error of `STOPPING`.
    """
    if isinstance(outcome, Outcome):
        return json.dumps({"outcome": asdict(outcome)}).encode() + b"\n"
    return json.dumps({"error": type(outcome).__name__, "message": str(outcome)}).encode() + b"\n"


def read_message(message: bytes) -> Outcome | None:
    """Return the outcome in the last line of a worker's output; None if there is none, or not all of it.

    Raises:
        WrongValuesError: the worker's function gave something other than a number for each objective.
        StorageError: the worker could not write a file.
    """
    if not message.endswith(b"\n") or message.endswith(STARTED):
        return None
    content = json.loads(message.splitlines()[-1])  # Python's own start may have printed others
    if "outcome" not in content:
        raise STOPPING[content["error"]](content["message"])
    return Outcome(**content["outcome"])


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _end_with_parent(standard_input: int) -> None:
    """Kill this process and its children when the process that started it has ended."""
    while os.read(standard_input, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _take_standard_input() -> int:
    """Return a descriptor of the standard input, which is empty for the function and so cannot block it."""
    taken, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return taken


def _take_standard_output() -> int:
    """Return a descriptor of the standard output, which becomes the standard error for the function."""
    taken = os.dup(1)
    os.dup2(2, 1)
    return taken


def _use_own_cores() -> None:
    """Restrict this process to the processors of NAS_RLM_CORES."""
    cores = os.environ.get("NAS_RLM_CORES", "")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, cores.split(",")))


if __name__ == "__main__":
    _use_own_cores()
    threading.Thread(target=_end_with_parent, args=(_take_standard_input(),), daemon=True).start()
    pipe = _take_standard_output()
    run_directory, trial_number, function_location = sys.argv[1:4]
    result: Outcome | Exception
    try:
        result = evaluate_trial(
            Path(run_directory), int(trial_number), function_location, lambda: _write_all(pipe, STARTED)
        )
    except tuple(STOPPING.values()) as stopping:
        result = stopping
    _write_all(pipe, message_of(result))
