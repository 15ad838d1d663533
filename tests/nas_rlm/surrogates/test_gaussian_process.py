import numpy as np
import pytest
import torch

from nas_rlm.surrogates import gaussian_process as processes
from nas_rlm.surrogates.gaussian_process import Process, solved, weights_of


def process_of(features, groups, values, linear=0):
    weights = weights_of(features, [*groups, linear], values)
    return Process(features, values, weights, solved(features, values, weights, linear), linear)


def smooth(x):
    return torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def test_a_posterior_is_right_and_knows_where_it_is_not():
    torch.manual_seed(0)
    known, asked = torch.randn(80, 6).double(), torch.randn(200, 6).double()
    process = process_of(known, [2, 4], smooth(known))
    mean, deviation = process.posterior(asked)
    errors = (mean - smooth(asked)).abs()
    assert np.corrcoef(mean, smooth(asked))[0, 1] > 0.95
    assert 0.6 < float((errors < 1.28 * deviation).double().mean()) < 1
    far = torch.full((1, 6), 50.0).double()
    assert process.posterior(far)[1] > 2 * deviation.mean()
    assert process.posterior(known)[1].mean() < deviation.mean()


def test_all_values_tell_the_means_and_some_how_sure_they_are(monkeypatch):
    torch.manual_seed(3)
    known, asked = torch.randn(80, 3).double(), torch.randn(50, 3).double()
    mean, deviation = process_of(known, [3], smooth(known)).posterior(asked)
    monkeypatch.setattr(processes, "SURE", 20)
    same, wider = process_of(known, [3], smooth(known)).posterior(asked)
    assert torch.allclose(same, mean)
    assert (wider >= deviation).all() and wider.mean() > 1.2 * deviation.mean()


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_single_precision_tells_what_double_precision_does(noise):
    torch.manual_seed(6)
    known, asked = torch.randn(200, 5).double(), torch.randn(100, 5).double()
    values = smooth(known) + known[:, 4] + noise * torch.randn(200).double()
    process = process_of(known, [4], values, linear=1)
    mean, deviation = process.posterior(asked)

    def kernel(a, b):
        a, b = a * process.weights, b * process.weights
        distance = 3**0.5 * torch.cdist(a[:, :4], b[:, :4])
        return (1 + distance) * torch.exp(-distance) + a[:, 4:] @ b[:, 4:].T

    between = torch.linalg.inv(kernel(known, known) + process.noise * torch.eye(200))
    across = kernel(asked, known)
    told = (across @ between * across).sum(1)
    variance = process.variance * (1 + (asked[:, 4] * process.weights[4]).square() + process.noise - told)
    assert ((mean - across @ between @ values).abs() < 0.05 * deviation).all()
    assert torch.allclose(deviation, variance.sqrt(), rtol=0.05)


def test_features_that_tell_nothing_weigh_less():
    torch.manual_seed(1)
    known = torch.randn(80, 12).double()
    weights = process_of(known, [2, 10], smooth(known)).weights
    assert weights[:2].min() > 3 * weights[2:].max()


def test_parts_of_many_values_tell_weights_and_their_mean_counts(monkeypatch):
    torch.manual_seed(5)
    known = torch.randn(75, 4).double()
    values = smooth(known)
    monkeypatch.setattr(processes, "FEW", 20)
    each = [weights_of(known[i : i + 20], [2, 2], values[i : i + 20]) for i in (0, 20, 40)]
    assert torch.allclose(weights_of(known, [2, 2], values), (each[0] * each[1] * each[2]) ** (1 / 3))
    assert torch.allclose(weights_of(known[:39], [2, 2], values[:39]), each[0])
    assert (weights_of(known[:9], [2, 2], values[:9]) > 0).all()


def test_noise_is_told_from_signal():
    torch.manual_seed(2)
    known = torch.randn(150, 2).double()
    values = smooth(known)
    noisy = process_of(known, [2], values + 0.5 * torch.randn(150).double())
    assert noisy.noise > 10 * process_of(known, [2], values).noise
    assert 0.4 < float(noisy.posterior(known)[1].mean()) < 0.7


def test_a_sum_goes_on_where_nothing_was_measured():
    torch.manual_seed(4)
    known, asked = torch.randn(60, 5).double(), 20 * torch.randn(100, 5).double()
    values = known[:, 1:].sum(1) + 0.1 * torch.randn(60).double()
    process = process_of(known, [1], values, linear=4)
    mean, deviation = process.posterior(asked)
    alone = process_of(known, [5], values).posterior(asked)[0]
    true = asked[:, 1:].sum(1)
    assert (mean - true).abs().mean() < 0.2 * (alone - true).abs().mean()
    assert deviation.mean() > 2 * process.posterior(known)[1].mean()


def test_equal_values():
    process = process_of(torch.randn(12, 3).double(), [3], torch.zeros(12).double())
    mean, deviation = process.posterior(torch.randn(4, 3).double())
    assert torch.isfinite(mean).all() and torch.isfinite(deviation).all()
