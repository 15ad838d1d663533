"""plot: the picture of a search."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import SpaceList, app


@app.command
def plot(directory: Path, *, pair: SpaceList = (), data: Path | None = None, out: Path | None = None) -> None:
    """Draw the picture of a search again, finished or not.

    Args:
        directory: the run directory.
        pair: x and y objective of a panel, such as latency/pixel3,latency/eyeriss; by default each other
            objective against the first.
        data: a table, whose measured values are drawn as well.
        out: the picture; pareto.png in the run directory by default.
    """
    from nas_rlm.plotting.style import check_picture_path
    from nas_rlm.search_run import SearchRun
    from nas_rlm.study.settings import is_study

    pairs = []
    for text in pair:
        x, *others = text.split(",")
        if len(others) != 1:
            raise ValueError(f"--pair is {text!r}, expected two objectives such as latency/pixel3,accuracy")
        pairs.append((x, others[0]))
    target = out or directory / "pareto.png"
    check_picture_path(target)
    if is_study(directory):
        if data:
            raise ValueError("--data is for searches by predictions: the trials of a study are measured")
        from nas_rlm.study.view import StudyView  # imports torch

        StudyView.load(directory).plot(target, pairs)
    else:
        SearchRun.load(directory).plot(target, pairs, data)
    print(f"picture: {target}")
