"""Worker process that evaluates one trial of a study.

    python -m nas_rlm.study.worker DIRECTORY NUMBER FUNCTION

The variable NAS_RLM_CORES has the processors that it may use. It ends when its standard input is closed,
which happens when the process that started it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from nas_rlm.study.evaluation import Outcome, error_text, load_evaluation, run_evaluation
from nas_rlm.study.settings import read_settings
from nas_rlm.study.store import TrialStore

OUTCOME = "outcome.json"  # in the trial's directory


def evaluate_trial(directory: Path, number: int, location: str) -> None:
    """Evaluate a running trial, and write its outcome into its directory.

    Args:
        directory: directory of the study.
        number: number of the trial.
        location: `FILE.py:FUNCTION` or `MODULE:FUNCTION`.
    """
    settings = read_settings(directory)
    store = TrialStore(directory, settings.load_space(), settings.seed, settings.budgets)
    store.reporter = lambda trial, step, values: store.report(
        trial, step, settings.checked_values(values, complete=False)
    )
    store.refresh()
    trial = store.trials[number]
    try:
        function = load_evaluation(location)
    except ValueError as error:
        outcome = Outcome(error=error_text(error))
    else:
        outcome = run_evaluation(function, trial, settings)
    outcome.write(trial.directory / OUTCOME)


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


def _use_own_cores() -> None:
    """Restrict this process to the processors of NAS_RLM_CORES."""
    cores = os.environ.get("NAS_RLM_CORES", "")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, cores.split(",")))


if __name__ == "__main__":
    _use_own_cores()
    threading.Thread(target=_end_with_parent, args=(_take_standard_input(),), daemon=True).start()
    run_directory, trial_number, function_location = sys.argv[1:4]
    evaluate_trial(Path(run_directory), int(trial_number), function_location)
