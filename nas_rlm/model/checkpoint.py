"""Checkpoints: directories with the weights, tokenizer, surrogates and configuration of a model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nas_rlm._version import __version__
from nas_rlm.files import atomic_write, write_bytes
from nas_rlm.model import encoders
from nas_rlm.model.config_file import (
    LEGACY_SURROGATES_FILE,
    NUM_SHOWN_DIGITS,
    SURROGATES_FILE,
    ConfigFile,
    TrainedOn,
    read_config,
    write_config,
)
from nas_rlm.model.directories import CONFIG_FILE, model_directory
from nas_rlm.model.encoders import PretrainedTokenizer
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_runtime import TOKENIZER_FILE, is_exported
from nas_rlm.text import Tokenizer

WEIGHTS_FILE = "model.safetensors"
AnyTokenizer = Tokenizer | PretrainedTokenizer
Temperatures = Mapping[str, Mapping[str, float]]  # by space and objective


class SavedSurrogate(Protocol):
    """A surrogate that can be saved: named tensors and a description that is valid JSON."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by name."""

    def description(self) -> dict[str, Any]:
        """Return the kind of the surrogate, its objectives and all other properties that are not tensors."""


S = TypeVar("S", bound=SavedSurrogate)
FromSaved = Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], S]


@dataclass(frozen=True)
class Checkpoint(Generic[S]):
    """The content of a checkpoint.

    Args:
        network: encoder-decoder network.
        tokenizer: tokenizer of the network's texts.
        trained_on: numbers of rows and objectives that the network was trained on, by search space.
        temperatures: divisors of the network's logits, by search space and objective.
        surrogates: surrogates of each search space.
        maximised: objectives that a search maximises although their kind is not.
    """

    network: Network
    tokenizer: AnyTokenizer
    trained_on: Mapping[str, TrainedOn]
    temperatures: Temperatures
    surrogates: Mapping[str, Sequence[S]]
    maximised: tuple[str, ...] = ()


def load(name: str | os.PathLike[str], from_saved: FromSaved[S]) -> Checkpoint[S]:
    """Read a checkpoint of this or an older version of the package.

    Args:
        name: a directory, or the name of a shipped model.
        from_saved: function that makes a surrogate from its tensors and its description.

    Raises:
        FileNotFoundError: there is no directory or shipped model with this name.
        ValueError: a file is missing, damaged or belongs to another checkpoint.
    """
    directory = model_directory(name)
    if is_exported(directory):
        raise ValueError(f"{directory} is an exported model: only predict and rank read it")
    required = (CONFIG_FILE, WEIGHTS_FILE)
    missing = [file for file in required if not (directory / file).is_file()]
    if missing:
        raise ValueError(
            f"{directory} is not a checkpoint: {', '.join(missing)} missing (expected {', '.join(required)})"
        )
    saved = read_config(directory)
    config, expected_sha256 = saved.network, saved.tokenizer_sha256
    surrogates = _read_surrogates(directory, saved, from_saved)
    tokenizer = _tokenizer(config, directory / TOKENIZER_FILE)
    if tokenizer.sha256 != expected_sha256:
        source, kind = (
            (config.encoder, "encoder") if config.encoder else (directory / TOKENIZER_FILE, "tokenizer")
        )
        raise ValueError(
            f"{source} is not this checkpoint's {kind}: its sha256 is"
            f" {tokenizer.sha256[:NUM_SHOWN_DIGITS]}…,"
            f" {CONFIG_FILE} expects {expected_sha256[:NUM_SHOWN_DIGITS]}…"
        )
    network = Network(config, tokenizer.kinds())
    saved.check_hash(directory / WEIGHTS_FILE)
    weights = _read_weights(directory / WEIGHTS_FILE, network)
    network.load_state_dict({**weights, "kinds": network.kinds})
    return Checkpoint(
        *(network.eval(), tokenizer, saved.trained_on, saved.temperatures, surrogates), saved.maximised
    )


def save(directory: str | os.PathLike[str], checkpoint: Checkpoint[S]) -> None:
    """Write a checkpoint: weights in half precision, tokenizer, surrogates and, last, the configuration."""
    network, tokenizer = checkpoint.network, checkpoint.tokenizer
    target = Path(directory)
    weights = {k: v.half().contiguous() for k, v in network.state_dict().items() if k != "kinds"}
    with atomic_write(target / WEIGHTS_FILE) as temporary:
        save_file(weights, temporary)
    if isinstance(tokenizer, Tokenizer):
        write_bytes(target / TOKENIZER_FILE, tokenizer.proto)
    if checkpoint.surrogates:
        tensors = {
            f"{space}.{i}.{name}": tensor.contiguous()
            for space, surrogates in checkpoint.surrogates.items()
            for i, surrogate in enumerate(surrogates)
            for name, tensor in surrogate.tensors().items()
        }
        stored, equal = _without_duplicates(tensors)
        with atomic_write(target / SURROGATES_FILE) as temporary:
            save_file(stored, temporary)
    config: dict[str, Any] = {
        "package": f"nas-rlm {__version__}",
        "network": asdict(network.config),
        "tokenizer_sha256": tokenizer.sha256,
        "trained_on": {space: asdict(entry) for space, entry in checkpoint.trained_on.items()},
        "temperatures": checkpoint.temperatures,
        "surrogates": {
            space: [surrogate.description() for surrogate in surrogates]
            for space, surrogates in checkpoint.surrogates.items()
        },
    }
    if checkpoint.surrogates and equal:
        config["equal_tensors"] = equal
    if checkpoint.maximised:
        config["maximised"] = checkpoint.maximised
    write_config(target, config, (WEIGHTS_FILE, *([SURROGATES_FILE] if checkpoint.surrogates else [])))
    if not checkpoint.surrogates:
        (target / SURROGATES_FILE).unlink(missing_ok=True)
    (target / LEGACY_SURROGATES_FILE).unlink(missing_ok=True)


def _without_duplicates(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return each distinct tensor once, and for the name of any other one the name of its equal.

    Surrogates of several spaces can share most of their tensors.
    """
    stored: dict[str, torch.Tensor] = {}
    equal: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for name, tensor in tensors.items():
        content = hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        same = first.setdefault((tensor.dtype, tensor.shape, content), name)
        if same == name:
            stored[name] = tensor
        else:
            equal[name] = same
    return stored, equal


def objective_temperatures(temperatures: Temperatures, space: str, objectives: Sequence[str]) -> list[float]:
    """Return the temperature of each objective in a space.

    If the space has none for an objective, it is the geometric mean over the spaces that have one, or 1.
    """
    own = temperatures.get(space, {})
    result = []
    for name in objectives:
        values = [own[name]] if name in own else [t[name] for t in temperatures.values() if name in t]
        result.append(float(np.exp(np.mean(np.log(values)))) if values else 1.0)
    return result


def check_shapes(
    tensors: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, torch.dtype] | None = None,
) -> None:
    """Check that tensors exist, have the expected shapes and are of floating point or the expected type.

    Args:
        tensors: tensors by name.
        shapes: expected shape of each required tensor, by name.
        dtypes: types of the tensors that are not of floating point, by name.

    Raises:
        ValueError: a tensor is missing or has another shape or dtype.
    """
    missing = shapes.keys() - tensors.keys()
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} missing")
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name)
        if not (tensors[name].dtype == dtype if dtype else tensors[name].is_floating_point()):
            raise ValueError(f"{name} is {tensors[name].dtype}, expected {dtype or 'floating point'}")
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"{name} is {tuple(tensors[name].shape)}, expected {shape}")


def tensors_with_prefix(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names start with a prefix, by their names without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _tokenizer(config: Config, path: Path) -> AnyTokenizer:
    """The tokenizer of the frozen encoder; without a frozen encoder, the tokenizer in the file `path`."""
    if not config.encoder:
        if not path.is_file():
            raise ValueError(f"{path.parent} is not a checkpoint: {path.name} missing")
        return Tokenizer.load(path)
    encoder = encoders.load(config.encoder)
    if (config.encoder_width, config.max_length) != (encoder.width, encoder.max_length):
        raise ValueError(
            f"{config.encoder} has states of width {encoder.width} and reads {encoder.max_length} tokens,"
            f" {CONFIG_FILE} expects {config.encoder_width} and {config.max_length}"
        )
    return encoder.tokenizer


def _read_weights(path: Path, network: Network) -> dict[str, torch.Tensor]:
    """A network's weights in float32, checked against its shapes."""
    weights = _read_tensors(path)
    expected = {k: tuple(v.shape) for k, v in network.state_dict().items() if k != "kinds"}
    shapes = {k: tuple(v.shape) for k, v in weights.items()}
    for key in sorted(expected.keys() | shapes.keys()):
        if expected.get(key) != shapes.get(key):
            raise ValueError(
                f"{path} does not fit {CONFIG_FILE}: {key} is {shapes.get(key, 'missing')},"
                f" expected {expected.get(key, 'no such tensor')}"
            )
    return {k: v.float() for k, v in weights.items()}


def _read_surrogates(directory: Path, saved: ConfigFile, from_saved: FromSaved[S]) -> dict[str, list[S]]:
    """The surrogates of each space.

    Args:
        directory: directory of the checkpoint.
        saved: its configuration file.
        from_saved: see `load`.
    """
    path = directory / saved.surrogates_file
    if not saved.surrogates:
        return {}
    if not path.is_file():
        spaces = ", ".join(space or "networks without a space" for space in saved.surrogates)
        raise ValueError(f"{path} is missing: {CONFIG_FILE} has surrogates of {spaces}")
    saved.check_hash(path)
    tensors = _read_tensors(path)
    absent = [same for same in saved.equal_tensors.values() if same not in tensors]
    if absent:
        raise ValueError(f"{path} does not fit {CONFIG_FILE}: {absent[0]} missing")
    tensors |= {name: tensors[same] for name, same in saved.equal_tensors.items()}
    surrogates: dict[str, list[S]] = {}
    for space, descriptions in saved.surrogates.items():
        surrogates[space] = []
        for i, description in enumerate(descriptions):
            own = tensors_with_prefix(tensors, f"{space}.{i}.")
            start = f"{path} does not fit {CONFIG_FILE}: surrogates[{space!r}][{i}]"
            try:
                surrogates[space].append(from_saved(own, description))
            except KeyError as error:
                raise ValueError(f"{start} has no {error}") from None
            except (TypeError, AttributeError) as error:
                raise ValueError(f"{start} has a value of a wrong type: {error}") from None
            except ValueError as error:
                raise ValueError(f"{start}: {error}") from None
    return surrogates


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, checked to be finite; only labels, tensors named "values", can have NaN."""
    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated or damaged: {error}") from None
    for key, tensor in tensors.items():
        if tensor.isinf().any() or (tensor.isnan().any() and not key.endswith(".values")):
            raise ValueError(f"{path} is damaged: {key} has values that are not finite numbers")
    return tensors
