"""The networks of a front as files: ONNX, a Python file with the torch module, trained weights, a table."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

import search_spaces
from nas_rlm.graph.open_batch import with_open_batch
from nas_rlm.graph.torch_module import to_torch
from nas_rlm.search.exact_constraints import exact_values
from nas_rlm.study.trial import Trial

MAX_RUN_FLOPS = 5e9  # of networks that are run to check that their batch may be open
FIRST_MARK = 2**22  # of initialisers: exact in float32, and no constant of a network
MODULE = '''"""The network of trial {number} as a torch module, with its trained weights where there are any.

>>> module = network()

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
    """Return the network; with `trained=False` with the initial weights of the trial."""
    model = SPACE.to_onnx(SPACE.parse(ARCHITECTURE), weights=True, seed=SEED)
    module = to_torch(model)
    if trained and WEIGHTS.is_file():
        module.load_state_dict(load_file(WEIGHTS))
    return module
'''


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
    for trial in trials:
        path, model = front / f"{trial.number:05d}", trial.onnx()
        if trial.weights_file:
            shutil.copy(trial.weights_file, path.with_suffix(".safetensors"))
            model = with_weights(model, load_file(trial.weights_file)) or model
        if exact_values(trial.space, trial.parsed, ["flops"])["flops"] <= MAX_RUN_FLOPS:
            model = with_open_batch(model)
        onnx.save(model, path.with_suffix(".onnx"))
        source = MODULE.format(
            number=trial.number,
            command=command_line(directory, trial),
            space=search_spaces.location_of(trial.space) or trial.space.name,
            architecture=trial.architecture,
            seed=trial.seed,
        )
        path.with_suffix(".py").write_text(source)


def with_weights(model: onnx.ModelProto, weights: Mapping[str, torch.Tensor]) -> onnx.ModelProto | None:
    """Return an ONNX model with the weights of its torch module.

    Args:
        model: the model, with initial weights.
        weights: `state_dict` of `to_torch(model)`.

    Returns:
        A copy of the model; None if the weights are of another module.
    """
    initialisers = {t.name: t for t in model.graph.initializer}
    trained = onnx.ModelProto()
    trained.CopyFrom(model)
    names = _initialiser_names(model)
    shapes_fit = all(
        key in weights and list(weights[key].shape) == list(initialisers[name].dims)
        for key, name in names.items()
    )
    if not names or not shapes_fit:
        return None
    arrays = {name: weights[key].float().numpy() for key, name in names.items()}
    for tensor in trained.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    return trained


def _initialiser_names(model: onnx.ModelProto) -> dict[str, str]:
    """The names of initialisers by the key of their torch tensors.

    Each initialiser is filled with its own number, which is then found in the module. Constants of the
    module, such as the ones of a group norm, have other numbers.
    """
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    weights = [
        tensor
        for tensor in marked.graph.initializer
        if tensor.dims and tensor.data_type == onnx.TensorProto.FLOAT
    ]
    for number, tensor in enumerate(weights):
        filled = np.full(list(tensor.dims), FIRST_MARK + number, dtype=np.float32)
        tensor.CopyFrom(numpy_helper.from_array(filled, tensor.name))
    marks = {
        key: float(tensor.flatten()[0]) - FIRST_MARK
        for key, tensor in to_torch(marked).state_dict().items()
        if tensor.is_floating_point() and tensor.numel()
    }
    return {key: weights[int(mark)].name for key, mark in marks.items() if 0 <= mark < len(weights)}
