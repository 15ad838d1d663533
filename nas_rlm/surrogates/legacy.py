"""Surrogates of older checkpoints, whose tensors and description had other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def upgrade(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
    """Rename the tensors and keys of a surrogate from an older checkpoint; present names are kept.

    Args:
        tensors: tensors of one surrogate by name.
        description: its description from the checkpoint's configuration.

    Returns:
        Tensors and description with present names.
    """
    kind = _KINDS.get(description.get("kind", "process"))  # the oldest checkpoints name no kind
    if kind is None:
        return tensors, description
    defaults: dict[str, Any] = {"sources": [], "network_temperatures": {}} if kind == "graph" else {}
    renamed = {_KEYS[kind].get(key, key): value for key, value in description.items()}
    return {_tensor_name(name, kind): t for name, t in tensors.items()}, {**defaults, **renamed, "kind": kind}


def _tensor_name(name: str, kind: str) -> str:
    """Return the present name of a tensor such as `adviser0.solved` or `values1`."""
    prefix, _, last = name.rpartition(".")
    stem = last.rstrip("0123456789")
    renamed = _TENSORS[kind].get(stem, stem) + last.removeprefix(stem)
    return f"{prefix.replace('adviser', 'source')}.{renamed}" if prefix else renamed
