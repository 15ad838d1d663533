"""propose: the architectures to measure next."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import CommaList, Integer, SpaceList, app, check_minimum, checked_search
from nas_rlm.cli.prediction import read_candidates
from nas_rlm.files import check_target, write_text
from search_spaces.wording import counted


@app.command
def propose(
    *,
    space: str,
    objectives: CommaList,
    count: Integer = 10,
    data: Path | None = None,
    constraint: SpaceList = (),
    model: str = "nas",
    candidates: Path | None = None,
    seed: Integer = 0,
    maximise: CommaList = (),
    out: Path | None = None,
) -> None:
    """Select the architectures to train or measure next.

    They are those with the largest expected hypervolume improvement over the measured front; with one
    objective, the largest expected improvement. Surrogates learn from a table of labels. Add measurements to
    the table and propose again. While the table has fewer than ten rows, the architectures are a first
    design: half are those that the model ranks high, and half are random.

    Args:
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own.
        objectives: objectives to optimise.
        count: number of architectures; fewer only where all others have labels.
        data: a Parquet table of labels, see nas-rlm data import. Rows count that have all of the table's
            objectives; the model predicts the other objectives.
        constraint: bounds such as 'latency/pixel3<=20'.
        model: a checkpoint directory, or the name of a shipped model.
        candidates: a text file with one architecture per line, to select from; by default all of the space.
        seed: seed of all random choices.
        maximise: objectives that are maximised although their kind is not, as for search.
        out: a text file, one architecture per line; stdout by default.
    """
    if out:
        check_target(out)
    check_minimum("--count", count, 1)
    search_space = checked_search(
        *(space, objectives, constraint, model, data),
        predicts_all=False,
        seed=seed,
        maximised=maximise,
    )

    from nas_rlm.search.runner import propose_architectures

    names = propose_architectures(
        search_space,
        objectives,
        max_architectures=count,
        labels=data,
        constraints=constraint,
        model=model,
        seed=seed,
        maximise=maximise,
        candidates=read_candidates(search_space, candidates),
    )
    text = "".join(f"{name}\n" for name in names)
    if out:
        write_text(out, text)
        print(f"{counted(len(names), 'architecture')}: {out}")
    else:
        print(text, end="")
