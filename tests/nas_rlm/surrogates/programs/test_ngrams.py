from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.data import Row
from nas_rlm.metrics import coverage, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.programs.ngrams import NUM_BUCKETS, NUM_FEATURES, SIZE_WEIGHT, NgramSurrogate


def program(rng):
    """Return a program, its memory by the number of lists, the problem and noise, and the problem."""
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
def surrogate(drawn):
    sources, values, _ = zip(*drawn[:200], strict=True)
    times = np.where(np.arange(200) % 2, np.sqrt(values), np.nan)
    return NgramSurrogate.fit(sources, {"memory": np.array(values), "latency": times})


def test_predictions_for_new_programs(surrogate, drawn):
    sources, values, _ = zip(*drawn[200:], strict=True)
    features = surrogate.transform(sources)
    for name in ("memory", "latency"):
        predicted = surrogate.predict(features, name)
        assert spearman(predicted.median, np.array(values)) > 0.9
    low, high = surrogate.predict(features, "memory").quantiles((0.1, 0.9)).T
    assert 0.65 < coverage(low, high, np.array(values)) <= 0.95


def test_for_new_problems_intervals_are_wider(drawn):
    sources, values, groups = zip(*drawn[:200], strict=True)
    labels = {"memory": np.array(values)}
    known, new = NgramSurrogate.fit(sources, labels), NgramSurrogate.fit(sources, labels, groups)
    assert new.residual_stds["memory"] > 2 * known.residual_stds["memory"]


def test_a_saved_surrogate_predicts_the_same(surrogate, drawn):
    again = NgramSurrogate.from_saved(surrogate.tensors(), surrogate.description())
    features = surrogate.transform([source for source, *_ in drawn[200:220]])
    for name in surrogate.objectives:
        assert np.array_equal(
            surrogate.predict(features, name).quantiles((0.1, 0.5)),
            again.predict(features, name).quantiles((0.1, 0.5)),
        )
    assert surrogate.without(["memory"]).objectives == ("latency",)
    assert surrogate.without(["memory", "latency"]) is None


def test_invalid_surrogates_are_refused(surrogate):
    tensors, description = surrogate.tensors(), surrogate.description()
    with pytest.raises(ValueError, match=r"weights1 is \(3,\), expected"):
        NgramSurrogate.from_saved(tensors | {"weights1": torch.zeros(3)}, description)
    with pytest.raises(ValueError, match="not in ascending order"):
        NgramSurrogate.from_saved(tensors | {"label_quantiles0": torch.tensor([3.0, 1.0])}, description)
    with pytest.raises(ValueError, match="not a mean and a standard deviation"):
        NgramSurrogate.from_saved(tensors, description | {"log_size_scaling": (1.0, 0.0)})
    with pytest.raises(ValueError, match="missing or not above 0"):
        NgramSurrogate.from_saved(tensors, description | {"residual_stds": {"memory": 1.0}})


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
def test_the_size_is_that_of_the_input_in_the_first_line(text, elements):
    size = NgramSurrogate(
        ("memory",), np.ones(NUM_BUCKETS, dtype=np.float32), (0.0, 1.0), {}, {}, {}
    ).transform([text])[0, -1]
    assert size == pytest.approx(SIZE_WEIGHT * np.log2(elements))


def test_a_value_that_grows_with_the_input_is_predicted_for_other_sizes():
    rng = np.random.default_rng(0)
    sizes = 2 ** rng.integers(4, 24, 120)
    kernels = [f"# input: [[{size}], [{size}]]\n@triton.jit\ndef add(x, y): pass" for size in sizes]
    values = {"latency": 1e-3 + sizes * 1e-9 * rng.uniform(0.9, 1.1, 120)}
    surrogate = NgramSurrogate.fit(kernels, values)
    other = 3 * 2 ** np.arange(5, 22)
    programs = [f"# input: [[{size}], [{size}]]\n@triton.jit\ndef add(x, y): pass" for size in other]
    assert (
        spearman(surrogate.predict(surrogate.transform(programs), "latency").median, other.astype(float))
        > 0.95
    )


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text_has_features_of_length_one(texts):
    features = NgramSurrogate(
        ("memory",), np.ones(NUM_BUCKETS, dtype=np.float32), (0.0, 1.0), {}, {}, {}
    ).transform(texts)
    found = features[:, :NUM_BUCKETS]
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
    empty = np.array([not text.strip() or length == 0 for text, length in zip(texts, lengths, strict=True)])
    assert features.shape == (len(texts), NUM_FEATURES) and np.isfinite(features.data).all()
    assert np.allclose(lengths[~empty], 1, atol=1e-4) and (lengths[empty] == 0).all()


def test_a_model_is_saved_with_a_surrogate_of_programs(drawn, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rows = [Row("CDSS", "", {"memory": value}, source, group=group) for source, value, group in drawn[:60]]
    rlm = replace(rlm.with_objectives(["memory"]), surrogates=fit_surrogates(rows, ["memory"]))
    assert list(rlm.surrogates) == ["CDSS"]
    rlm.save(tmp_path / "with")
    texts = [source for source, *_ in drawn[200:240]]
    predictions = [
        one.predict_text(texts, ["memory"], space="CDSS") for one in (rlm, RLM.load(tmp_path / "with"))
    ]
    assert np.allclose(*predictions, rtol=0.02)  # weights are saved in half precision
    true = np.array([value for _, value, _ in drawn[200:240]])
    alone = rlm.predict_text(texts, ["memory"])[:, 0]
    assert spearman(predictions[0][:, 0], true) > max(0.7, spearman(alone, true))
