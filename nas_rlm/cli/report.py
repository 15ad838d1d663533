"""report: the results of a search, written again."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import app


@app.command
def report(directory: Path) -> None:
    """Write the results of a search again, from its log.

    These are front.csv, front/, the pictures and report.html.

    Args:
        directory: the run directory, of a search that is finished or not.
    """
    from nas_rlm.study import Study

    study = Study.load(directory)
    study.report()
    print(f"{len(study.front)} on the front: {directory / 'front.csv'}; report: {directory / 'report.html'}")
