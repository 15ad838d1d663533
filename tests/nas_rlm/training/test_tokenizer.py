import numpy as np
import pytest

import search_spaces
from nas_rlm.data.splits import is_held_out
from nas_rlm.text import from_architecture
from nas_rlm.training.recipe import SpaceTexts, TokenizerRecipe
from nas_rlm.training.tokenizer import train_tokenizer, training_texts

SPACE = search_spaces.get("nats_size")


def test_texts_are_repeated_by_their_number_of_copies():
    space = SpaceTexts("nats_size", networks=20, copies=2.5)
    texts = training_texts(TokenizerRecipe(spaces=(space,), held_out=0.0, seed=3))
    rng = np.random.default_rng(3)
    made = [from_architecture(SPACE, SPACE.sample(rng)) for _ in range(20)]
    assert texts == made * 2 + made[:10]


def test_held_out_architectures_are_left_out():
    recipe = TokenizerRecipe(spaces=(SpaceTexts("nats_size", 60),), held_out=0.3)
    texts, rng = training_texts(recipe), np.random.default_rng(0)
    drawn = [SPACE.sample(rng) for _ in range(60)]
    kept = [a for a in drawn if not is_held_out(SPACE.key(a), 0.3)]
    assert texts == [from_architecture(SPACE, a) for a in kept]
    assert 20 < len(kept) < 60


def test_foreign_networks_are_exported_by_both_exporters():
    for needed in ("transformers", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    texts = training_texts(TokenizerRecipe(foreign=("resnet18",), foreign_copies=2))
    assert len(texts) == 4
    assert len(set(texts)) == 2


def test_the_same_recipe_gives_the_same_tokenizer():
    recipe = TokenizerRecipe(spaces=(SpaceTexts("snas", 40),), vocab_size=900)
    assert train_tokenizer(recipe).sha256 == train_tokenizer(recipe).sha256


def test_unknown_spaces_and_networks_are_named():
    with pytest.raises(ValueError, match="did you mean 'fbnet'"):
        training_texts(TokenizerRecipe(spaces=(SpaceTexts("fbnett", 3),)))
    with pytest.raises(ValueError, match="no network 'resnet19'; did you mean resnet18"):
        training_texts(TokenizerRecipe(foreign=("resnet19",)))
