"""The evaluation of one trial by a user's function: its values, weights, errors and environment."""

from __future__ import annotations

import inspect
import os
import platform
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.data.omissions import describe_error
from nas_rlm.files import atomic_write, write_text
from nas_rlm.study.records import Result
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import ERROR, WEIGHTS, Trial
from nas_rlm.study.values import GivenValues, WrongValuesError, given_values
from nas_rlm.study.writing import StorageError, check_disk, writing
from nas_rlm.utils.validation import shown, suggest
from search_spaces.loading import load_module

EvaluateFunction = Callable[..., Any]  # of a trial, and in a study with budgets of more, see `run_evaluation`
PACKAGES = ("nas-rlm", "numpy", "onnx", "torch")  # whose versions are recorded
MAX_ERROR_LENGTH = 500  # characters of an error in the log


@dataclass(frozen=True)
class Outcome(Result):
    """What a call of an evaluation function gave.

    Args:
        ignored: names of further values that it gave and that are not kept.
    """

    ignored: Sequence[str] = ()

    @classmethod
    def of_values(cls, given: GivenValues, cost: float) -> Outcome:
        """Return the outcome of an evaluation in this process that gave values."""
        values, additional = given.objectives, given.additional
        return cls(values, "", cost, environment(), additional=additional, ignored=given.ignored)


def run_evaluation(
    function: EvaluateFunction,
    trial: Trial,
    settings: StudySettings,
    start: Callable[[], None] = lambda: None,
) -> Outcome:
    """Call an evaluation function, and store the weights or the traceback in the trial's directory.

    Args:
        function: the function, of the trial; in a study with budgets of the trial, the budget to reach, and
            the directory of the evaluation with the budget before, or None. It returns a value of each
            objective of `settings.evaluated`, or a pair of these and a `state_dict` or module. Where it
            returns no values, the last reported ones count. Further numbers are kept as additional ones.
        trial: its argument.
        settings: settings of the study.
        start: is called just before the function, when torch is imported, which takes seconds.

    Returns:
        The outcome; every error of the function is an outcome as well.

    Raises:
        WrongValuesError: the function gave something other than a number for each objective.
        StorageError: a file cannot be written, or the function failed since the disk is full.
    """
    make_directory(trial)
    with writing(trial.directory):
        for name in (WEIGHTS, ERROR):
            (trial.directory / name).unlink(missing_ok=True)
    from nas_rlm.utils import torch_settings

    _seed_all(_evaluation_seed(trial, settings))
    source = f"the training function {getattr(function, '__name__', type(function).__name__)}"
    start()
    start_time, values = time.perf_counter(), None
    try:
        with torch_settings.restored():
            returned = (
                function(trial) if trial.budget is None else function(trial, trial.budget, trial.resume_from)
            )
        cost = time.perf_counter() - start_time
        values, weights = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
        if weights is not None:
            save_weights(weights, trial.directory / WEIGHTS, source)
        if values is None and not trial.steps and settings.evaluated:
            raise WrongValuesError(
                f"{source} returned None and reported no values, expected {' and '.join(settings.evaluated)}"
            )
        if values is None:
            source += " returned None, and trial.report"
        found = trial.last_values if values is None else values
        return Outcome.of_values(given_values(settings, found, complete=True, source=source), cost)
    except StorageError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        check_disk(error, trial.directory)
        returned_values = (
            "" if values is None else f"\nThe function returned {shown(values, MAX_ERROR_LENGTH)}\n"
        )
        with writing(trial.directory / ERROR):
            write_text(trial.directory / ERROR, traceback.format_exc() + returned_values)
        if isinstance(error, WrongValuesError):
            raise WrongValuesError(
                f"trial {trial.number}: {error}. Mend the function and run the same again, which evaluates"
                " this trial again"
            ) from None
        cost = time.perf_counter() - start_time
        return Outcome(error=error_text(error), cost=cost, environment=environment())


def make_directory(trial: Trial) -> None:
    """Create the directory of a trial.

    Raises:
        StorageError: it cannot be created.
    """
    with writing(trial.directory):
        trial.directory.mkdir(parents=True, exist_ok=True)


def error_text(error: BaseException) -> str:
    """Return the type and the first line of an error."""
    reason, kind = describe_error(error), type(error).__name__
    return (reason if reason == kind else f"{kind}: {reason}")[:MAX_ERROR_LENGTH]


def save_weights(weights: Any, path: Path, source: str = "the evaluation") -> None:
    """Write trained weights as safetensors.

    Args:
        weights: a `state_dict`, or a torch module.
        path: the file.
        source: what gave the weights, for messages.

    Raises:
        WrongValuesError: it is something else.
        StorageError: the file cannot be written.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if isinstance(weights, torch.nn.Module):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        raise WrongValuesError(
            f"{source} gave weights of type {type(weights).__name__}, expected a state_dict; several"
            " values are given as one mapping, such as {'accuracy': 71.2, 'loss': 0.3}"
        )
    if others := [name for name, value in weights.items() if not isinstance(value, torch.Tensor)]:
        raise WrongValuesError(
            f"{source} gave weights of which {others[0]!r} is of type"
            f" {type(weights[others[0]]).__name__}, expected a pair of the values and a state_dict of tensors"
        )
    unstorable = f"{source} gave weights that cannot be stored, expected dense tensors"
    try:
        tensors = {str(name): t.detach().cpu().contiguous().clone() for name, t in weights.items()}
    except RuntimeError as error:  # sparse and meta tensors
        raise WrongValuesError(f"{unstorable}: {error}") from error
    with writing(path), atomic_write(path) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            if "I/O error" in str(error):
                raise OSError(str(error).partition("I/O error: ")[2]) from error
            raise
        except (KeyError, ValueError) as error:  # quantized tensors
            raise WrongValuesError(f"{unstorable}: {error}") from error


def environment() -> dict[str, Any]:
    """Return a description of this machine and the versions of packages."""
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {name: value for name, value in found.items() if value}


def load_evaluation(location: str) -> EvaluateFunction:
    """Load an evaluation function.

    Args:
        location: `FILE.py:FUNCTION` or `MODULE:FUNCTION`. The file or module is executed.

    Raises:
        ValueError: the location has another form, or there is no such function.
    """
    source, _, name = location.rpartition(":")
    if not source or not name:
        raise ValueError(
            f"training function {location!r} is not FILE.py:FUNCTION or MODULE:FUNCTION: try mine.py:train"
        )
    module = load_module(source, f"training function {location!r}")
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if inspect.isfunction(value) and n[0] != "_"]
        raise ValueError(
            f"training function {location!r}: {source} has no function {name!r}; {suggest(name, names)}"
        )
    loaded: EvaluateFunction = function
    return loaded


def check_parameters(function: EvaluateFunction, has_budgets: bool) -> None:
    """Refuse an evaluation function that cannot be called as `run_evaluation` does.

    Args:
        function: the function.
        has_budgets: whether it is of a study with budgets.

    Raises:
        ValueError: it takes other arguments.
    """
    arguments = ("trial", "budget", "resume_from") if has_budgets else ("trial",)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a function that is not written in Python
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        study = "a study with budgets" if has_budgets else "a study without budgets"
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"the training function is {name}{signature}, and {study} calls it with {', '.join(arguments)}"
        ) from None


def location_of(function: EvaluateFunction | None) -> str:
    """Return from where a function can be loaded in another process; empty if it cannot.

    A function is found if it is at the top level of a module or of the script that runs.
    """
    name, module_name = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    module = sys.modules.get(module_name)
    if not name.isidentifier() or getattr(module, name, None) is not function:
        return ""
    file = getattr(module, "__file__", None)
    is_script = module_name == "__main__" or module_name.startswith("nas_rlm_user_")
    if is_script:  # of a notebook or the standard input it has no file
        return f"{Path(file).resolve()}:{name}" if file and Path(file).is_file() else ""
    return f"{module_name}:{name}"


def _evaluation_seed(trial: Trial, settings: StudySettings) -> int:
    """The trial's seed, or one derived from it where a training goes on, so that its batches are others."""
    if trial.budget is None or trial.resume_from is None:
        return trial.seed
    level = settings.budgets.index(trial.budget)
    return int(np.random.SeedSequence([trial.seed, level]).generate_state(1)[0])


def _seed_all(seed: int) -> None:
    """Seed the random generators that training functions use."""
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - of functions that use the global generator
    torch.manual_seed(seed)
