"""Checkpoints: a folder with weights, a tokenizer and a configuration, or the name of a shipped one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nas_rlm import __version__, encoders
from nas_rlm.advice import part_of
from nas_rlm.encoders import Pieces
from nas_rlm.expert import Expert, Knowing
from nas_rlm.files import atomic, write_bytes, write_text
from nas_rlm.lite import TOKENIZER, is_exported
from nas_rlm.model import Config, Network
from nas_rlm.text import Tokenizer
from nas_rlm.words import Words

ASSETS = Path(__file__).parent / "assets"
FILES = ("config.json", "model.safetensors")
EXPERTS = "experts.safetensors"  # where there are any
EXPERT_KINDS: dict[str, type[Expert] | type[Words]] = {"process": Expert, "words": Words}
Reading = Tokenizer | Pieces
Temperatures = Mapping[str, Mapping[str, float]]  # of each space and objective


@dataclass(frozen=True)
class Seen:
    """What a model's weights saw of a search space: so many rows, and these of their numbers."""

    rows: int
    objectives: tuple[str, ...]


def load(
    name: str | os.PathLike[str],
) -> tuple[Network, Reading, dict[str, Seen], dict[str, dict[str, float]], dict[str, list[Knowing]]]:
    """What a checkpoint holds: the network, its tokenizer, what it saw of each space, temperatures, experts.

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
    experts = _read_experts(directory / EXPERTS, saved.get("experts", {}))
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
    return network.eval(), tokenizer, trained_on, temperatures, experts


def save(
    directory: str | os.PathLike[str],
    network: Network,
    tokenizer: Reading,
    trained_on: Mapping[str, Seen],
    temperatures: Temperatures,
    experts: Mapping[str, Sequence[Knowing]],
) -> None:
    """Write a checkpoint: half-precision weights, tokenizer, experts and, last, the configuration."""
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
        "trained_on": {space: asdict(seen) for space, seen in trained_on.items()},
        "temperatures": temperatures,
        "experts": {
            space: [{"kind": _kind(one), **one.described()} for one in known]
            for space, known in experts.items()
        },
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


def _kind(expert: Knowing) -> str:
    return next(name for name, kind in EXPERT_KINDS.items() if isinstance(expert, kind))


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


def _read_experts(path: Path, described: Any) -> dict[str, list[Knowing]]:
    if not described:
        return {}
    if not path.is_file():
        raise ValueError(f"{path} is missing: config.json names experts of {', '.join(described)}")
    tensors = _read_tensors(path)
    found: dict[str, list[Knowing]] = {}
    try:
        for space, known in described.items():
            for i, one in enumerate(known):
                own, kind = part_of(tensors, f"{space}.{i}."), EXPERT_KINDS[one.get("kind", "process")]
                found.setdefault(space, []).append(kind.restored(own, one))
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
