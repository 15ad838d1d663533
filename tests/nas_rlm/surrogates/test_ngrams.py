from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm.data import Row
from nas_rlm.metrics import coverage, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.fitting import panel_of
from nas_rlm.surrogates.ngrams import FEATURES, PLACES, SIZED, Words


def program(rng):
    """What it takes is told by how long its lists are, which problem it solves, and luck."""
    copies, problem = int(rng.integers(1, 6)), int(rng.integers(4))
    lines = [f"    x{i} = [0] * n" for i in range(copies)] + ["    y = sorted(a)"] * int(rng.integers(3))
    rng.shuffle(lines)
    source = "\n".join([f"# problem-{problem}", "def solve(a, n):", *lines, "    return y"])
    return source, 1000.0 * 4**problem * copies * np.exp(rng.normal(0, 0.1)), f"p{problem}"


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    return [program(rng) for _ in range(300)]


@pytest.fixture(scope="module")
def words(drawn):
    sources, values, _ = zip(*drawn[:200], strict=True)
    times = np.where(np.arange(200) % 2, np.sqrt(values), np.nan)
    return Words.fitted(sources, {"memory": np.array(values), "latency": times})


def test_it_tells_programs_that_it_never_saw(words, drawn):
    sources, values, _ = zip(*drawn[200:], strict=True)
    features = words.read(sources)
    for name in ("memory", "latency"):
        belief = words.believe(features, name)
        assert spearman(belief.median, np.array(values)) > 0.9
    low, high = words.believe(features, "memory").quantiles((0.1, 0.9)).T
    assert 0.65 < coverage(low, high, np.array(values)) <= 0.95


def test_where_problems_are_new_it_doubts_more(drawn):
    sources, values, groups = zip(*drawn[:200], strict=True)
    told = {"memory": np.array(values)}
    known, new = Words.fitted(sources, told), Words.fitted(sources, told, groups)
    assert new.doubts["memory"] > 2 * known.doubts["memory"]


def test_saved_and_restored_it_says_the_same(words, drawn):
    again = Words.restored(words.tensors(), words.described())
    features = words.read([source for source, *_ in drawn[200:220]])
    for name in words.objectives:
        assert np.array_equal(
            words.believe(features, name).quantiles((0.1, 0.5)),
            again.believe(features, name).quantiles((0.1, 0.5)),
        )
    assert words.without(["memory"]).objectives == ("latency",)
    assert words.without(["memory", "latency"]) is None


def test_what_is_no_expert(words):
    tensors, told = words.tensors(), words.described()
    with pytest.raises(ValueError, match=r"weights1 is \(3,\), expected"):
        Words.restored(tensors | {"weights1": torch.zeros(3)}, told)
    with pytest.raises(ValueError, match="are not quantiles"):
        Words.restored(tensors | {"values0": torch.tensor([3.0, 1.0])}, told)
    with pytest.raises(ValueError, match="no mean and deviation"):
        Words.restored(tensors, told | {"usual": (1.0, 0.0)})
    with pytest.raises(ValueError, match="missing or not above 0"):
        Words.restored(tensors, told | {"doubts": {"memory": 1.0}})


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("# input: [[64, 128], [32]]\nx = torch.zeros(4096, 4096)", 64 * 128),
        ("// [20, 10]\nint seen[1000];", 200),
        ("int seen[1000];  // and [20, 10]", 1),
        ("x = f(a, b)[0]", 1),
        ("# input: [[" + "9" * 400 + "]]", 2**63),
        ("# (1" + " " * 100_000, 1),
    ],
)
def test_size_is_that_of_the_input_which_the_first_line_tells(text, elements):
    size = Words(("memory",), np.ones(PLACES, dtype=np.float32), (0.0, 1.0), {}, {}, {}).read([text])[0, -1]
    assert size == pytest.approx(SIZED[1] * np.log2(elements))


def test_a_number_that_grows_with_the_input_is_told_of_other_sizes():
    rng = np.random.default_rng(0)
    sizes = 2 ** rng.integers(4, 24, 120)
    kernels = [f"# input: [[{size}], [{size}]]\n@triton.jit\ndef add(x, y): pass" for size in sizes]
    values = {"latency": 1e-3 + sizes * 1e-9 * rng.uniform(0.9, 1.1, 120)}
    words = Words.fitted(kernels, values)
    other = 3 * 2 ** np.arange(5, 22)
    asked = [f"# input: [[{size}], [{size}]]\n@triton.jit\ndef add(x, y): pass" for size in other]
    assert spearman(words.believe(words.read(asked), "latency").median, other.astype(float)) > 0.95


@settings(max_examples=30)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text_has_features_of_length_one(texts):
    features = Words(("memory",), np.ones(PLACES, dtype=np.float32), (0.0, 1.0), {}, {}, {}).read(texts)
    found = features[:, :PLACES]
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
    empty = np.array([not text.strip() or length == 0 for text, length in zip(texts, lengths, strict=True)])
    assert features.shape == (len(texts), FEATURES) and np.isfinite(features.data).all()
    assert np.allclose(lengths[~empty], 1, atol=1e-4) and (lengths[empty] == 0).all()


def test_a_model_keeps_it_beside_those_on_networks(drawn, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rows = [Row("CDSS", "", {"memory": value}, source, group=group) for source, value, group in drawn[:60]]
    rlm = replace(rlm.with_objectives(["memory"]), experts=panel_of(rows, ["memory"]))
    assert list(rlm.experts) == ["CDSS"]
    rlm.save(tmp_path / "with")
    texts = [source for source, *_ in drawn[200:240]]
    told = [one.predict_text(texts, ["memory"], space="CDSS") for one in (rlm, RLM.load(tmp_path / "with"))]
    assert np.allclose(*told, rtol=0.02)  # weights are saved in half precision
    true = np.array([value for _, value, _ in drawn[200:240]])
    alone = rlm.predict_text(texts, ["memory"])[:, 0]
    assert spearman(told[0][:, 0], true) > max(0.7, spearman(alone, true))
