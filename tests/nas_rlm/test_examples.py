from collections import Counter

import numpy as np
import pytest
import torch

from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.examples import IGNORED, Examples, batches, collate, examples_of
from nas_rlm.numbers import TOKENS, NumberScheme
from nas_rlm.recipe import Recipe, TableRecipe

SCHEME = NumberScheme()


def examples(n, numbers=3, rows=None, objectives=5):
    rng = np.random.default_rng(0)
    values = [{TOKENS + k: float(10 * k + rng.integers(10)) for k in range(objectives)} for _ in range(n)]
    texts = [np.arange(1, 4 + i % 50) for i in range(n)]
    return Examples(TableRecipe("", rows=rows, numbers=numbers), texts, values)


def test_a_presentation_begins_with_accuracy_and_never_repeats():
    e = examples(400)
    ids, given, wanted, share = collate(
        [(e, i) for i in range(400)], np.random.default_rng(0), TOKENS, SCHEME
    )
    assert ids.shape == (400, 52)
    assert given.shape == wanted.shape == share.shape == (400, 3 * 8)
    chosen = given[:, ::8]
    first = chosen[:, 0] == TOKENS
    assert 0.75 < first.float().mean() < 0.95
    assert not (chosen[:, 1:] == TOKENS).any()
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    assert {tuple(sorted(row)) for row in chosen[first, 1:].tolist()} == {
        (TOKENS + i, TOKENS + j) for i in range(1, 5) for j in range(i + 1, 5)
    }
    assert (wanted[:, 7::8] == IGNORED).all()
    assert torch.allclose(share[first][:, :8].sum(1), share[first][:, 8:].sum(1))


def test_the_digits_are_those_of_the_row():
    e = examples(20)
    _, given, wanted, _ = collate([(e, i) for i in range(20)], np.random.default_rng(0), TOKENS, SCHEME)
    for i in range(20):
        for start in (0, 8, 16):
            assert given[i, start + 1 : start + 8].tolist() == wanted[i, start : start + 7].tolist()
            value = SCHEME.decode(wanted[i, start : start + 7].tolist())
            assert value == e.numbers[i][int(given[i, start])]


def test_noise_is_relative_to_the_spread():
    e = examples(300, numbers=1, objectives=1)
    e.numbers = [{TOKENS: 50.0} for _ in e.numbers]
    e.spread = {TOKENS: 10.0}
    _, _, wanted, _ = collate([(e, i) for i in range(300)], np.random.default_rng(0), TOKENS, SCHEME, 0.1)
    values = SCHEME.decode_array(wanted[:, :7].numpy())
    assert 0.8 < np.std(values) < 1.2
    assert abs(np.mean(values) - 50) < 0.3


def test_the_spread_does_not_feel_outliers():
    numbers = [{TOKENS: v} for v in [*np.random.default_rng(0).normal(90, 2, 1000), *[10.0] * 30]]
    e = Examples(TableRecipe(""), [np.arange(3)] * len(numbers), numbers)
    assert e.spread[TOKENS] == pytest.approx(2, rel=0.15)


def test_an_epoch_presents_each_row_as_often_as_asked():
    few, all_of_it = examples(30, rows=75), examples(64)
    recipe = Recipe((TableRecipe(""),), batch_size=8)
    drawn = [pair for batch in batches([few, all_of_it], recipe, 0) for pair in batch]
    counts = Counter((id(e), i) for e, i in drawn)
    assert sum(counts[id(few), i] for i in range(30)) == 75
    assert {counts[id(few), i] for i in range(30)} == {2, 3}
    assert {counts[id(all_of_it), i] for i in range(64)} == {1}


def test_epochs_differ_and_come_back():
    e, recipe = examples(64), Recipe((TableRecipe(""),), batch_size=8)

    def order(epoch):
        return [[i for _, i in batch] for batch in batches([e], recipe, epoch)]

    assert order(0) == order(0) != order(1)


def test_batches_hold_texts_of_similar_length():
    e, recipe = examples(256), Recipe((TableRecipe(""),), batch_size=8)
    spans = [np.ptp([len(e.ids[i]) for _, i in batch]) for batch in batches([e], recipe, 0)]
    assert np.mean(spans) < 4


def test_rows_without_numbers_are_left_out():
    e = examples(10)
    e.numbers = [{} if i % 2 else n for i, n in enumerate(e.numbers)]
    drawn = [i for batch in batches([e], Recipe((TableRecipe(""),)), 0) for _, i in batch]
    assert sorted(drawn) == [0, 2, 4, 6, 8]


def test_what_a_row_lacks_is_not_presented(tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    row = Row("theirs", "", {"accuracy": 90.0, "latency/pixel3": 0.003, "latency/unknown": 1.0})
    found = examples_of(rlm, [row], TableRecipe(""), ["x=Relu(y)\n"])
    assert found.numbers == [{TOKENS + rlm.objectives.index("accuracy"): 90.0}]
