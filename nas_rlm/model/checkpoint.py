"""Checkpoints: a folder with weights, a tokenizer and a configuration, or the name of a shipped one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nas_rlm._version import __version__
from nas_rlm.files import ASSETS, atomic, write_bytes, write_text
from nas_rlm.model import encoders
from nas_rlm.model.encoders import Pieces
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_runtime import TOKENIZER, is_exported
from nas_rlm.text import Tokenizer

FILES = ("config.json", "model.safetensors")
EXPERTS = "experts.safetensors"  # where there are any
Reading = Tokenizer | Pieces
Temperatures = Mapping[str, Mapping[str, float]]  # of each space and objective


class Surrogate(Protocol):
    """A surrogate as it is saved."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Its tensors by name."""

    def described(self) -> dict[str, Any]:
        """Its kind, its names, and all else that JSON holds."""


S = TypeVar("S", bound=Surrogate)


@dataclass(frozen=True)
class Seen:
    """What a model's weights saw of a search space: so many rows, and these of their numbers."""

    rows: int
    objectives: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint(Generic[S]):
    """What a checkpoint holds."""

    network: Network
    tokenizer: Reading
    trained_on: Mapping[str, Seen]
    temperatures: Temperatures
    surrogates: Mapping[str, Sequence[S]]


def load(
    name: str | os.PathLike[str],
    restored: Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], S],
) -> Checkpoint[S]:
    """Read a checkpoint.

    Args:
        name: a directory, or the name of a shipped model.
        restored: makes a surrogate of its tensors and description.

    Raises:
        FileNotFoundError: no such directory or shipped model.
        ValueError: a file of it is missing, damaged or belongs to another checkpoint.
    """
    directory = _directory(name)
    if is_exported(directory):
        raise ValueError(f"{directory} is an exported model, which predict and rank alone read")
    missing = [f for f in FILES if not (directory / f).is_file()]
    if missing:
        raise ValueError(
            f"{directory} is no checkpoint: {', '.join(missing)} missing (expected {', '.join(FILES)})"
        )
    path = directory / "config.json"
    try:
        saved = json.loads(path.read_text())
        known = {f.name for f in fields(Config)}
        config = Config(**{k: _tuple(v) for k, v in saved["network"].items() if k in known})
        wanted = str(saved["tokenizer_sha256"])
        trained_on = {
            space: Seen(int(seen["rows"]), tuple(seen["objectives"]))
            for space, seen in saved["trained_on"].items()
        }
        temperatures = {
            space: {name: float(t) for name, t in known.items()}
            for space, known in saved.get("temperatures", {}).items()
        }
        if not all(0 < t < math.inf for known in temperatures.values() for t in known.values()):
            raise ValueError("a temperature is not above 0")
    except KeyError as error:
        raise ValueError(f"{path} has no {error}: expected what RLM.save writes") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what RLM.save writes: {error}") from None
    experts = _read_surrogates(directory / EXPERTS, saved.get("experts", {}), restored)
    tokenizer = _reading(config, directory / TOKENIZER)
    if tokenizer.sha256 != wanted:
        where, what = (config.encoder, "encoder") if config.encoder else (directory / TOKENIZER, "tokenizer")
        raise ValueError(
            f"{where} is not this checkpoint's {what}: its sha256 is"
            f" {tokenizer.sha256[:12]}…, config.json expects {wanted[:12]}…"
        )
    network = Network(config, tokenizer.kinds())
    weights = _read_weights(directory / "model.safetensors", network)
    network.load_state_dict({**weights, "kinds": network.kinds})
    return Checkpoint(network.eval(), tokenizer, trained_on, temperatures, experts)


def save(directory: str | os.PathLike[str], checkpoint: Checkpoint[S]) -> None:
    """Write a checkpoint: half-precision weights, tokenizer, surrogates and, last, the configuration."""
    network, tokenizer, experts = checkpoint.network, checkpoint.tokenizer, checkpoint.surrogates
    target = Path(directory)
    weights = {k: v.half().contiguous() for k, v in network.state_dict().items() if k != "kinds"}
    with atomic(target / "model.safetensors") as temporary:
        save_file(weights, temporary)
    if isinstance(tokenizer, Tokenizer):
        write_bytes(target / TOKENIZER, tokenizer.proto)
    if experts:
        tensors = {
            f"{space}.{i}.{name}": tensor.contiguous()
            for space, known in experts.items()
            for i, one in enumerate(known)
            for name, tensor in one.tensors().items()
        }
        with atomic(target / EXPERTS) as temporary:
            save_file(tensors, temporary)
    config = {
        "package": f"nas-rlm {__version__}",
        "network": asdict(network.config),
        "tokenizer_sha256": tokenizer.sha256,
        "trained_on": {space: asdict(seen) for space, seen in checkpoint.trained_on.items()},
        "temperatures": checkpoint.temperatures,
        "experts": {space: [one.described() for one in known] for space, known in experts.items()},
    }
    write_text(target / "config.json", json.dumps(config, indent=2) + "\n")
    if not experts:
        (target / EXPERTS).unlink(missing_ok=True)


def _reading(config: Config, path: Path) -> Reading:
    """The tokenizer of a frozen encoder, or the one in a file."""
    if not config.encoder:
        if not path.is_file():
            raise ValueError(f"{path.parent} is no checkpoint: {path.name} missing")
        return Tokenizer.load(path)
    encoder = encoders.load(config.encoder)
    if (config.encoder_width, config.max_length) != (encoder.width, encoder.max_length):
        raise ValueError(
            f"{config.encoder} reads {encoder.max_length} tokens into states of {encoder.width}, config.json"
            f" expects {config.max_length} and {config.encoder_width}"
        )
    return encoder.pieces


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _directory(name: str | os.PathLike[str]) -> Path:
    shipped = sorted(p.name for p in ASSETS.iterdir() if p.is_dir()) if ASSETS.is_dir() else []
    if str(name) in shipped:
        return ASSETS / str(name)
    if Path(name).is_dir():
        return Path(name)
    raise FileNotFoundError(
        f"no checkpoint at {str(name)!r}: expected a directory or one of: {', '.join(shipped)}"
    )


def _read_weights(path: Path, network: Network) -> dict[str, torch.Tensor]:
    weights = _read_tensors(path)
    expected = {k: tuple(v.shape) for k, v in network.state_dict().items() if k != "kinds"}
    found = {k: tuple(v.shape) for k, v in weights.items()}
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            raise ValueError(
                f"{path} does not fit config.json: {key} is {found.get(key, 'missing')},"
                f" expected {expected.get(key, 'no such tensor')}"
            )
    return {k: v.float() for k, v in weights.items()}


def _read_surrogates(
    path: Path,
    described: Any,
    restored: Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], S],
) -> dict[str, list[S]]:
    if not described:
        return {}
    if not path.is_file():
        raise ValueError(f"{path} is missing: config.json names experts of {', '.join(described)}")
    tensors = _read_tensors(path)
    found: dict[str, list[S]] = {}
    try:
        for space, known in described.items():
            for i, one in enumerate(known):
                own = part_of(tensors, f"{space}.{i}.")
                found.setdefault(space, []).append(restored(own, one))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not fit config.json: {error}") from None
    return found


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated or damaged: {error}") from None
    for key, tensor in tensors.items():
        if tensor.isinf().any() or (tensor.isnan().any() and not key.endswith(".values")):
            raise ValueError(f"{path} is damaged: {key} holds values that are not finite numbers")
    return tensors


def mean_temperatures(temperatures: Temperatures, space: str, objectives: Sequence[str]) -> list[float]:
    """The temperature of each objective in a space: the space's own, else the mean over spaces, or 1."""
    own = temperatures.get(space, {})
    found = []
    for name in objectives:
        known = [own[name]] if name in own else [t[name] for t in temperatures.values() if name in t]
        found.append(float(np.exp(np.mean(np.log(known)))) if known else 1.0)
    return found


def check_shapes(tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors of which one is missing, has another shape or no numbers with fractions.

    Raises:
        ValueError: one is or has.
    """
    missing = shapes.keys() - tensors.keys()
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} missing")
    for name, shape in shapes.items():
        if not tensors[name].is_floating_point():
            raise ValueError(f"{name} is {tensors[name].dtype}, expected floating point")
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"{name} is {tuple(tensors[name].shape)}, expected {shape}")


def part_of(tensors: Mapping[str, torch.Tensor], start: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
