"""train, finetune, evaluate, tokenizer train: models and how good they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from nas_rlm.cli.app import Flag, Names, Whole, app, load
from nas_rlm.files import check_new_directory, check_target

if TYPE_CHECKING:
    from nas_rlm.data import Table

tokenizer = app.command(App(name="tokenizer", help="Tokenizers."))


@app.command
def train(recipe: str, *, out: Path, table: str = "", resume: Flag = False) -> None:
    """Train a model from a recipe.

    Args:
        recipe: a YAML file, or the name of a shipped recipe.
        out: a folder for the checkpoint and the log.
        table: train on this one of the recipe's tables alone, such as fbnet.
        resume: continue the run in the folder.
    """
    from nas_rlm.training.trainer import run

    run(recipe, out, resume, table)
    print(f"model: {out}")


@app.command
def finetune(
    *,
    data: Path,
    out: Path,
    objectives: Names = (),
    new_objective: str = "",
    model: str = "nas",
    learn: str = "all",
    seed: Whole = 0,
    no_surrogates: Flag = False,
) -> None:
    """Continue training a model on a table; objectives it did not know become tokens of their own.

    A fifth of the architectures is held out at first, to choose how long the training on all of them takes.

    Args:
        data: a parquet table in the public schema.
        out: a new folder for the checkpoint.
        objectives: which of its numbers to learn; these, or a new one, are needed.
        new_objective: learn this one, such as latency/mybox, and let what the model says of all others be.
            Where the table has a single latency, that is what it stands for.
        model: a checkpoint folder, or the name of a shipped model.
        learn: the part of the network that learns: all, decoder, or token, the objectives' own alone.
        seed: of what is held out, and of the batches.
        no_surrogates: use the network only, without surrogates on graph features or n-grams.
    """
    from nas_rlm.data import read

    if objectives and new_objective:
        raise ValueError(
            f"--objectives {','.join(objectives)} and --new-objective {new_objective}: expected one of them"
        )
    check_new_directory(out)
    table = _called(read(data), new_objective)
    if not objectives and not new_objective:
        raise ValueError(
            f"nothing to learn: expected --objectives, or --new-objective for a device alone, of what {data}"
            f" has: {', '.join(table.objectives)}"
        )
    rlm = load(model)
    if new_objective in rlm.objectives:
        raise ValueError(
            f"{model} knows {new_objective!r} already: --objectives {new_objective} learns it anew"
        )
    names = objectives or (new_objective,)
    part = "token" if new_objective else learn
    rlm.fine_tune(table.rows, names, seed=seed, surrogates=not no_surrogates, learn=part).save(out)
    print(f"model: {out}")


def _called(table: Table, new_objective: str) -> Table:
    """A table whose only number of a new objective's kind, if it has another name, has that one."""
    same = [name for name in table.objectives if name.split("/")[0] == new_objective.split("/")[0]]
    if "/" not in new_objective or new_objective in same or len(same) != 1:
        return table
    from nas_rlm.data import Table

    print(f"{same[0]} is learnt as {new_objective}")
    renamed = [
        replace(row, targets={new_objective if k == same[0] else k: v for k, v in row.targets.items()})
        for row in table.rows
    ]
    return Table(table.name, renamed)


@app.command
def evaluate(
    *,
    model: str = "nas",
    data: Path | None = None,
    objectives: Names = (),
    samples: Whole = 64,
    validation: Flag = False,
    no_surrogates: Flag = False,
    picture: Path | None = None,
) -> None:
    """Hold a model's predictions against measurements, beside the FLOPs and parameters baselines.

    Args:
        model: a checkpoint folder, or the name of a shipped model.
        data: a parquet table; by default the held-out rows of the shipped model's tables, of those spaces
            that the model has seen.
        objectives: what to judge; by default every one that model and table share.
        samples: hold the median of so many samples beside the model's median; 0, which is quick, for none.
        validation: without --data, the rows that told the model's temperatures instead of the test rows.
        no_surrogates: evaluate the network without surrogates.
        picture: draw measured against predicted values, over all orders of magnitude.
    """
    from nas_rlm.benchmarks import evaluation as evaluation
    from nas_rlm.plotting.probability import draw_probability_plot
    from nas_rlm.plotting.style import check_picture_path, save_figure

    if picture:
        check_picture_path(picture)
    rlm = load(model)
    rlm.surrogates = {} if no_surrogates else rlm.surrogates
    found = evaluation.judge(rlm, data, objectives, samples, validation)
    print(evaluation.show(found))
    if picture:
        save_figure(draw_probability_plot({f"{f.table}: {f.objective}": f.points for f in found if not f.uid}), picture)
        print(f"picture: {picture}")


@tokenizer.command(name="train")
def train_tokenizer(recipe: Path, *, out: Path) -> None:
    """Train a tokenizer.

    Args:
        recipe: a YAML file with spaces, tables and foreign networks to learn from, or a shipped one by name.
        out: the tokenizer's file.
    """
    from nas_rlm.training.recipe import read_tokenizer_recipe
    from nas_rlm.training.tokenizer import train_tokenizer

    check_target(out)
    trained = train_tokenizer(read_tokenizer_recipe(recipe), progress=True)
    trained.save(out)
    print(f"{trained.vocab_size:,} pieces: {out}")
