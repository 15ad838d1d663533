import json

import numpy as np
import pytest

from nas_rlm.metrics import coverage, spearman
from nas_rlm.surrogates.fields.surrogate import FieldSurrogate
from nas_rlm.surrogates.registry import from_saved

RNG, OTHER_RNG = np.random.default_rng(0), np.random.default_rng(2)
WORDS = [f"word{i}" for i in range(30)]


def sentences(count):
    weights = dict(zip(WORDS, np.random.default_rng(1).normal(size=len(WORDS)), strict=True))
    texts = [" ".join(RNG.choice(WORDS, RNG.integers(5, 12))) for _ in range(count)]
    return texts, np.array([sum(weights[word] for word in text.split()) for text in texts])


def sequences(count):
    texts = ["".join(RNG.choice(list("ACGT"), 25)) for _ in range(count)]
    return texts, np.array([text.count("GC") + 0.5 * text.count("A") for text in texts])


def configurations(count):
    x, kinds = RNG.random((count, 6)).round(3), RNG.choice(["red", "blue"], count)
    texts = [
        json.dumps({"kind": k, **{f"x{j}": v for j, v in enumerate(r)}})
        for r, k in zip(x, kinds, strict=True)
    ]
    return texts, np.sin(4 * x[:, 0]) + 2 * x[:, 1] * (kinds == "red")


def formulas(count):
    atoms = OTHER_RNG.integers(1, 15, (count, 3))
    texts = ["".join(f"{e}{n}" for e, n in zip("CHO", row, strict=True)) for row in atoms]
    return texts, atoms @ np.array([12.0, 1.0, 16.0])


def symbols(count):
    texts = ["".join(OTHER_RNG.choice(list("😀😡🔥❄🎉"), OTHER_RNG.integers(1, 15))) for _ in range(count)]
    return texts, np.array([t.count("😀") - 1.5 * t.count("😡") + 0.5 * t.count("🔥") for t in texts])


def test_few_sentences_are_ranked_though_fields_do_not_explain_them():
    texts, values = sentences(260)
    surrogate = fitted(texts[:60], values[:60])
    assert surrogate.targets["y"].share < 0.5
    assert spearman(surrogate.predict(surrogate.transform(texts[60:]), "y").median, values[60:]) > 0.45


def fitted(texts, values):
    return FieldSurrogate.fit(texts, {"y": values})


@pytest.mark.parametrize(
    ("task", "least"),
    [
        *[(sentences, 0.8), (sequences, 0.6), (configurations, 0.95), (formulas, 0.98), (symbols, 0.97)],
    ],
)
def test_left_out_texts_are_ranked_and_covered(task, least):
    texts, values = task(220)
    surrogate = fitted(texts[:120], values[:120])
    predicted = surrogate.predict(surrogate.transform(texts[120:]), "y")
    assert spearman(predicted.median, values[120:]) > least
    low, high = predicted.quantiles([0.1, 0.9]).T
    assert 0.65 < coverage(low, high, values[120:]) < 0.95


@pytest.mark.usefixtures("whole_fits")
def test_numbers_as_texts_are_extrapolated():
    values = RNG.uniform(-100, 100, 60).round(2)
    surrogate = fitted(list(map(str, values)), values)
    predicted = surrogate.predict(surrogate.transform(["0", "-50.5", "110"]), "y").median
    np.testing.assert_allclose(predicted, [0, -50.5, 110], atol=3)


def test_infinite_values_are_predicted_where_they_occur():
    texts = [f"x={i}" for i in range(60)]
    values = np.where(np.arange(60) > 40, np.inf, np.arange(60.0))
    surrogate = fitted(texts, values)
    predicted = surrogate.predict(surrogate.transform(["x=10.5", "x=55.5"]), "y").median
    assert abs(predicted[0] - 10.5) < 1
    assert predicted[1] == np.inf


def test_a_restored_surrogate_predicts_the_same():
    texts, values = configurations(60)
    values = np.column_stack([values, np.where(np.arange(60) % 3, -values, np.nan)])
    surrogate = FieldSurrogate.fit(texts, {"a": values[:, 0], "b": values[:, 1]})
    tensors, description = surrogate.tensors(), json.loads(json.dumps(surrogate.description()))
    restored = from_saved(tensors, description)
    for name in ("a", "b"):
        expected = surrogate.predict(surrogate.transform(texts), name).quantiles([0.1, 0.5])
        np.testing.assert_array_equal(
            restored.predict(restored.transform(texts), name).quantiles([0.1, 0.5]), expected
        )
    assert surrogate.without(["a"]).objectives == ("b",)
    assert surrogate.without(["a", "b"]) is None
    for key in ("scores0", "finite1"):
        with pytest.raises((ValueError, KeyError), match=key.rstrip("01")):
            from_saved({k: v for k, v in tensors.items() if k != key}, description)
    description["targets"]["a"]["share"] = 1.5
    with pytest.raises(ValueError, match=r"a: the share is 1\.5: expected a number from 0 to 1"):
        from_saved(tensors, description)
    description["targets"]["a"]["share"] = 0.5
    with pytest.raises(ValueError, match="means"):
        from_saved({k: v for k, v in tensors.items() if k != "counts.means"}, description)


def test_a_surrogate_of_an_earlier_version_is_refused():
    surrogate = fitted(*configurations(30))
    description = surrogate.description()
    del description["counts"]
    with pytest.raises(ValueError, match="that of an earlier version: fit the model again"):
        from_saved(surrogate.tensors(), description)
    description = surrogate.description()
    del description["targets"]["y"]["known_std"]
    with pytest.raises(ValueError, match="that of an earlier version: fit the model again"):
        from_saved(surrogate.tensors(), description)


def test_too_few_labels_are_refused():
    with pytest.raises(ValueError, match="1 text has y: expected at least 2"):
        fitted(["a"] * 20, np.where(np.arange(20) < 1, 1.0, np.nan))


def rates(count, noise):
    rates, sizes = OTHER_RNG.random(count).round(3), OTHER_RNG.integers(1, 500, count)
    texts = [
        f"rate={rate} size={size} opt={'abcde'[i % 5]}"
        for i, (rate, size) in enumerate(zip(rates, sizes, strict=True))
    ]
    return texts, 3 * rates + np.arange(count) % 5 + noise * OTHER_RNG.normal(size=count)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_text_that_lacks_a_field_which_matters_has_a_wide_interval(noise):
    texts, values = rates(100, noise)
    surrogate = fitted(texts, values)
    asked = ["rate=.5 size=9 opt=c", "size=9 opt=c", "rate=.5 size=9 opt=new", "rate=.5 opt=c", ""]
    low, high = surrogate.predict(surrogate.transform(asked), "y").quantiles([0.1, 0.9]).T
    usual, no_rate, no_opt, no_size, nothing = high - low
    assert no_rate > 1.5 > usual and no_opt > 2 * usual and no_opt > 2.5
    assert no_size == pytest.approx(usual, rel=0.3, abs=0.02)
    assert nothing > 2.5


def test_intervals_are_wide_far_from_all_labels_where_the_field_matters():
    texts, values = rates(100, 0.0)
    surrogate = fitted(texts, values)
    asked = [
        f"rate={rate} size={size} opt=c" for rate, size in ((0.5, 9), (1.6, 9), (1e300, 9), (0.5, 10**6))
    ]
    low, high = surrogate.predict(surrogate.transform(asked), "y").quantiles([0.1, 0.9]).T
    known, beyond, far, other_size = high - low
    assert known < 0.5 and beyond > 1 and far > beyond
    assert other_size < 1
    assert low[1] < 3 * 1.6 + 2 < high[1]
