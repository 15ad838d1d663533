import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import search_spaces
from nas_rlm import RLM
from nas_rlm.text import Tokenizer, from_architecture, from_architectures
from nas_rlm.text.tokenizer import ENDS_SCOPE, IDENTIFIER


@pytest.fixture(scope="module")
def texts():
    space = search_spaces.get("nasbench201")
    rng = np.random.default_rng(0)
    return [from_architecture(space, space.sample(rng)) for _ in range(60)]


@pytest.fixture(scope="module")
def tokenizer(texts):
    return Tokenizer.train(texts[:50], vocab_size=1200)


def test_round_trip(tokenizer, texts):
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00▁"), max_size=60))
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(alphabet="vd0123456789\n}x=(W_", max_size=40))
def test_caching_does_not_change_ids(tokenizer, text):
    assert tokenizer.encode(text) == tokenizer._pieces.EncodeAsIds(text)


@given(
    st.lists(
        st.sampled_from(
            [
                ",float[",
                "=f.",
                "f.block0(",
                "16,16,3,3",
                "] W16_16_3_3",
                "x1",
                "v1",
                "\n",
                "\n}\n",
                "é▁",
                "\x00",
            ]
        ),
        max_size=30,
    )
)
def test_cached_chunks_are_joined_as_one_text(tokenizer, parts):
    text = "".join(parts)
    assert tokenizer.encode(text) == tokenizer._pieces.EncodeAsIds(text)


@pytest.mark.parametrize("model", ["nas", "nas-fast", "programs"])
@pytest.mark.parametrize("space", ["fbnet", "ofa_mbv3", "nds_darts"])
def test_tokens_may_span_chunks(model, space):
    tokenizer = RLM.load(model).tokenizer
    found, rng = search_spaces.get(space), np.random.default_rng(0)
    for text in from_architectures(found, [found.sample(rng) for _ in range(10)]):
        assert tokenizer.encode(text) == tokenizer._pieces.EncodeAsIds(text)


def test_value_names_are_single_tokens(tokenizer, texts):
    kinds = tokenizer.kinds()
    for text in texts[50:]:
        ids = tokenizer.encode(text)
        pieces = [tokenizer.decode([i]) for i in ids]
        named = [p for i, p in zip(ids, pieces, strict=True) if kinds[i] & IDENTIFIER]
        assert named == re.findall(r"\b[vd]\d+\b", text)


def test_each_body_closes_one_scope(tokenizer, texts):
    kinds = tokenizer.kinds()
    for text in texts[50:]:
        closed = sum(bool(kinds[i] & ENDS_SCOPE) for i in tokenizer.encode(text))
        assert closed == len(re.findall(r"^}$", text, re.MULTILINE))


def test_save_and_load(tokenizer, texts, tmp_path):
    path = tmp_path / "tokenizer.model"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.sha256 == tokenizer.sha256
    assert loaded.encode(texts[0]) == tokenizer.encode(texts[0])


def test_file_that_is_not_a_tokenizer(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"not a model")
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        Tokenizer.load(path)


def test_too_few_pieces_and_no_texts():
    with pytest.raises(ValueError, match=r"a tokenizer of 300 tokens cannot be trained: .*vocab_size"):
        Tokenizer.train(["x=Relu(y)\n"], vocab_size=300)
    with pytest.raises(ValueError, match="a tokenizer of 8,192 tokens"):
        Tokenizer.train([])
