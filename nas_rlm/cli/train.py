"""train: a model from a recipe."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import Flag, app


@app.command
def train(recipe: str, *, out: Path, table: str = "", resume: Flag = False) -> None:
    """Train a model from a recipe.

    Args:
        recipe: a YAML file, or the name of a shipped recipe, such as nas.
        out: directory of the checkpoint and the log.
        table: train only on this one of the recipe's tables, such as fbnet.
        resume: continue the training in the directory.
    """
    from nas_rlm.training.trainer import run

    run(recipe, out, resume, table)
    print(f"model: {out}")
