"""The networks of a front as files: ONNX, a Python file with the torch module, trained weights, a table."""

from __future__ import annotations

import shlex
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

import onnx
from safetensors.torch import save_file

import search_spaces
from nas_rlm.graph.open_batch import with_open_batch
from nas_rlm.search.exact_constraints import exact_values
from nas_rlm.study.report.trained_weights import weights_of_network, with_weights
from nas_rlm.study.trial import Trial
from nas_rlm.utils.validation import listed

MAX_RUN_FLOPS = 5e9  # of networks that are run to check that their batch may be open
MODULE = '''"""The network of trial {number} as a torch module, with {weights}.

>>> module = network().eval()

This command trains it again:

    {command}
"""

from pathlib import Path

from safetensors.torch import load_file

import search_spaces
from nas_rlm.graph.torch_module import to_torch

SPACE = search_spaces.get({space!r})
ARCHITECTURE = {architecture!r}
SEED = {seed}
WEIGHTS = Path(__file__).with_suffix(".safetensors")


def network(trained=True):
    """Return the network in training mode; with `trained=False` with the initial weights of the trial."""
    model = SPACE.to_onnx(SPACE.parse(ARCHITECTURE), weights=True, seed=SEED)
    module = to_torch(model)
{load}    return module
'''
# By what a trial has, the contents of the file and its lines that load them.
UNTRAINED = "initial weights", ""
TRAINED = (
    "its trained weights",
    """    if trained:
        module.load_state_dict(load_file(WEIGHTS))
""",
)
OTHER = (
    "initial weights: the trained ones are of another module",
    """    if trained:
        raise ValueError(f"{WEIGHTS} has weights of another module: use network(trained=False)")
""",
)


def command_line(directory: Path, trial: Trial) -> str:
    """Return the command that trains the network of a trial again, with a gap for an unknown function."""
    function = [] if trial.evaluation else ["--train", "FILE.py:FUNCTION"]
    return shlex.join(["nas-rlm", "retrain", str(directory), "--trial", str(trial.number), *function])


def write_front(directory: Path, trials: Sequence[Trial]) -> None:
    """Write front/ of a study: for each trial NUMBER.onnx, NUMBER.py and, if it has them, its weights.

    The ONNX file has the trained weights where they are those of `Trial.network`, and an open batch where the
    network computes the same for each example of one.

    Args:
        directory: directory of the study; an earlier front is replaced.
        trials: trials of the front.

    Warns:
        UserWarning: ONNX files have initial weights, since the trained ones are of another module.
    """
    unfinished, finished = directory / ".front", directory / "front"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir()
        _write_networks(directory, unfinished, trials)
        shutil.rmtree(finished, ignore_errors=True)
        unfinished.rename(finished)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_networks(directory: Path, front: Path, trials: Sequence[Trial]) -> None:
    """Write the files of each network into a directory, see `write_front`."""
    untrained: list[str] = []
    for trial in trials:
        path, model = front / f"{trial.number:05d}", trial.onnx()
        contents, load = TRAINED if trial.weights_file else UNTRAINED
        if trial.weights_file:
            weights = weights_of_network(trial.weights_file, model)
            trained = None if weights is None else with_weights(model, weights)
            if weights is None:
                contents, load = OTHER
                shutil.copy(trial.weights_file, path.with_suffix(".safetensors"))
            else:
                save_file(weights, path.with_suffix(".safetensors"))
            if trained is None:
                untrained.append(str(trial.number))
            model = trained or model
        if exact_values(trial.space, trial.parsed, ["flops"])["flops"] <= MAX_RUN_FLOPS:
            model = with_open_batch(model)
        onnx.save(model, path.with_suffix(".onnx"))
        source = MODULE.format(
            number=trial.number,
            weights=contents,
            load=load,
            command=command_line(directory, trial),
            space=search_spaces.location_of(trial.space) or trial.space.name,
            architecture=trial.architecture,
            seed=trial.seed,
        )
        path.with_suffix(".py").write_text(source)
    if untrained:
        warnings.warn(
            f"the ONNX files of trials {listed(untrained)} have initial weights, since the trained ones are"
            " not those of trial.network()",
            stacklevel=4,
        )
