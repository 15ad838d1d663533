import numpy as np
import pytest
import torch

from nas_rlm.model import conditioning, decoding
from nas_rlm.model.conditioning import log_likelihoods, prefix_tokens, quantile, sample
from nas_rlm.model.network import Config, Network
from tests.nas_rlm.model.test_numbers import leaves

LEVELS = (0.1, 0.5, 0.77)
NAMES = ("accuracy", "latency/a", "latency/b")


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Encode texts in float32, so that all digits of a number are reproducible."""
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)


@pytest.fixture(scope="module")
def tiny():
    """A network with so few numbers that all can be enumerated, and a distribution far from uniform."""
    torch.manual_seed(1)
    config = Config(vocab_size=8, objectives=NAMES, size=1, mantissa_digits=1, max_numbers=3)
    network = Network(config, np.zeros(8, dtype=np.uint8)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


@pytest.fixture(scope="module")
def ids():
    return torch.randint(1, 8, (3, 5), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def probabilities(network, text, objective, before):
    """Return the probability of each number of an objective after others, from the plain forward pass."""
    scheme, numbers = network.config.scheme, leaves(network.config.scheme)
    prefix = [
        token
        for name, value in before
        for token in (*network.config.objective_ids([name]), *scheme.encode(value))
    ]
    tokens = torch.tensor([[*prefix, *network.config.objective_ids([objective]), *n] for n in numbers])
    logits = network(text.expand(len(numbers), -1), tokens)[:, len(prefix) :]
    found = np.ones(len(numbers))
    for row, number in enumerate(numbers):
        for i, token in enumerate(number):
            valid = scheme.children(number[:i])
            found[row] *= float(logits[row, i, valid].double().softmax(0)[valid.index(token)])
    return np.array([scheme.decode(n) for n in numbers]), found


def test_quantiles_are_those_of_the_numbers_after_the_given_ones(tiny, ids):
    given = {"latency/b": np.array([2.0, 0.3, 70.0]), "accuracy": np.array([90.0, 1.0, 50.0])}
    found = quantile(tiny, tiny.encode(ids), ["latency/a"], LEVELS, given, [1.0], [None])
    for i, text in enumerate(ids):
        before = [("accuracy", given["accuracy"][i]), ("latency/b", given["latency/b"][i])]
        values, p = probabilities(tiny, text[None], "latency/a", before)
        assert found[i, 0].tolist() == [values[np.searchsorted(np.cumsum(p), level)] for level in LEVELS]


def test_given_numbers_are_written_unchanged(tiny):
    given = {"latency/a": np.array([3.0, 0.02]), "accuracy": np.array([70.0, 8.0])}
    tokens, scheme = prefix_tokens(tiny, given).numpy(), tiny.config.scheme
    length = 1 + scheme.length
    assert tokens[:, [0, length]].tolist() == [tiny.config.objective_ids(["accuracy", "latency/a"])] * 2
    assert scheme.decode_array(tokens[:, 1:length]).tolist() == [70.0, 8.0]
    assert scheme.decode_array(tokens[:, 1 + length :]).tolist() == [3.0, 0.02]


def test_numbers_beyond_the_longest_sequence_are_left_out(tiny):
    given = {name: np.array([1.0]) for name in ("latency/b", "latency/a", "accuracy")}
    length = 1 + tiny.config.scheme.length
    starts = prefix_tokens(tiny, given)[0, ::length].tolist()
    assert starts == tiny.config.objective_ids(["accuracy", "latency/b"])


def test_likelihoods_are_those_of_the_plain_forward_pass(tiny, ids):
    given = {"latency/a": np.array([2.0, 0.3, 70.0]), "latency/b": np.array([1.0, 5.0, 0.4])}
    candidates = np.array([[10.0, 90.0], [20.0, 80.0], [1.0, 2.0]])
    found = log_likelihoods(tiny, tiny.encode(ids), "accuracy", candidates, given)
    for i, text in enumerate(ids):
        for j, accuracy in enumerate(candidates[i]):
            expected, before = 0.0, [("accuracy", accuracy)]
            for name in ("latency/a", "latency/b"):
                values, p = probabilities(tiny, text[None], name, before)
                expected += np.log(p[values == given[name][i]]).sum()
                before.append((name, given[name][i]))
            assert found[i, j] == pytest.approx(expected, abs=1e-4)


def test_accuracy_follows_bayes_theorem(tiny, ids, monkeypatch):
    monkeypatch.setattr(conditioning, "NUM_CANDIDATES", 4000)
    given = {"latency/a": np.array([2.0, 0.3, 70.0])}
    found = quantile(tiny, tiny.encode(ids), ["accuracy"], LEVELS, given, [1.0], [None])[:, 0]
    memory, values = (
        tiny.encode(ids),
        np.array([tiny.config.scheme.decode(n) for n in leaves(tiny.config.scheme)]),
    )
    likelihoods = np.exp(log_likelihoods(tiny, memory, "accuracy", np.tile(values, (len(ids), 1)), given))
    for i, text in enumerate(ids):
        _, prior = probabilities(tiny, text[None], "accuracy", [])
        cumulative = np.cumsum(prior * likelihoods[i] / (prior @ likelihoods[i]))
        for level, value in zip(LEVELS, found[i], strict=True):
            below, above = (np.searchsorted(values, value, side) for side in ("left", "right"))
            assert (
                cumulative[max(0, below - 2)] - 0.01 < level < cumulative[min(above, len(values) - 1)] + 0.01
            )


def test_samples_of_accuracy_and_of_what_follows_it(tiny, ids):
    memory, given = tiny.encode(ids), {"latency/a": np.array([2.0, 0.3, 70.0])}
    names = ["accuracy", "latency/b"]
    generator = torch.Generator().manual_seed(0)
    drawn = sample(tiny, memory, names, 400, generator, given, [1.0, 1.0], [None, None])
    assert drawn.shape == (3, 400, 2)
    levels = quantile(tiny, memory, ["accuracy"], (0.25, 0.75), given, [1.0], [None])[:, 0]
    shares = [
        np.mean(drawn[i, :, 0] < levels[i, 1]) - np.mean(drawn[i, :, 0] < levels[i, 0]) for i in range(3)
    ]
    assert np.allclose(shares, 0.5, atol=0.15)
    unconditional = decoding.sample(tiny, memory, names, 400, torch.Generator().manual_seed(0))
    assert not np.array_equal(unconditional, drawn)
