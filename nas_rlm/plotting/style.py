"""What all pictures share: colours, axes, and files that are whole and the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_rlm.files import atomic, check_target

# Suffix of a picture, and what its writer notes of the day or the program unless told not to.
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate", ".jpg": ""}
INK, MUTED, FAINT, FRONT = "#1f2430", "#6b7280", "#b8c0cc", "#d1495b"
HUES = ("#1b6ca8", "#2a9d8f", "#8a6fb3", "#e09f3e", "#5c677d")


def check_picture(path: Path) -> None:
    """Refuse, before any work is done, a path at which no picture can be written.

    Raises:
        ValueError: its suffix is none of `FORMATS`, or no file can be there.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{str(path)!r} is no picture: expected {', '.join(FORMATS)}")
    check_target(path)


def save(figure: Figure, path: Path) -> None:
    """Write a picture, whole or not at all."""
    with atomic(path) as temporary:
        metadata = {FORMATS[path.suffix]: None} if FORMATS[path.suffix] else None
        figure.savefig(temporary, dpi=150, metadata=metadata)


def plain(axis: Axes) -> None:
    """A faint grid instead of ticks and a frame."""
    axis.grid(color="#e8ebf0", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=MUTED, length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def band(
    axis: Axes, places: Sequence[float], values: Sequence[tuple[float, float]], hue: str, label: str
) -> None:
    """A line of means, in a band of their deviations.

    Args:
        axis: to draw on.
        places: along x.
        values: at each of them mean and deviation.
        hue: of both.
        label: of the line.
    """
    mean, deviation = np.transpose(values)
    axis.plot(places, mean, color=hue, marker="o", markersize=4, linewidth=1.5, label=label)
    axis.fill_between(places, mean - deviation, mean + deviation, color=hue, alpha=0.15, linewidth=0)
