"""retrain: a trial of a study, evaluated again."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import Integer, app


@app.command
def retrain(directory: Path, *, trial: Integer, train: str = "", out: Path | None = None) -> None:
    """Train the network of a trial again.

    The training function gets the same architecture and seed. Its values are printed beside those of the
    trial; the study stays as it is.

    Args:
        directory: the run directory of search --train.
        trial: number of the trial, such as in front.csv.
        train: the training function, FILE.py:FUNCTION or MODULE:FUNCTION; by default that of the trial.
        out: a new directory for weights and other files; by default retrained/NUMBER in the run directory.
    """
    from nas_rlm.study.study import Study

    study = Study.load(directory)
    outcome, target = study.retrain(trial, train, out)
    if outcome.error:
        raise ValueError(f"the training failed: {outcome.error}; {target / 'error.txt'} has the traceback")
    before = study.trials[trial].values
    for name, value in outcome.values.items():
        earlier = f", {before[name]:.6g} before" if name in before else ""
        print(f"{name} {value:.6g}{earlier}")
    print(f"{outcome.cost:.1f} s; files: {target}")
