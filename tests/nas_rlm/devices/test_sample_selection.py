import numpy as np
import pytest

from nas_rlm.data.synthetic import counted
from nas_rlm.devices.sample_selection import choose, profiles_of
from nas_rlm.surrogates.features import CHAINS
from nas_rlm.text import from_architectures
from tests.nas_rlm.devices.networks import SPACE, cells


def counted_in(count):
    return [*counted(from_architectures(SPACE, cells(count)), CHAINS)]


def reach(profiles, chosen):
    """How far a network is from the nearest of those that are chosen, on average."""
    return np.sqrt(((profiles[:, None] - profiles[None, chosen]) ** 2).sum(2)).min(1).mean()


def test_those_who_are_chosen_are_spread():
    profiles = profiles_of((), "nasbench201", counted_in(200))
    assert np.abs(profiles.mean(0)).max() < 1e-9
    assert profiles.std(0) == pytest.approx(1)
    found = choose(profiles, 12)
    assert found == sorted(set(found)) == choose(profiles, 12)
    rng = np.random.default_rng(0)
    at_random = [reach(profiles, rng.permutation(200)[:12]) for _ in range(20)]
    assert reach(profiles, found) < np.mean(at_random)


def test_no_two_that_are_alike_are_chosen():
    profiles = np.array([[0.0], [0.0], [1.0], [1.0], [7.0]])
    assert choose(profiles, 3) == [0, 2, 4]
    for count in (0, 4):
        with pytest.raises(ValueError, match=f"{count} of 3 networks that differ cannot be chosen"):
            choose(profiles, count)


def test_experts_on_latencies_tell_how_fast_networks_are(shipped_rlm):
    profiles = profiles_of(shipped_rlm.experts["nasbench201"], "nasbench201", counted_in(30))
    assert profiles.shape == (30, 27)
