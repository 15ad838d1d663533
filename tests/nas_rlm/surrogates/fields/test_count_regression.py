import json

import numpy as np
import pytest

from nas_rlm.surrogates.fields.count_regression import CountRegression

RNG = np.random.default_rng(0)
TEXTS = ["".join(RNG.choice(list("abc "), RNG.integers(1, 30))) for _ in range(80)]
SCORES = np.array([text.count("a") - 2 * text.count("b") for text in TEXTS]) / 10.0
SCORES -= SCORES.mean()


def test_what_adds_up_is_learnt_and_left_out_texts_are_predicted():
    regression, left_out = CountRegression.fit(TEXTS[:60], {"y": SCORES[:60]})
    predicted = regression.predict(regression.counts(TEXTS[60:]), "y")
    assert np.corrcoef(predicted, SCORES[60:])[0, 1] > 0.95
    assert 0.9 < np.corrcoef(left_out["y"], SCORES[:60])[0, 1] < 1


def test_equal_texts_do_not_predict_each_other():
    texts = [f"{i} {i}" for i in RNG.permutation(30)] * 2
    scores = np.tile(RNG.normal(size=30), 2)
    _, left_out = CountRegression.fit(texts, {"y": scores})
    assert abs(np.corrcoef(left_out["y"], scores)[0, 1]) < 0.5


def test_texts_without_scores_are_left_out():
    scores = np.where(np.arange(80) % 2, SCORES, np.nan)
    regression, left_out = CountRegression.fit(TEXTS, {"y": scores, "z": SCORES})
    assert not left_out["y"][::2].any()
    assert tuple(regression.without(["y"]).weights) == ("z",)


@pytest.mark.parametrize("texts", [[""] * 8, ["a"] * 8, list("abcdefgh"), ["\ud800"] * 7 + ["\ud800b"]])
def test_texts_without_varying_terms_have_predictions_of_zero(texts):
    regression, _ = CountRegression.fit(texts, {"y": np.arange(8) - 3.5})
    assert regression.predict(regression.counts(["new", ""]), "y").tolist() == [0, 0]


def test_a_restored_regression_predicts_the_same():
    regression, _ = CountRegression.fit(TEXTS, {"y": SCORES})
    tensors, description = regression.tensors(), json.loads(json.dumps(regression.description()))
    restored = CountRegression.from_saved(tensors, description)
    for texts in (TEXTS, ["", "new 5"]):
        expected = regression.predict(regression.counts(texts), "y")
        np.testing.assert_array_equal(restored.predict(restored.counts(texts), "y"), expected)
    with pytest.raises(ValueError, match="scale of counts"):
        CountRegression.from_saved(tensors | {"scales": 0 * tensors["scales"]}, description)
