from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import expit

from nas_rlm.model.decoding import _QuantileWalk, log_probability, quantile, sample
from nas_rlm.model.network import Config, Network
from tests.nas_rlm.model.test_numbers import leaves, numbers_below


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Encode texts in float32, so that all digits of a number are reproducible."""
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)


@pytest.fixture(scope="module", params=[1, 2])
def tiny(request):
    """A network with so few numbers that all can be enumerated, and a distribution far from uniform."""
    torch.manual_seed(request.param)
    config = Config(vocab_size=8, objectives=("accuracy", "latency/a"), size=1, mantissa_digits=request.param)
    network = Network(config, np.zeros(8, dtype=np.uint8)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


@torch.no_grad()
def enumerate_distribution(
    network: Network, ids: torch.Tensor, objective: str, interval_probabilities=None
) -> tuple[np.ndarray, np.ndarray]:
    """All numbers in ascending order and their probabilities, from the plain forward pass.

    Args:
        network: the model.
        ids: of one text.
        objective: its name.
        interval_probabilities: of a surrogate; from edges to the probabilities between them.
    """
    scheme = network.config.scheme
    numbers = leaves(scheme)
    (objective_id,) = network.config.objective_ids([objective])
    tokens = torch.tensor([[objective_id, *leaf] for leaf in numbers])
    logits = network(ids.expand(len(numbers), -1), tokens)
    probability = np.ones(len(numbers))
    below_prefix = numbers_below(scheme)
    of_children = {}  # of each prefix, the probabilities of the tokens that may follow
    for row, leaf in enumerate(numbers):
        for i, token in enumerate(leaf):
            if leaf[:i] not in of_children:
                valid = scheme.children(leaf[:i])
                p = logits[row, i, valid].double().softmax(0)
                if interval_probabilities is not None and i < scheme.length - 1:
                    below = [below_prefix[(*leaf[:i], c)] for c in valid]
                    midpoints = [(a[-1] + b[0]) / 2 for a, b in pairwise(below)]
                    p = p * torch.from_numpy(interval_probabilities([below[0][0], *midpoints, below[-1][-1]]))
                    p = p / p.sum()
                of_children[leaf[:i]] = dict(zip(valid, p.tolist(), strict=True))
            probability[row] *= of_children[leaf[:i]][token]
    return np.array([below_prefix[leaf][0] for leaf in numbers]), probability


def exact_quantile(values: np.ndarray, probability: np.ndarray, level: float) -> float:
    return float(values[np.searchsorted(np.cumsum(probability), level)])


def test_quantiles_equal_those_of_the_enumerated_distribution(tiny):
    ids = torch.randint(1, 8, (2, 5), generator=torch.Generator().manual_seed(3))
    levels = (0.1, 0.5, 0.77)
    quantiles = quantile(tiny, tiny.encode(ids), ["accuracy", "latency/a"], levels)
    for row in range(2):
        for k, objective in enumerate(("accuracy", "latency/a")):
            values, p = enumerate_distribution(tiny, ids[row : row + 1], objective)
            assert p.sum() == pytest.approx(1, abs=1e-5)
            assert quantiles[row, k].tolist() == [exact_quantile(values, p, q) for q in levels]


class TwoTexts:
    """Logistic distributions of two texts, with medians far from each other."""

    scales = 3.0, 700.0
    temperature = 1.0
    network_weight, is_alone = None, False

    def interval_probabilities(self, edges):
        return np.stack([self.of_text(k, edges[k]) for k in range(2)])

    def of_text(self, k, edges):
        return np.diff(expit(np.array(edges) / self.scales[k] - 1)) + 1e-9


def test_a_surrogate_multiplies_the_probabilities_of_each_digit(tiny):
    ids = torch.randint(1, 8, (2, 5), generator=torch.Generator().manual_seed(3))
    memory, levels = tiny.encode(ids), (0.1, 0.5, 0.77)
    names = ["accuracy", "latency/a"]
    quantiles = quantile(tiny, memory, names, levels, distributions=[None, TwoTexts()])
    assert (quantiles[:, 0] == quantile(tiny, memory, names, levels)[:, 0]).all()
    generator = torch.Generator().manual_seed(0)
    drawn = sample(tiny, memory, ["latency/a"], 4000, generator, distributions=[TwoTexts()])
    for row in range(2):
        of_text = partial(TwoTexts().of_text, row)
        values, p = enumerate_distribution(tiny, ids[row : row + 1], "latency/a", of_text)
        assert quantiles[row, 1].tolist() == [exact_quantile(values, p, q) for q in levels]
        cut = quantiles[row, 1, 1]
        assert abs((drawn[row] <= cut).mean() - np.cumsum(p)[values == cut][0]) < 0.04


class NearFive:
    """A narrow distribution around 5.

    Args:
        temperature: of the product of network and surrogate.
    """

    def __init__(self, temperature):
        self.temperature, self.network_weight, self.is_alone = temperature, None, False

    def interval_probabilities(self, edges):
        return np.diff(expit(4 * (edges - 5))) + 1e-9


def test_the_temperature_of_a_surrogate_widens_the_product():
    torch.manual_seed(0)
    network = Network(Config(vocab_size=8, objectives=("accuracy",), size=1), np.zeros(8, dtype=np.uint8))
    memory = network.encode(torch.randint(1, 8, (2, 5)))
    cold, warm = (
        quantile(network, memory, ["accuracy"], (0.1, 0.9), distributions=[NearFive(t)])[:, 0] for t in (1, 4)
    )
    assert (warm[:, 1] - warm[:, 0] > 2 * (cold[:, 1] - cold[:, 0])).all()


def test_with_a_high_network_temperature_the_surrogate_decides(tiny):
    memory = tiny.encode(torch.randint(1, 8, (2, 5)))
    distances = [
        np.abs(quantile(tiny, memory, ["accuracy"], (0.5,), [t], [NearFive(1.0)])[:, 0, 0] - 5).max()
        for t in (0.2, 1e6)
    ]
    assert distances[1] < 0.1 and distances[1] < distances[0]


@pytest.mark.parametrize("sharpness", [0.1, 1, 30])
def test_quantiles_rise_with_their_level(sharpness):
    torch.manual_seed(0)
    network = Network(Config(vocab_size=8, objectives=("accuracy",), size=2), np.zeros(8, dtype=np.uint8))
    torch.nn.init.normal_(network.digits.weight, std=sharpness)
    memory = network.encode(torch.randint(1, 8, (16, 5)))
    quantiles = quantile(network, memory, ["accuracy"], np.linspace(1e-6, 1 - 1e-6, 41).tolist())[:, 0]
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles) >= 0).all()


def test_quantiles_do_not_depend_on_the_other_objectives(monkeypatch):
    torch.manual_seed(1)
    names = ("accuracy", *(f"latency/{c}" for c in "abcdef"))
    network = Network(
        Config(vocab_size=8, objectives=names, size=2, max_numbers=3), np.zeros(8, dtype=np.uint8)
    )
    torch.nn.init.normal_(network.digits.weight, std=3)
    memory = network.encode(torch.randint(1, 8, (9, 5)))
    quantiles = quantile(network, memory, names, [0.2, 0.5], [1, 2, 3, 1, 1, 1, 1])
    monkeypatch.setattr("nas_rlm.model.decoding.MAX_PARALLEL_DECODINGS", 6)
    assert (quantile(network, memory, names, [0.2, 0.5], [1, 2, 3, 1, 1, 1, 1]) == quantiles).all()
    for k, name in enumerate(names):
        single = quantile(network, memory, [name], [0.2, 0.5], [[1, 2, 3, 1, 1, 1, 1][k]])
        assert (quantiles[:, k : k + 1] == single).all()


def test_sampled_sequences_are_as_long_as_those_of_the_training():
    """With all probability on one child at each digit, a sample depends only on the numbers before it."""
    torch.manual_seed(1)
    names = ("accuracy", *(f"latency/{c}" for c in "abcdef"))
    network = Network(
        Config(vocab_size=8, objectives=names, size=2, max_numbers=3), np.zeros(8, dtype=np.uint8)
    )
    torch.nn.init.normal_(network.digits.weight, std=300)
    memory = network.encode(torch.randint(1, 8, (9, 5)))

    def draw(*objectives):
        return sample(network, memory, objectives, 2, torch.Generator().manual_seed(0))

    all_samples = draw(*names)
    for start in (1, 3, 5):
        expected = draw(names[0], *names[start : start + 2])[:, :, 1:]
        assert (all_samples[:, :, start : start + 2] == expected).mean() > 0.95


def test_a_certain_number_is_every_quantile():
    """With all probability on one child, rounding has no influence."""
    p = torch.zeros(3, 10, dtype=torch.float64)
    p[[0, 1, 2], [0, 4, 9]] = 1
    walk = _QuantileWalk(torch.tensor([[1e-12], [0.5], [1.0]], dtype=torch.float64))
    assert walk(p)[:, 0].tolist() == [0, 4, 9]
    assert walk.level[:, 0].tolist() == [1e-12, 0.5, 1.0]


def test_the_median_of_samples_approaches_the_exact_one(tiny):
    memory = tiny.encode(torch.randint(1, 8, (3, 5)))
    interval = quantile(tiny, memory, ["accuracy"], (0.45, 0.55))[:, 0]
    drawn = np.median(sample(tiny, memory, ["accuracy"], 3001, torch.Generator().manual_seed(0))[:, :, 0], 1)
    assert (interval[:, 0] <= drawn).all() and (drawn <= interval[:, 1]).all()


def test_quantiles_do_not_depend_on_the_other_levels(tiny):
    ids = torch.randint(1, 8, (3, 5))
    memory = tiny.encode(ids)
    two_levels = quantile(tiny, memory, ["accuracy", "latency/a"], (0.1, 0.9))
    three_levels = quantile(tiny, memory, ["accuracy", "latency/a"], (0.1, 0.5, 0.9))
    assert np.array_equal(two_levels, three_levels[:, :, [0, 2]])


def test_samples_follow_the_enumerated_distribution(tiny):
    ids = torch.randint(1, 8, (1, 5))
    values, p = enumerate_distribution(tiny, ids, "accuracy")
    drawn = sample(tiny, tiny.encode(ids), ["accuracy"], 4000, torch.Generator().manual_seed(0))[0, :, 0]
    assert set(drawn) <= set(values)
    below = np.cumsum(p)
    for level in (0.2, 0.5, 0.8):
        cut = values[np.searchsorted(below, level)]
        assert abs((drawn <= cut).mean() - below[values == cut][0]) < 0.04


def test_samples_are_reproducible_and_joint(tiny):
    memory = tiny.encode(torch.randint(1, 8, (2, 5)))
    a, b = (
        sample(tiny, memory, ["accuracy", "latency/a"], 16, torch.Generator().manual_seed(7))
        for _ in range(2)
    )
    assert a.shape == (2, 16, 2)
    assert np.array_equal(a, b)


def test_log_probabilities_are_those_of_all_numbers(tiny):
    ids = torch.tensor([[3, 5, 6]])
    numbers, probabilities = enumerate_distribution(tiny, ids, "latency/a")
    drawn = np.append(numbers[::7], np.nan)[None]
    with torch.inference_mode():
        logs = log_probability(tiny, tiny.encode(ids), "latency/a", drawn)
    np.testing.assert_allclose(np.exp(logs[0, :-1]), probabilities[::7], rtol=1e-4, atol=1e-9)
    assert np.isnan(logs[0, -1])
