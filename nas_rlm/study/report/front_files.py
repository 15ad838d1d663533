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
# Each element of a weight gets a number, exact in float32 and no constant of a network, and it is then found
# in the torch module, whose weights may have other shapes and orders.
FIRST_MARK, MARKS = 2**22, 2**23
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
    tensors = _weights_of(model)
    if not tensors:
        return None
    initial = np.concatenate([numpy_helper.to_array(tensor).flatten() for tensor in tensors])
    trained = initial.copy()
    for start in range(0, len(initial), MARKS):
        marks, count = np.zeros_like(initial), min(MARKS, len(initial) - start)
        marks[start : start + count] = FIRST_MARK + np.arange(count)
        for key, tensor in to_torch(_with_values(model, marks)).state_dict().items():
            numbers = tensor.flatten().numpy()
            is_mark = (numbers >= FIRST_MARK) & (numbers < FIRST_MARK + count)
            if not tensor.is_floating_point() or not is_mark.any():
                continue
            if key not in weights or weights[key].shape != tensor.shape:
                return None
            positions = numbers[is_mark].astype(np.int64) - FIRST_MARK + start
            trained[positions] = weights[key].float().flatten().numpy()[is_mark]
    found = _with_values(model, trained)
    state = to_torch(found).state_dict()
    floats = [key for key in weights.keys() & state.keys() if state[key].is_floating_point()]
    is_equal = all(torch.allclose(state[k], weights[k].float(), 0, 0, equal_nan=True) for k in floats)
    return found if is_equal else None


def _weights_of(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The initialisers that are weights."""
    return [t for t in model.graph.initializer if t.dims and t.data_type == onnx.TensorProto.FLOAT]


def _with_values(model: onnx.ModelProto, values: np.ndarray) -> onnx.ModelProto:
    """Return a copy of a model with these elements of all its weights, in order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    tensors = _weights_of(copy)
    ends = np.cumsum([int(np.prod(tensor.dims)) for tensor in tensors])
    for tensor, part in zip(tensors, np.split(values, ends[:-1]), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(part.reshape(tuple(tensor.dims)), tensor.name))
    return copy
