"""Training of tokenizers from recipes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.data.reference_networks import check_dependencies, export_all
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import is_held_out
from nas_rlm.data.tables import read
from nas_rlm.text import Tokenizer, from_architectures, from_onnx
from nas_rlm.training.recipe import SpaceTexts, TokenizerRecipe
from nas_rlm.utils.progress import progress_bar


def train_tokenizer(recipe: TokenizerRecipe, progress: bool = False) -> Tokenizer:
    """Train a tokenizer from a recipe.

    Args:
        recipe: the recipe.
        progress: show progress bars.
    """
    return Tokenizer.train(training_texts(recipe, progress), recipe.vocab_size, recipe.longest_piece)


def training_texts(recipe: TokenizerRecipe, progress: bool = False) -> list[str]:
    """Return the texts of a recipe, each repeated by its number of copies.

    Args:
        recipe: the recipe.
        progress: show progress bars.
    """
    if recipe.foreign:
        check_dependencies()
    texts = [t for space in recipe.spaces for t in _space_texts(space, recipe, progress)]
    texts += list(_foreign_texts(recipe, progress)) * recipe.foreign_copies
    return texts + [t for path in recipe.tables for t in texts_of_rows(read(Path(path)).rows)]


def _space_texts(space_texts: SpaceTexts, recipe: TokenizerRecipe, progress: bool) -> list[str]:
    """Return the repeated texts of random architectures that are not held out.

    A fraction of a copy has only the first texts.
    """
    space, rng = search_spaces.get(space_texts.name), np.random.default_rng(recipe.seed)
    drawn = [space.sample(rng) for _ in range(space_texts.networks)]
    train = [a for a in drawn if not is_held_out(space.key(a), recipe.held_out)]
    bar = progress_bar(train, space_texts.name, unit="net", delay=2, disable=not progress)
    texts = from_architectures(space, bar)
    num_copies, fraction = divmod(space_texts.copies, 1)
    return texts * int(num_copies) + texts[: int(len(texts) * fraction)]


def _foreign_texts(recipe: TokenizerRecipe, progress: bool) -> Iterator[str]:
    """Yield texts of reference networks, from each exporter."""
    for name in progress_bar(recipe.foreign, "foreign networks", unit="net", delay=2, disable=not progress):
        for _, model in export_all(name):
            yield from_onnx(model)
