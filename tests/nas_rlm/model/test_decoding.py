from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import expit

from nas_rlm.model.decoding import _Descent, quantile, sample
from nas_rlm.model.network import Config, Network
from tests.nas_rlm.model.test_numbers import leaves, numbers_below


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Texts are encoded in float32, so that each digit of a number is told."""
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)


@pytest.fixture(scope="module", params=[1, 2])
def tiny(request):
    """A network with few enough numbers to list, its distribution far from uniform."""
    torch.manual_seed(request.param)
    config = Config(vocab_size=8, objectives=("accuracy", "latency/a"), size=1, mantissa_digits=request.param)
    network = Network(config, np.zeros(8, dtype=np.uint8)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


@torch.no_grad()
def enumerated(
    network: Network, ids: torch.Tensor, given: list[int], objective: str, belief=None
) -> tuple[np.ndarray, np.ndarray]:
    """All numbers in ascending order and their probabilities, from the plain forward pass.

    A belief tells how likely the number is between edges.
    """
    scheme = network.config.scheme
    every = leaves(scheme)
    named = network.config.objective_ids([objective])
    tokens = torch.tensor([[*given, *named, *leaf] for leaf in every])
    logits = network(ids.expand(len(every), -1), tokens)
    probability = np.ones(len(every))
    spans = numbers_below(scheme)
    for row, leaf in enumerate(every):
        for i, token in enumerate(leaf):
            valid = scheme.children(leaf[:i])
            p = logits[row, len(given) + i, valid].double().softmax(0)
            if belief is not None and i < scheme.length - 1:
                below = [spans[(*leaf[:i], c)] for c in valid]
                between = [(a[-1] + b[0]) / 2 for a, b in pairwise(below)]
                p = p * torch.from_numpy(belief([below[0][0], *between, below[-1][-1]]))
                p = p / p.sum()
            probability[row] *= float(p[valid.index(token)])
    return np.array([scheme.decode(leaf) for leaf in every]), probability


def exact_quantile(values: np.ndarray, probability: np.ndarray, level: float) -> float:
    return float(values[np.searchsorted(np.cumsum(probability), level)])


def test_quantiles_equal_those_of_the_enumerated_distribution(tiny):
    ids = torch.randint(1, 8, (4, 5), generator=torch.Generator().manual_seed(3))
    levels = (0.1, 0.5, 0.77)
    found = quantile(tiny, tiny.encode(ids), ["accuracy", "latency/a"], levels)
    for row in range(4):
        for k, objective in enumerate(("accuracy", "latency/a")):
            values, p = enumerated(tiny, ids[row : row + 1], [], objective)
            assert p.sum() == pytest.approx(1, abs=1e-5)
            assert found[row, k].tolist() == [exact_quantile(values, p, q) for q in levels]


class Wide:
    """Logistic beliefs about two texts, far from each other."""

    middles = 3.0, 700.0
    temperature = 1.0

    def shares(self, edges):
        return np.stack([self.of_text(k, edges[k]) for k in range(2)])

    def of_text(self, k, edges):
        return np.diff(expit(np.array(edges) / self.middles[k] - 1)) + 1e-9


def test_a_belief_is_a_factor_of_each_digit(tiny):
    ids = torch.randint(1, 8, (2, 5), generator=torch.Generator().manual_seed(3))
    memory, levels = tiny.encode(ids), (0.1, 0.5, 0.77)
    names = ["accuracy", "latency/a"]
    found = quantile(tiny, memory, names, levels, beliefs=[None, Wide()])
    assert (found[:, 0] == quantile(tiny, memory, names, levels)[:, 0]).all()
    drawn = sample(tiny, memory, ["latency/a"], 4000, torch.Generator().manual_seed(0), beliefs=[Wide()])
    for row in range(2):
        values, p = enumerated(tiny, ids[row : row + 1], [], "latency/a", partial(Wide().of_text, row))
        assert found[row, 1].tolist() == [exact_quantile(values, p, q) for q in levels]
        cut = found[row, 1, 1]
        assert abs((drawn[row] <= cut).mean() - np.cumsum(p)[values == cut][0]) < 0.04


class Narrow:
    """A belief in numbers near five.

    Args:
        temperature: of what network and belief say together.
    """

    def __init__(self, temperature):
        self.temperature = temperature

    def shares(self, edges):
        return np.diff(expit(4 * (edges - 5))) + 1e-9


def test_a_temperature_of_its_own_widens_what_is_believed():
    torch.manual_seed(0)
    network = Network(Config(vocab_size=8, objectives=("accuracy",), size=1), np.zeros(8, dtype=np.uint8))
    memory = network.encode(torch.randint(1, 8, (2, 5)))
    cold, warm = (
        quantile(network, memory, ["accuracy"], (0.1, 0.9), beliefs=[Narrow(t)])[:, 0] for t in (1, 4)
    )
    assert (warm[:, 1] - warm[:, 0] > 2 * (cold[:, 1] - cold[:, 0])).all()


def test_a_network_of_high_temperature_leaves_it_to_the_belief(tiny):
    memory = tiny.encode(torch.randint(1, 8, (2, 5)))
    near = [
        np.abs(quantile(tiny, memory, ["accuracy"], (0.5,), [t], [Narrow(1.0)])[:, 0, 0] - 5).max()
        for t in (0.2, 1e6)
    ]
    assert near[1] < 0.1 and near[1] < near[0]


@pytest.mark.parametrize("sharpness", [0.1, 1, 30])
def test_quantiles_rise_with_their_level(sharpness):
    torch.manual_seed(0)
    network = Network(Config(vocab_size=8, objectives=("accuracy",), size=2), np.zeros(8, dtype=np.uint8))
    torch.nn.init.normal_(network.digits.weight, std=sharpness)
    memory = network.encode(torch.randint(1, 8, (16, 5)))
    found = quantile(network, memory, ["accuracy"], np.linspace(1e-6, 1 - 1e-6, 41).tolist())[:, 0]
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()


def test_long_lists_of_objectives_do_not_matter(monkeypatch):
    torch.manual_seed(1)
    names = ("accuracy", *(f"latency/{c}" for c in "abcdef"))
    network = Network(Config(vocab_size=8, objectives=names, size=2, numbers=3), np.zeros(8, dtype=np.uint8))
    torch.nn.init.normal_(network.digits.weight, std=3)
    memory = network.encode(torch.randint(1, 8, (9, 5)))
    found = quantile(network, memory, names, [0.2, 0.5], [1, 2, 3, 1, 1, 1, 1])
    monkeypatch.setattr("nas_rlm.model.decoding.TOGETHER", 6)
    assert (quantile(network, memory, names, [0.2, 0.5], [1, 2, 3, 1, 1, 1, 1]) == found).all()
    for k, name in enumerate(names):
        alone = quantile(network, memory, [name], [0.2, 0.5], [[1, 2, 3, 1, 1, 1, 1][k]])
        assert (found[:, k : k + 1] == alone).all()


def test_samples_are_written_in_sequences_as_long_as_training_showed():
    """With all mass on one child at each digit, a draw is what follows from the numbers before it."""
    torch.manual_seed(1)
    names = ("accuracy", *(f"latency/{c}" for c in "abcdef"))
    network = Network(Config(vocab_size=8, objectives=names, size=2, numbers=3), np.zeros(8, dtype=np.uint8))
    torch.nn.init.normal_(network.digits.weight, std=300)
    memory = network.encode(torch.randint(1, 8, (9, 5)))

    def drawn(*objectives):
        return sample(network, memory, objectives, 2, torch.Generator().manual_seed(0))

    whole = drawn(*names)
    for start in (1, 3, 5):
        assert (
            whole[:, :, start : start + 2] == drawn(names[0], *names[start : start + 2])[:, :, 1:]
        ).mean() > 0.95


def test_a_certain_number_is_every_quantile():
    """All mass on one child at each digit leaves nothing for rounding to choose."""
    p = torch.zeros(3, 10, dtype=torch.float64)
    p[[0, 1, 2], [0, 4, 9]] = 1
    descent = _Descent(torch.tensor([[1e-12], [0.5], [1.0]], dtype=torch.float64))
    assert descent(p)[:, 0].tolist() == [0, 4, 9]
    assert descent.level[:, 0].tolist() == [1e-12, 0.5, 1.0]


def test_the_median_of_samples_approaches_the_exact_one(tiny):
    memory = tiny.encode(torch.randint(1, 8, (3, 5)))
    around = quantile(tiny, memory, ["accuracy"], (0.45, 0.55))[:, 0]
    drawn = np.median(sample(tiny, memory, ["accuracy"], 3001, torch.Generator().manual_seed(0))[:, :, 0], 1)
    assert (around[:, 0] <= drawn).all() and (drawn <= around[:, 1]).all()


def test_the_second_objective_does_not_depend_on_the_levels_that_are_asked(tiny):
    ids = torch.randint(1, 8, (3, 5))
    memory = tiny.encode(ids)
    outer = quantile(tiny, memory, ["accuracy", "latency/a"], (0.1, 0.9))
    all_three = quantile(tiny, memory, ["accuracy", "latency/a"], (0.1, 0.5, 0.9))
    assert np.array_equal(outer, all_three[:, :, [0, 2]])


def test_samples_follow_the_enumerated_distribution(tiny):
    ids = torch.randint(1, 8, (1, 5))
    values, p = enumerated(tiny, ids, [], "accuracy")
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
