"""The texts that a tokenizer learns from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

import search_spaces
from nas_rlm.data.reference_networks import check_installed, exports
from nas_rlm.data.tables import is_held_out, read, texts
from nas_rlm.text import Tokenizer, from_architectures, from_onnx
from nas_rlm.training.recipe import SpaceTexts, TokenizerRecipe


def train_tokenizer(recipe: TokenizerRecipe, progress: bool = False) -> Tokenizer:
    """A tokenizer, trained as a recipe says.

    Args:
        recipe: of the tokenizer.
        progress: show bars.
    """
    return Tokenizer.train(mixture(recipe, progress), recipe.vocab_size, recipe.longest_piece)


def mixture(recipe: TokenizerRecipe, progress: bool = False) -> list[str]:
    """The texts of a recipe, each as often as it counts.

    Args:
        recipe: of a tokenizer.
        progress: show bars.
    """
    if recipe.foreign:
        check_installed()
    found = [t for space in recipe.spaces for t in _of_space(space, recipe, progress)]
    found += list(_of_foreign(recipe, progress)) * recipe.foreign_copies
    return found + [t for path in recipe.tables for t in texts(read(Path(path)).rows)]


def _of_space(wanted: SpaceTexts, recipe: TokenizerRecipe, progress: bool) -> list[str]:
    space, rng = search_spaces.get(wanted.name), np.random.default_rng(recipe.seed)
    drawn = [space.sample(rng) for _ in range(wanted.networks)]
    kept = [a for a in drawn if not is_held_out(space.key(a), recipe.held_out)]
    made = from_architectures(space, tqdm(kept, wanted.name, unit="net", delay=2, disable=not progress))
    whole, rest = divmod(wanted.copies, 1)
    return made * int(whole) + made[: int(len(made) * rest)]


def _of_foreign(recipe: TokenizerRecipe, progress: bool) -> Iterator[str]:
    for name in tqdm(recipe.foreign, "foreign networks", unit="net", delay=2, disable=not progress):
        for _, model in exports(name):
            yield from_onnx(model)
