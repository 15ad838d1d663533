"""A small surrogate to save, and changes of the configuration file of a checkpoint."""

import json
from pathlib import Path

import torch


def read(directory: Path) -> dict:
    """Return the content of the configuration file without its hashes, as older versions wrote it."""
    content = json.loads((directory / "config.json").read_text())
    content.pop("sha256", None)
    return content


def write(directory: Path, content: object) -> None:
    """Write the configuration file."""
    (directory / "config.json").write_text(json.dumps(content))


class Constant:
    """A surrogate with one tensor."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    @classmethod
    def from_saved(cls, tensors: dict, description: dict) -> "Constant":
        """Make a surrogate from its `tensors` and its `description`."""
        if description["kind"] != "constant":
            raise ValueError(f"kind is {description['kind']!r}")
        return cls(tensors["value"])

    def tensors(self) -> dict:
        """Return the tensors to save, by name."""
        return {"value": self.value}

    def description(self) -> dict:
        """Return the part of the surrogate that is saved as JSON."""
        return {"kind": "constant"}
