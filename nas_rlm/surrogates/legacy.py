"""Surrogates of older checkpoints, whose tensors and description had other names and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_KINDS = {"process": "graph", "words": "ngrams"}
_KEYS = {
    "graph": {"counts": "features", "advisers": "sources", "beside": "network_temperatures"},
    "ngrams": {"usual": "log_size_scaling", "doubts": "residual_stds", "beside": "network_temperatures"},
}
_TENSORS = {
    "graph": {"deviation": "std", "weights": "hyperparameters", "solved": "alpha", "middle": "offset"},
    "ngrams": {"rarity": "idf", "values": "label_quantiles"},
}
NUM_OLD_CALIBRATION = 4  # values of each device of a layer surrogate


def upgrade(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
    """Rename and complete the tensors and keys of a surrogate from an older checkpoint.

    Present names are kept.

    Args:
        tensors: tensors of one surrogate by name.
        description: its description from the checkpoint's configuration.

    Returns:
        Tensors and description with present names.
    """
    if description.get("kind") == "layers":
        return _with_full_calibration(tensors), description
    kind = _KINDS.get(description.get("kind", "process"))  # the oldest checkpoints name no kind
    if kind is None:
        return tensors, description
    defaults: dict[str, Any] = {"sources": [], "network_temperatures": {}} if kind == "graph" else {}
    renamed = {_KEYS[kind].get(key, key): value for key, value in description.items()}
    return {_tensor_name(name, kind): t for name, t in tensors.items()}, {**defaults, **renamed, "kind": kind}


def _with_full_calibration(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors of a layer surrogate with a calibration of known and of unlike networks.

    In older checkpoints known networks have the intervals of others, and unlike networks have no factors.
    """
    calibration = tensors.get("calibration")
    if calibration is None or calibration.dim() != 2 or calibration.shape[1] != NUM_OLD_CALIBRATION:
        return tensors
    added = torch.stack([calibration[:, 2], torch.zeros_like(calibration[:, 0])], 1)
    return {**tensors, "calibration": torch.cat([calibration, added], 1)}


def _tensor_name(name: str, kind: str) -> str:
    """Return the present name of a tensor such as `adviser0.solved` or `values1`."""
    prefix, _, last = name.rpartition(".")
    stem = last.rstrip("0123456789")
    renamed = _TENSORS[kind].get(stem, stem) + last.removeprefix(stem)
    return f"{prefix.replace('adviser', 'source')}.{renamed}" if prefix else renamed
