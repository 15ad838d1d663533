import math
from collections import Counter

import numpy as np
import pytest
import torch

from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.model.network import Config
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS, NumberScheme
from nas_rlm.training.dataset import IGNORED, Dataset, batches, collate, make_dataset
from nas_rlm.training.recipe import Recipe, TableRecipe

SCHEME = NumberScheme()


def examples(n, rows=None, objectives=5, sequences=1):
    rng = np.random.default_rng(0)
    values = [
        {NUM_DIGIT_TOKENS + k: float(10 * k + rng.integers(10)) for k in range(objectives)} for _ in range(n)
    ]
    texts = [np.arange(1, 4 + i % 50) for i in range(n)]
    return Dataset(TableRecipe("", rows=rows, sequences=sequences), texts, values)


def config(objectives=5, numbers=3):
    names = ["accuracy", *(f"latency/{i}" for i in range(1, objectives))]
    return Config(vocab_size=60, objectives=tuple(names), max_numbers=numbers)


def written(row):
    """The objectives of a row of decoder tokens, without those that fill it up."""
    return [token for token in row[::8].tolist() if token]


def test_half_of_the_sequences_begin_with_accuracy_and_none_repeats():
    e = examples(400)
    ids, given, wanted, share = collate([(e, i) for i in range(400)], np.random.default_rng(0), config())
    assert ids.shape == (400, 52)
    assert given.shape == wanted.shape == share.shape == (400, 3 * 8)
    chosen = [written(row) for row in given]
    first = [row[0] == NUM_DIGIT_TOKENS for row in chosen]
    assert 0.4 < np.mean(first) < 0.6
    assert all(NUM_DIGIT_TOKENS not in row[1:] and len(set(row)) == len(row) for row in chosen)
    assert {len(row) for row, begins in zip(chosen, first, strict=True) if begins} == {2, 3}
    assert {len(row) for row, begins in zip(chosen, first, strict=True) if not begins} == {1, 2, 3}
    assert {k for row in chosen for k in row} == set(range(NUM_DIGIT_TOKENS, NUM_DIGIT_TOKENS + 5))
    assert (wanted[:, 7::8] == IGNORED).all()
    assert torch.allclose(share[first][:, :8].sum(1), share[first][:, 8:].sum(1))


def test_sequences_of_a_text_have_distinct_objectives():
    e, few = examples(50, sequences=9, objectives=20), examples(1, objectives=1)
    ids, given, wanted, share = collate(
        [*((e, i) for i in range(50)), (few, 0)], np.random.default_rng(0), config(20)
    )
    assert len(given) == len(wanted) == len(share) == 51 * (len(given) // 51)
    assert len(ids) == 51
    for row in given.view(51, -1, given.shape[1])[:50]:
        latencies = [k for sequence in row for k in written(sequence) if k != NUM_DIGIT_TOKENS]
        assert len(set(latencies)) == len(latencies)
        assert len(latencies) == 19 or len(row) == 9
    rest = given.view(51, -1, given.shape[1])[50]
    assert written(rest[0]) == [NUM_DIGIT_TOKENS]
    assert (wanted.view(51, -1, given.shape[1])[50, 1:] == IGNORED).all()
    assert not share.view(51, -1, given.shape[1])[50, 1:].any()


def test_the_digits_are_those_of_the_row():
    e = examples(20)
    _, given, wanted, _ = collate([(e, i) for i in range(20)], np.random.default_rng(0), config())
    for i in range(20):
        for k in range(len(written(given[i]))):
            digits = wanted[i, 8 * k : 8 * k + 7].tolist()
            assert given[i, 8 * k + 1 : 8 * k + 8].tolist() == digits
            assert SCHEME.decode(digits) == e.numbers[i][int(given[i, 8 * k])]


def test_noise_is_relative_to_the_spread():
    e = examples(300, objectives=1)
    e.numbers = [{NUM_DIGIT_TOKENS: 50.0} for _ in e.numbers]
    e.spread = {NUM_DIGIT_TOKENS: 10.0}
    _, _, wanted, _ = collate([(e, i) for i in range(300)], np.random.default_rng(0), config(1), 0.1)
    values = SCHEME.decode_array(wanted[:, :7].numpy())
    assert 0.8 < np.std(values) < 1.2
    assert abs(np.mean(values) - 50) < 0.3


def test_noise_of_values_over_orders_of_magnitude_is_multiplicative():
    drawn = np.random.default_rng(0).normal(size=4000)
    numbers = [{NUM_DIGIT_TOKENS: 50 * math.exp(2 * v)} for v in drawn]
    e = Dataset(TableRecipe(""), [np.arange(3)] * len(numbers), numbers)
    assert e.wide == {NUM_DIGIT_TOKENS} and e.spread[NUM_DIGIT_TOKENS] == pytest.approx(2, rel=0.05)
    assert e.with_noise(NUM_DIGIT_TOKENS, 7.0, 0.5) == pytest.approx(
        7 * math.exp(0.5 * e.spread[NUM_DIGIT_TOKENS])
    )
    assert e.with_noise(NUM_DIGIT_TOKENS, 0.0, 0.5) == 0.0
    narrow = Dataset(TableRecipe(""), [np.arange(3)] * 50, [{NUM_DIGIT_TOKENS: 50.0 + v} for v in drawn[:50]])
    assert not narrow.wide


def test_the_spread_is_robust_to_outliers():
    numbers = [{NUM_DIGIT_TOKENS: v} for v in [*np.random.default_rng(0).normal(90, 2, 1000), *[10.0] * 30]]
    e = Dataset(TableRecipe(""), [np.arange(3)] * len(numbers), numbers)
    assert e.spread[NUM_DIGIT_TOKENS] == pytest.approx(2, rel=0.15)


def test_an_epoch_has_the_requested_number_of_rows():
    repeated, full = examples(30, rows=75), examples(64)
    recipe = Recipe((TableRecipe(""),), batch_size=8)
    drawn = [pair for batch in batches([repeated, full], recipe, 0) for pair in batch]
    counts = Counter((id(e), i) for e, i in drawn)
    assert sum(counts[id(repeated), i] for i in range(30)) == 75
    assert {counts[id(repeated), i] for i in range(30)} == {2, 3}
    assert {counts[id(full), i] for i in range(64)} == {1}


def test_epochs_differ_and_are_reproducible():
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


def test_unknown_and_unmeasured_objectives_are_left_out(tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    row = Row("theirs", "", {"accuracy": 90.0, "latency/pixel3": 0.0, "latency/unknown": 1.0})
    found = make_dataset(rlm, [row], TableRecipe(""), ["x=Relu(y)\n"])
    assert found.numbers == [{NUM_DIGIT_TOKENS + rlm.objectives.index("accuracy"): 90.0}]
