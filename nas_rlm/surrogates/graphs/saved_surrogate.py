"""The saved form of a graph surrogate: tensors of the Gaussian processes of all objectives, and checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nas_rlm.surrogates.graphs.transfer import check_gaussian_process_tensors


def stacked(by_objective: Mapping[str, Tensor], objectives: Sequence[str]) -> Tensor:
    """Return the tensors of the Gaussian processes of K objectives as one: [K, V, D], or [K, D] if V is 1.

    Args:
        by_objective: tensors of the V Gaussian processes of each objective, [V, D].
        objectives: names of the K objectives, in the order of the first dimension.
    """
    tensor = torch.stack([by_objective[name] for name in objectives])
    return tensor[:, 0] if tensor.shape[1] == 1 else tensor


def unstacked(tensor: Tensor, objectives: Sequence[str]) -> dict[str, Tensor]:
    """Return the tensor of each of K objectives, float64 [V, D], from `stacked` ones, [K, V, D] or [K, D]."""
    with_processes = tensor if tensor.ndim == 3 else tensor[:, None]
    return dict(zip(objectives, with_processes.double(), strict=True))


def num_processes(tensors: Mapping[str, Tensor]) -> int:
    """Return the number V of Gaussian processes of an objective in saved tensors."""
    hyperparameters = tensors["hyperparameters"]
    return hyperparameters.shape[1] if hyperparameters.ndim == 3 else 1


def check_saved(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Check what was saved of a graph surrogate.

    Args:
        tensors: its tensors by name.
        description: its description.

    Raises:
        ValueError: tensors and description do not fit each other, or a value is out of range.
    """
    names, objectives = description["features"], description["objectives"]
    if not all(isinstance(name, str) for name in (*names, *objectives)):
        raise ValueError(f"features {names} and objectives {objectives} are not all names")
    if len(set(objectives)) < len(objectives):
        raise ValueError(f"objectives {objectives} are not distinct names")
    m, d, k = len(tensors.get("features", ())), len(names) + len(description["sources"]), len(objectives)
    shape = tensors.get("hyperparameters", torch.empty(0)).shape
    processes = shape[1:2] if len(shape) == 3 else ()
    shapes = {
        "mean": (len(names),),
        "std": (len(names),),
        "features": (m, d),
        "values": (m, k),
        "hyperparameters": (k, *processes, d + 1),
        "alpha": (k, *processes, m),
    }
    check_gaussian_process_tensors(tensors, shapes)
    if not tensors["values"].isfinite().any(0).all():
        raise ValueError("an objective has no values")
    temperatures = (*description["temperatures"].values(), *description["network_temperatures"].values())
    if not all(0 < t < math.inf for t in temperatures):
        raise ValueError("a temperature is not above 0")
    weight = description.get("distance_weight", 0.0)  # absent from older checkpoints
    if weight not in (0, 0.5, 1):
        raise ValueError(f"distance_weight is {weight!r}: expected 0, 0.5 or 1")
