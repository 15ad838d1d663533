from dataclasses import asdict

import numpy as np
import pytest

from nas_rlm.surrogates.configurations.process import ConfigurationProcess, LogTransform


def features_of(count, seed=0):
    """Return standardised features of random configurations."""
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_a_power_law_is_extrapolated():
    sizes = np.array([2.0**k for k in range(4, 16)])
    process, left_out = ConfigurationProcess.fit(np.log(sizes)[:, None] - 7, 1.5 * np.log(sizes))
    assert process.is_linear
    np.testing.assert_allclose(left_out, 1.5 * np.log(sizes), atol=0.3)
    means, stds = process.posterior(np.log([[2.0**20], [2.0**10]]) - 7)
    np.testing.assert_allclose(means, 1.5 * np.log([2.0**20, 2.0**10]), atol=0.5)
    assert stds[0] > stds[1]


def test_labels_become_standardised_logarithms():
    labels = np.exp([1.0, 2.0, 3.0])
    transform = LogTransform.fit(labels)
    np.testing.assert_allclose(transform.inverse(transform.forward(labels)), labels)
    np.testing.assert_allclose(transform.forward(labels).mean(), 0, atol=1e-12)
    assert np.isfinite(transform.inverse(np.array([-1e9, 1e9]))).all()
    assert transform.forward(np.array([0.0, -1.0])).max() < -100
    assert LogTransform.from_saved(asdict(transform)) == transform
    with pytest.raises(ValueError, match="above 0"):
        LogTransform.from_saved({**asdict(transform), "std": 0.0})


def test_intervals_hold_where_numbers_say_nothing():
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        process, _ = ConfigurationProcess.fit(features_of(20, seed), rng.normal(size=20))
        means, stds = process.posterior(features_of(200, seed + 100))
        shares.append(np.mean(np.abs(means - rng.normal(size=200)) < 1.2816 * stds))
    assert 0.72 <= np.mean(shares) <= 0.95


def test_saved_parts_are_the_same_and_damaged_ones_are_refused():
    values = features_of(30)
    process, _ = ConfigurationProcess.fit(values, values[:, 0] ** 2)
    again = ConfigurationProcess.from_saved(process.tensors(), process.description(), 3)
    for found, expected in zip(again.posterior(values), process.posterior(values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="expected"):
        ConfigurationProcess.from_saved(process.tensors(), process.description(), 4)
    with pytest.raises(ValueError, match="not above 0"):
        ConfigurationProcess.from_saved(process.tensors(), {**process.description(), "scale": 0.0}, 3)
