import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.devices.choice import choose, profiles
from nas_rlm.text import from_architectures

from .networks import SPACE, cells


def test_those_who_are_chosen_are_spread_and_differ(tiny_checkpoint):
    rlm, some = RLM.load(tiny_checkpoint), cells(200)
    found = choose(rlm, SPACE, some, 12)
    assert found == sorted(set(found)) == choose(rlm, SPACE, some, 12)
    assert len({SPACE.key(some[i]) for i in found}) == 12
    known = profiles(rlm, "nasbench201", from_architectures(SPACE, some))
    assert np.abs(known.mean(0)).max() < 1e-9

    def reach(chosen):
        return np.sqrt(((known[:, None] - known[None, chosen]) ** 2).sum(2)).min(1).mean()

    rng = np.random.default_rng(0)
    at_random = [reach(rng.permutation(200)[:12]) for _ in range(20)]
    assert reach(found) < np.mean(at_random)


def test_experts_on_latencies_tell_how_fast_networks_are(shipped_rlm):
    texts = from_architectures(SPACE, cells(30))
    known = profiles(shipped_rlm, "nasbench201", texts)
    assert known.shape == (30, 27)


def test_no_more_than_there_are(tiny_checkpoint):
    rlm, one = RLM.load(tiny_checkpoint), cells(1)
    with pytest.raises(ValueError, match="2 of 1 networks that differ cannot be chosen"):
        choose(rlm, SPACE, [*one, *one], 2)
