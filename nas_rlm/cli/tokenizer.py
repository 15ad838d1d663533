"""tokenizer train: a tokenizer from a recipe."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from nas_rlm.cli.app import app
from nas_rlm.files import check_target
from search_spaces.wording import counted

tokenizer = app.command(App(name="tokenizer", help="Train a tokenizer."))


@tokenizer.command
def train(recipe: Path, *, out: Path) -> None:
    """Train a tokenizer.

    Args:
        recipe: a YAML file with spaces, tables and exported networks whose texts are read, or the name of a
            shipped recipe.
        out: file of the tokenizer, such as tokenizer.model.
    """
    from nas_rlm.training.recipe import read_tokenizer_recipe
    from nas_rlm.training.tokenizer import train_tokenizer

    check_target(out)
    trained = train_tokenizer(read_tokenizer_recipe(recipe), progress=True)
    trained.save(out)
    print(f"{counted(trained.vocab_size, 'piece')}: {out}")
