"""The configuration file of a checkpoint: its content, checks, and hashes of the checkpoint's files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from nas_rlm.files import read_text, write_text
from nas_rlm.model.config import DEFAULT_MAX_LENGTH, Config
from nas_rlm.model.directories import CONFIG_FILE
from nas_rlm.utils.schema import NonNegativeInt, PositiveFloat, message

SURROGATES_FILE = "surrogates.safetensors"  # only in checkpoints with surrogates
LEGACY_SURROGATES_FILE, LEGACY_SURROGATES_KEY = "experts.safetensors", "experts"
LEGACY_CONFIG_NAMES = {"numbers": "max_numbers", "statements": "statement_layers"}
EARLIER_MAX_LENGTH = 2048  # default of earlier versions, which limited nothing but time
HASHES_KEY = "sha256"
NUM_SHOWN_DIGITS = 12  # of a hash in a message


@dataclass(frozen=True)
class TrainedOn:
    """What a network was trained on in one search space.

    Args:
        rows: number of architectures.
        objectives: names of the objectives with labels for them.
        task: what networks of the space are trained for, which a process that has not loaded the space cannot
            know; empty for networks of no registered space.
    """

    rows: NonNegativeInt
    objectives: tuple[str, ...]
    task: str = ""


def _network_config(saved: object) -> object:
    """Return the network's configuration from that of a file; unknown keys are ignored.

    Raises:
        ValueError: a key is missing, or a value is out of range.
    """
    if not isinstance(saved, dict):
        return saved  # for pydantic's error
    renamed = {LEGACY_CONFIG_NAMES.get(key, key): value for key, value in saved.items()}
    arguments: dict[str, Any] = {}
    for entry in fields(Config):
        if entry.name in renamed:
            value = renamed[entry.name]
            arguments[entry.name] = tuple(value) if isinstance(value, list) else value
        elif entry.default is MISSING:
            raise ValueError(f"network.{entry.name} is missing")
    if arguments.get("max_length") == EARLIER_MAX_LENGTH and not arguments.get("encoder"):
        arguments["max_length"] = DEFAULT_MAX_LENGTH
    return Config(**arguments)


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class ConfigFile:
    """The content of a checkpoint's configuration file.

    Args:
        network: hyperparameters of the network.
        tokenizer_sha256: hash of the tokenizer, or of the frozen encoder.
        trained_on: numbers of rows and objectives that the network was trained on, by search space.
        surrogates: descriptions of the surrogates of each space.
        equal_tensors: by the name of a tensor that is not stored, the name of the stored one that is equal.
        temperatures: divisors of the network's logits, by search space and objective.
        maximised: objectives that a search maximises although their kind is not.
        sha256: hashes by file name; that of the configuration file is over its other content. Checkpoints
            of older versions have none.
        surrogates_file: name of the file with the tensors of the surrogates.
    """

    network: Annotated[Config, BeforeValidator(_network_config)]
    tokenizer_sha256: str
    trained_on: dict[str, TrainedOn]
    surrogates: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    equal_tensors: dict[str, str] = field(default_factory=dict)
    temperatures: dict[str, dict[str, PositiveFloat]] = field(default_factory=dict)
    maximised: tuple[str, ...] = ()
    sha256: dict[str, str] = field(default_factory=dict)
    surrogates_file: str = SURROGATES_FILE

    def check_hash(self, path: Path) -> None:
        """Check that a file is the one that was saved with the checkpoint.

        Raises:
            ValueError: it has another hash.
        """
        expected = self.sha256.get(path.name)
        if expected is None:
            return
        found = _file_hash(path)
        if found != expected:
            raise ValueError(
                f"{path} is truncated or damaged, or belongs to another checkpoint: its sha256 is"
                f" {found[:NUM_SHOWN_DIGITS]}…, {CONFIG_FILE} expects {expected[:NUM_SHOWN_DIGITS]}…;"
                " copy the whole checkpoint again, or save the model again"
            )


def read_config(directory: Path) -> ConfigFile:
    """Read and check the configuration file of a checkpoint of this or an older version.

    Raises:
        ValueError: it is no valid configuration, or was changed after the checkpoint was saved.
    """
    path = directory / CONFIG_FILE
    try:
        saved = json.loads(read_text(path, "the configuration of a checkpoint"))
        is_legacy = isinstance(saved, dict) and LEGACY_SURROGATES_KEY in saved
        content = {**saved, "surrogates": saved[LEGACY_SURROGATES_KEY]} if is_legacy else saved
        config = TypeAdapter(ConfigFile).validate_python(content)
        if "surrogates" not in content and (directory / SURROGATES_FILE).is_file():
            raise ValueError(f"surrogates is missing, but there is a file {SURROGATES_FILE}")
    except ValidationError as error:
        raise ValueError(f"{path} is not a file that RLM.save wrote: {message(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a file that RLM.save wrote: {error}") from None
    if config.sha256.get(CONFIG_FILE, _content_hash(saved)) != _content_hash(saved):
        raise ValueError(
            f"{path} was changed after the checkpoint was saved: copy it again, or save the model again"
        )
    return replace(config, surrogates_file=LEGACY_SURROGATES_FILE if is_legacy else SURROGATES_FILE)


def write_config(directory: Path, content: Mapping[str, Any], files: Iterable[str]) -> None:
    """Write the configuration file of a checkpoint, with the hashes of its content and of other files.

    Args:
        directory: directory of the checkpoint.
        content: fields of `ConfigFile` but the hashes.
        files: names of files in the directory that belong to the checkpoint.
    """
    as_read = json.loads(json.dumps(content))
    hashes = {CONFIG_FILE: _content_hash(as_read)} | {name: _file_hash(directory / name) for name in files}
    text = json.dumps({**as_read, HASHES_KEY: hashes}, indent=2)
    write_text(directory / CONFIG_FILE, text + "\n")


def _file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a configuration but its hashes; it does not depend on the layout of the file."""
    others = {key: value for key, value in content.items() if key != HASHES_KEY}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()
