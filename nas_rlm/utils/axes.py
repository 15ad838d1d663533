"""Axes of figures and of the report page: labels, and limits without outliers."""

from __future__ import annotations

import numpy as np

UNITS = {"accuracy": "%", "latency": "ms", "memory": "bytes", "flops": "MACs", "params": ""}


def axis_label(objective: str) -> str:
    """Return the label of an objective's axis, with its unit.

    Examples:
        >>> axis_label("latency/pixel3"), axis_label("flops")
        ('latency on pixel3 (ms)', 'flops (MACs)')
    """
    kind, _, qualifier = objective.partition("/")
    unit = UNITS.get(kind, "")
    name = f"{kind} on {qualifier}" if qualifier else kind
    return f"{name} ({unit})" if unit else name


def outlier_threshold(costs: np.ndarray) -> float:
    """Return the value above which costs are outliers: the upper quartile plus 1.5 interquartile ranges."""
    lower, upper = np.quantile(costs, [0.25, 0.75])
    return float(upper + 1.5 * (upper - lower))


def padded_limits(low: float, high: float, margin: float = 0.05) -> tuple[float, float]:
    """Return axis limits with a margin on both sides.

    Args:
        low: smallest value.
        high: largest value.
        margin: margin as a fraction of `high - low`, or of `high` if both are equal.
    """
    padding = margin * (high - low) or margin * abs(high) or 1.0
    return low - padding, high + padding
