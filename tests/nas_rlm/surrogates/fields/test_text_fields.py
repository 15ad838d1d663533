import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm.surrogates.fields.text_fields import TextFields

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=40).round(3)
FORMATS = {
    "json": lambda x, k: json.dumps({"size": x, "kind": k}),
    "pairs": lambda x, k: f"size={x}, kind={k}",
    "options": lambda x, k: f"--size {x} --kind {k}",
}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_number_belongs_to_the_word_before_it_in_any_format(form):
    texts = [form(float(x), "ab"[i % 2]) for i, x in enumerate(NUMBERS)]
    fields = TextFields.fit(texts)
    assert "size#0" in fields.numbers
    column = fields.transform(texts)[:, fields.numbers.index("size#0")]
    np.testing.assert_allclose(np.corrcoef(column, NUMBERS)[0, 1], 1)
    assert {word.split("\0")[-1] for word in fields.words} <= {"a", "b", "size"}


def test_numbers_within_words_belong_to_the_letters_before_them():
    texts = [f"gpu=a{i % 3} batch{i} step {i / 2}ms mem={i}MiB resnet{i}_w{2 * i}" for i in range(20)]
    fields = TextFields.fit(texts)
    assert {"a#0", "batch#0", "step#0", "mem#0", "resnet#0", "w#0"} <= set(fields.numbers)
    column = fields.transform(texts)[:, fields.numbers.index("step#0")]
    np.testing.assert_allclose(np.corrcoef(column, range(20))[0, 1], 1)


def test_numbers_of_a_list_are_different_fields():
    fields = TextFields.fit([f"x = [{a}, {2 * a}]" for a in range(20)])
    assert {"x#0", "x#1"} <= set(fields.numbers)


def test_numbers_of_several_magnitudes_are_read_as_logarithms():
    texts = [f"lr={10.0**-k}" for k in range(8)] * 3
    fields = TextFields.fit(texts)
    column = fields.transform(texts[:8])[:, fields.numbers.index("lr#0")]
    np.testing.assert_allclose(np.diff(column), np.diff(column)[0])


def test_a_missing_number_is_the_mean_and_new_numbers_are_cut():
    fields = TextFields.fit([f"a={i}" for i in range(10)])
    k = fields.numbers.index("a#0")
    missing, huge = fields.transform(["b", "a=1e300"])[:, k]
    assert missing == 0
    assert 1 < huge < 10


@settings(max_examples=30)
@given(st.lists(st.text(), min_size=1, max_size=8))
def test_any_texts_have_finite_features(texts):
    fields = TextFields.fit(texts)
    features = fields.transform([*texts, "", "1e999 -1e999 nan", "\ud800"])
    assert features.shape == (len(texts) + 3, sum(fields.group_sizes))
    assert np.isfinite(features).all()


def test_fields_are_restored_from_their_description():
    texts = [f"a={i} b={'xy'[i % 2]}" for i in range(20)]
    fields = TextFields.fit(texts)
    saved = json.loads(json.dumps(fields.description()))
    np.testing.assert_array_equal(
        TextFields.from_description(saved).transform(texts), fields.transform(texts)
    )
    with pytest.raises(ValueError, match="text fields are missing or not valid"):
        TextFields.from_description({**saved, "means": []})


def test_texts_lack_what_nearly_all_others_have():
    texts = [f"a={i} b={'xyz'[i % 3]}" + (" c=1" if i % 2 else "") for i in range(100)]
    fields = TextFields.fit(texts)
    asked = fields.values(["a=3 b=x", "b=y", "a=3 b=new", "a=3 b=z c=1", ""])
    lacking = dict(zip([*fields.numbers, *fields.words], fields.lacking(asked).T.tolist(), strict=True))
    assert lacking["a#0"] == [False, True, False, False, True]
    assert lacking["b\0x"] == [False, False, True, False, True]
    assert not any(any(column) for name, column in lacking.items() if name.startswith("c"))
    assert (
        TextFields.from_description(fields.description()).lacking(asked).tolist()
        == fields.lacking(asked).tolist()
    )
