"""propose: the architectures to measure next."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import CommaList, Integer, SpaceList, app, check_minimum, checked_search
from nas_rlm.files import check_target, write_text


@app.command
def propose(
    *,
    space: str,
    objectives: CommaList,
    count: Integer = 10,
    data: Path | None = None,
    constraint: SpaceList = (),
    model: str = "nas",
    population: Integer = 50,
    generations: Integer = 20,
    seed: Integer = 0,
    maximise: CommaList = (),
    out: Path | None = None,
) -> None:
    """Select the architectures to train or measure next.

    They are those that may add most to the front. Surrogates learn from a table of labels. Add measurements
    to the table and propose again. While the table has fewer than ten rows, a diverse initial design is
    proposed.

    Args:
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own.
        objectives: objectives to optimise.
        count: number of architectures, fewer where no others may add anything.
        data: a table of labels. Rows count that have all of the table's objectives; the model predicts the
            other objectives.
        constraint: bounds such as 'latency/pixel3<=20'.
        model: a checkpoint directory, or the name of a shipped model.
        population: architectures per generation of the search for candidates.
        generations: number of its generations.
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
        population=population,
        generations=generations,
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
        population=population,
        generations=generations,
        seed=seed,
        maximise=maximise,
        progress=True,
    )
    text = "".join(f"{name}\n" for name in names)
    if out:
        write_text(out, text)
        print(f"{len(names)} architectures: {out}")
    else:
        print(text, end="")
