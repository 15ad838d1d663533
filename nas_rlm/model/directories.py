"""Directories of models, without torch: where a model is, and which objectives its configuration names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nas_rlm.files import ASSETS

CONFIG_FILE = "config.json"


def model_directory(name: str | os.PathLike[str]) -> Path:
    """Return the directory of a checkpoint, or of the shipped model with that name.

    Raises:
        FileNotFoundError: there is none.
    """
    shipped = sorted(p.name for p in ASSETS.iterdir() if p.is_dir()) if ASSETS.is_dir() else []
    if str(name) in shipped:
        return ASSETS / str(name)
    if Path(name).is_dir():
        return Path(name)
    raise FileNotFoundError(
        f"no checkpoint at {str(name)!r}: expected a directory or one of: {', '.join(shipped)}"
    )


def saved_objectives(name: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the objectives of a model from its configuration alone.

    Examples:
        >>> "latency/pixel3" in saved_objectives("nas")
        True

    Args:
        name: a checkpoint directory, an exported model, or the name of a shipped model.

    Returns:
        The objectives; none where the configuration cannot be read, which loading the model reports.

    Raises:
        FileNotFoundError: there is no such directory or shipped model.
    """
    objectives = _saved_network(name).get("objectives")
    return tuple(map(str, objectives)) if isinstance(objectives, list) else ()


def reads_any_text(name: str | os.PathLike[str]) -> bool:
    """Return whether a model was fitted to texts, from its configuration alone.

    Args:
        name: see `saved_objectives`.

    Raises:
        FileNotFoundError: there is no such directory or shipped model.
    """
    return _saved_network(name).get("reads_any_text") is True


def _saved_network(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of a model's network; an empty one where it cannot be read."""
    path = model_directory(name) / CONFIG_FILE
    try:
        saved = json.loads(path.read_text())
        network = saved.get("network", saved)
    except (ValueError, AttributeError, OSError):
        return {}
    return network if isinstance(network, dict) else {}
