import numpy as np
import pytest
import torch

from nas_rlm.surrogates import gaussian_process as gaussian_process
from nas_rlm.surrogates.gaussian_process import (
    GaussianProcess,
    compute_alpha,
    fit_hyperparameters,
    fit_to_subsets,
    posterior_mean,
)


def fitted_process(features, group_sizes, targets, num_linear=0):
    hyperparameters = fit_hyperparameters(features, [*group_sizes, num_linear], targets)
    alpha = compute_alpha(features, targets, hyperparameters, num_linear)
    return GaussianProcess(features, targets, hyperparameters, alpha, num_linear)


def smooth(x):
    return torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def test_the_posterior_is_accurate_and_uncertain_far_from_the_data():
    torch.manual_seed(0)
    train, test = torch.randn(80, 6).double(), torch.randn(200, 6).double()
    process = fitted_process(train, [2, 4], smooth(train))
    mean, std = process.posterior(test)
    errors = (mean - smooth(test)).abs()
    assert np.corrcoef(mean, smooth(test))[0, 1] > 0.95
    assert 0.6 < float((errors < 1.28 * std).double().mean()) < 1
    far = torch.full((1, 6), 50.0).double()
    assert process.posterior(far)[1] > 2 * std.mean()
    assert process.posterior(train)[1].mean() < std.mean()


def test_means_use_all_rows_and_variances_at_most_a_number_of_rows(monkeypatch):
    torch.manual_seed(3)
    train, test = torch.randn(80, 3).double(), torch.randn(50, 3).double()
    mean, std = fitted_process(train, [3], smooth(train)).posterior(test)
    monkeypatch.setattr(gaussian_process, "MAX_VARIANCE_ROWS", 20)
    same, wider = fitted_process(train, [3], smooth(train)).posterior(test)
    assert torch.allclose(same, mean)
    assert (wider >= std).all() and wider.mean() > 1.2 * std.mean()


@pytest.mark.parametrize(("shift", "inverse_length"), [(0.0, 1000.0), (500.0, 10.0)])
def test_short_length_scales_and_distant_rows_lose_no_precision(shift, inverse_length):
    """As with numbers of many digits: neighbours are a thousandth of the range apart."""
    train = torch.linspace(-1, 1, 200).double()[:, None] + shift
    test = (train[1:] + train[:-1]) / 2
    hyperparameters = torch.tensor([inverse_length, 1e-4]).double()
    targets = torch.sin(3 * (train[:, 0] - shift))
    alpha = compute_alpha(train, targets, hyperparameters)
    mean, _ = GaussianProcess(train, targets, hyperparameters, alpha).posterior(train)
    assert mean == pytest.approx(targets, abs=0.01)
    far, _ = GaussianProcess(train, targets, hyperparameters, alpha).posterior(test)
    assert far.abs().max() < 1.05


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_single_precision_predicts_as_double_precision(noise):
    torch.manual_seed(6)
    train, test = torch.randn(200, 5).double(), torch.randn(100, 5).double()
    values = smooth(train) + train[:, 4] + noise * torch.randn(200).double()
    process = fitted_process(train, [4], values, num_linear=1)
    mean, std = process.posterior(test)

    def kernel(a, b):
        a, b = a * process.inverse_length_scales, b * process.inverse_length_scales
        distance = 3**0.5 * torch.cdist(a[:, :4], b[:, :4])
        return (1 + distance) * torch.exp(-distance) + a[:, 4:] @ b[:, 4:].T

    between = torch.linalg.inv(kernel(train, train) + process.noise * torch.eye(200))
    across = kernel(test, train)
    explained = (across @ between * across).sum(1)
    variance = process.variance * (
        1 + (test[:, 4] * process.inverse_length_scales[4]).square() + process.noise - explained
    )
    assert ((mean - across @ between @ values).abs() < 0.05 * std).all()
    assert torch.allclose(std, variance.sqrt(), rtol=0.05)


def test_irrelevant_features_have_longer_length_scales():
    torch.manual_seed(1)
    train = torch.randn(80, 12).double()
    scales = fitted_process(train, [2, 10], smooth(train)).inverse_length_scales
    assert scales[:2].min() > 3 * scales[2:].max()


def test_hyperparameters_of_many_rows_are_means_over_blocks(monkeypatch):
    torch.manual_seed(5)
    train = torch.randn(75, 4).double()
    values = smooth(train)
    monkeypatch.setattr(gaussian_process, "BLOCK_SIZE", 20)
    each = [fit_hyperparameters(train[i : i + 20], [2, 2], values[i : i + 20]) for i in (0, 20, 40)]
    assert torch.allclose(
        fit_hyperparameters(train, [2, 2], values), (each[0] * each[1] * each[2]) ** (1 / 3)
    )
    assert torch.allclose(fit_hyperparameters(train[:39], [2, 2], values[:39]), each[0])
    assert (fit_hyperparameters(train[:9], [2, 2], values[:9]) > 0).all()


def test_subsets_are_fitted_as_if_alone():
    torch.manual_seed(6)
    train = torch.randn(24, 5).double()
    values = smooth(train)
    subsets = torch.arange(24) % 3 != torch.tensor([[0], [1], [7]])
    fitted = fit_to_subsets(train, [2, 2, 1], values, subsets, 1)
    for subset, of_subset in zip(subsets, fitted, strict=True):
        alone = fit_hyperparameters(train[subset], [2, 2, 1], values[subset], 1)
        assert torch.allclose(of_subset, alone)


def test_noise_is_separated_from_signal():
    torch.manual_seed(2)
    train = torch.randn(150, 2).double()
    values = smooth(train)
    noisy = fitted_process(train, [2], values + 0.5 * torch.randn(150).double())
    assert noisy.noise > 10 * fitted_process(train, [2], values).noise
    assert 0.4 < float(noisy.posterior(train)[1].mean()) < 0.7


def test_a_linear_kernel_extrapolates():
    torch.manual_seed(4)
    train, test = torch.randn(60, 5).double(), 20 * torch.randn(100, 5).double()
    values = train[:, 1:].sum(1) + 0.1 * torch.randn(60).double()
    process = fitted_process(train, [1], values, num_linear=4)
    mean, std = process.posterior(test)
    alone = fitted_process(train, [5], values).posterior(test)[0]
    true = test[:, 1:].sum(1)
    assert (mean - true).abs().mean() < 0.2 * (alone - true).abs().mean()
    assert std.mean() > 2 * process.posterior(train)[1].mean()


def test_constant_targets():
    process = fitted_process(torch.randn(12, 3).double(), [3], torch.zeros(12).double())
    mean, std = process.posterior(torch.randn(4, 3).double())
    assert torch.isfinite(mean).all() and torch.isfinite(std).all()


def scikit_learn_regressor(hyperparameters, num_linear, variance):
    """Return scikit-learn's regressor with the same kernel, for features times inverse length scales."""
    gaussian_process = pytest.importorskip("sklearn.gaussian_process", reason="scikit-learn is not installed")
    kernels = gaussian_process.kernels

    class LastFeatures(kernels.DotProduct):
        """A linear kernel on the last features; scikit-learn's kernels read all of them."""

        def _last(self, x):
            return None if x is None else x[:, x.shape[1] - num_linear :]

        def __call__(self, x, y=None, eval_gradient=False):
            return super().__call__(self._last(x), self._last(y))

        def diag(self, x):
            return super().diag(self._last(x))

    num_matern = len(hyperparameters) - 1 - num_linear
    kernel = kernels.Matern([1.0] * num_matern + [1e12] * num_linear, "fixed", nu=1.5)
    kernel = kernel + LastFeatures(0.0, "fixed") if num_linear else kernel
    kernel = kernels.ConstantKernel(variance, "fixed") * kernel
    noise = variance * float(hyperparameters[-1])
    return gaussian_process.GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)


def reference_rows(count):
    generator = torch.Generator().manual_seed(count)
    features, candidates = (torch.randn(n, 6, generator=generator).double() for n in (count, 50))
    targets = torch.sin(features[:, 0]) + 0.5 * features[:, 5] + 0.1 * features[:, 1]
    return features, targets, candidates


REFERENCE_HYPERPARAMETERS = torch.tensor([0.9, 0.4, 0.3, 0.2, 0.3, 0.5, 0.03]).double()


@pytest.mark.parametrize("num_linear", [0, 2])
@pytest.mark.parametrize("count", [20, 200])
def test_the_posterior_is_that_of_scikit_learn(count, num_linear):
    features, targets, candidates = reference_rows(count)
    hyperparameters, scales = REFERENCE_HYPERPARAMETERS, REFERENCE_HYPERPARAMETERS[:-1]
    alpha = compute_alpha(features, targets, hyperparameters, num_linear)
    process = GaussianProcess(features, targets, hyperparameters, alpha, num_linear)
    regressor = scikit_learn_regressor(hyperparameters, num_linear, process.variance)
    regressor.fit((features * scales).numpy(), targets.numpy())
    expected, std = regressor.predict((candidates * scales).numpy(), return_std=True)
    mean = posterior_mean(candidates, features, hyperparameters, alpha, num_linear)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    mean, noisy_std = process.posterior(candidates)  # in single precision
    np.testing.assert_allclose(mean, expected, atol=1e-3)
    expected_std = np.sqrt(std**2 + process.variance * float(hyperparameters[-1]))
    np.testing.assert_allclose(noisy_std, expected_std, rtol=2e-3)


@pytest.mark.parametrize("num_linear", [0, 2])
def test_the_gradient_is_that_of_the_marginal_likelihood_of_scikit_learn(num_linear):
    features, targets, _ = reference_rows(60)
    scales, noise = REFERENCE_HYPERPARAMETERS[:-1], REFERENCE_HYPERPARAMETERS[-1:]

    def log_likelihood(parameters):
        hyperparameters = torch.from_numpy(np.exp(parameters))
        variance = float(targets @ compute_alpha(features, targets, hyperparameters, num_linear)) / 60
        regressor = scikit_learn_regressor(hyperparameters, num_linear, variance)
        regressor.fit((features * hyperparameters[:-1]).numpy(), targets.numpy())
        return regressor.log_marginal_likelihood_value_

    logs, step = REFERENCE_HYPERPARAMETERS.log().numpy(), 1e-4
    steps = step * np.eye(len(logs))
    expected = [(log_likelihood(logs + s) - log_likelihood(logs - s)) / (2 * step) for s in steps]
    by_scale, by_noise = gaussian_process._likelihood_gradient(features * scales, targets, noise, num_linear)
    found = [*by_scale.tolist(), float(by_noise * noise)]
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)
