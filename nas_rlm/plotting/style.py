"""Shared style of all figures: colours, axes, and reproducible picture files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_rlm.files import atomic_write, check_target

# By suffix, the metadata that its writer must omit so that equal figures give equal files.
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate", ".jpg": ""}
DPI = 150  # of a picture, in dots per inch
INK, MUTED, FAINT, FRONT = "#1f2430", "#6b7280", "#b8c0cc", "#d1495b"
HUES = ("#1b6ca8", "#2a9d8f", "#8a6fb3", "#e09f3e", "#5c677d")


def check_picture_path(path: Path) -> None:
    """Refuse a path at which no picture can be written, before any work is done.

    Raises:
        ValueError: the suffix is not in `FORMATS`, or no file can be written there.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{str(path)!r} is not a picture: expected {', '.join(FORMATS)}")
    check_target(path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, without time stamps.

    Args:
        figure: the figure.
        path: the picture, with a suffix of `FORMATS`.
    """
    with atomic_write(path) as temporary:
        metadata = {FORMATS[path.suffix]: None} if FORMATS[path.suffix] else None
        figure.savefig(temporary, dpi=DPI, metadata=metadata)


def style_axis(axis: Axes) -> None:
    """Give an axis a faint grid instead of ticks and a frame."""
    axis.grid(color="#e8ebf0", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=MUTED, length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def plot_mean_band(
    axis: Axes, xs: Sequence[float], values: Sequence[tuple[float, float]], hue: str, label: str
) -> None:
    """Plot a line of means in a band of one standard deviation.

    Args:
        axis: the axis to draw on.
        xs: N x coordinates.
        values: mean and standard deviation at each of them.
        hue: colour of line and band.
        label: label of the line.
    """
    mean, deviation = np.transpose(values)
    axis.plot(xs, mean, color=hue, marker="o", markersize=4, linewidth=1.5, label=label)
    axis.fill_between(xs, mean - deviation, mean + deviation, color=hue, alpha=0.15, linewidth=0)
