"""report: the results of a search, written again."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import app


@app.command
def report(directory: Path) -> None:
    """Write the results of a search again, from its log.

    These are front.csv, front/, the pictures and report.html.

    Args:
        directory: the run directory, of a search that is finished or not, with or without --train.
    """
    from nas_rlm.search_run import SearchRun
    from nas_rlm.study.settings import is_study
    from nas_rlm.study.view import StudyView

    run = StudyView.load(directory) if is_study(directory) else SearchRun.load(directory)
    run.report()
    print(f"{len(run.front)} on the front: {directory / 'front.csv'}; report: {directory / 'report.html'}")
