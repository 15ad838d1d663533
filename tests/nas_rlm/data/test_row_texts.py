import numpy as np
import onnx
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.text import from_architecture

SPACE = search_spaces.get("nasbench201")
CHAIN = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"


def test_a_row_without_input_of_an_unregistered_space_is_refused():
    with pytest.raises(
        ValueError, match=r"a row of 'nasbench301' has no input.*'abc'; did you mean nasbench"
    ):
        texts_of_rows([Row("nasbench301", "abc", {"accuracy": 90.0})])


def test_texts_come_from_the_row_or_its_space():
    rows = [Row("other", "", {}, "first"), Row("nasbench201", CHAIN, {}), Row("other", "", {}, "third")]
    assert texts_of_rows(rows) == ["first", from_architecture(SPACE, SPACE.parse(CHAIN)), "third"]


def test_long_lists_of_texts_are_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("NAS_RLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "nas_rlm.data.row_texts.from_architectures",
        lambda space, architectures: [f"text of {a}" for a in architectures],
    )
    space, rng = search_spaces.get("nats_size"), np.random.default_rng(0)
    rows = [Row("nats_size", str(space.sample(rng)), {}) for _ in range(1200)]
    texts = texts_of_rows(rows)
    monkeypatch.setattr(
        "nas_rlm.data.row_texts.from_architectures",
        lambda space, architectures: ["recomputed" for _ in architectures],
    )
    assert texts_of_rows(rows) == texts == [f"text of {r.arch_str}" for r in rows]
    assert texts_of_rows(rows[:1100]) != texts[:1100]


def test_a_row_with_an_invalid_notation_is_refused():
    with pytest.raises(ValueError, match=r"a row of nasbench201: .*conv_9x9"):
        texts_of_rows([Row("nasbench201", CHAIN.replace("nor_conv_3x3", "conv_9x9"), {})])


def test_foreign_onnx_text_becomes_the_text_of_the_search_space():
    space = search_spaces.get("nasbench201")
    cell = space.sample(np.random.default_rng(0))
    foreign = onnx.printer.to_text(space.to_onnx(cell))
    text = from_architecture(space, cell)
    program = "def f(x):\n    return x\n"
    rows = [Row("mine", "", {"accuracy": 50.0}, source) for source in (foreign, text, program)]
    assert texts_of_rows(rows) == [text, text, program]
    for truncated in (foreign[: len(foreign) // 2], text[: len(text) // 2]):
        with pytest.raises(ValueError, match=r"the input '<.* is not valid ONNX text"):
            texts_of_rows([Row("mine", "", {"accuracy": 50.0}, truncated)])


def test_a_row_without_a_space_and_an_input_is_refused():
    with pytest.raises(ValueError, match=r"a row has neither a space nor an input to build"):
        texts_of_rows([Row("", "1:2", {"accuracy": 1.0})])
    with pytest.raises(ValueError, match=r"a row has neither a space nor an input to build"):
        texts_of_rows([Row("", "", {"accuracy": 1.0})])
    for source in ("def f():\n    pass\n", ""):
        with pytest.raises(
            ValueError, match=r"expected the source of a program as the input, Row\('KBSS', '', "
        ):
            texts_of_rows([Row("KBSS", source, {"latency": 1.0})])
    with pytest.raises(ValueError, match=r"a row of 'fbnt' has no input, .* did you mean fbnet"):
        texts_of_rows([Row("fbnt", "1:2", {"accuracy": 1.0})])
