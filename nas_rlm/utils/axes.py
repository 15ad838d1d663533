"""Axes of figures and of the report page: labels, and limits that leave outliers out."""

from __future__ import annotations

import numpy as np

UNITS = {"accuracy": "%", "latency": "ms", "memory": "bytes", "flops": "MACs", "params": ""}


def label(objective: str) -> str:
    """An objective as an axis label.

    >>> label("latency/pixel3"), label("flops")
    ('latency on pixel3 (ms)', 'flops (MACs)')
    """
    kind, _, which = objective.partition("/")
    unit = UNITS.get(kind, "")
    name = f"{kind} on {which}" if which else kind
    return f"{name} ({unit})" if unit else name


def fence(costs: np.ndarray) -> float:
    """Where outliers begin among costs: one and a half interquartile ranges above the upper quartile."""
    lower, upper = np.quantile(costs, [0.25, 0.75])
    return float(upper + 1.5 * (upper - lower))


def padded(low: float, high: float, share: float = 0.05) -> tuple[float, float]:
    """Limits with a margin: a share of their difference, or of what they are."""
    margin = share * (high - low) or share * abs(high) or 1.0
    return low - margin, high + margin
