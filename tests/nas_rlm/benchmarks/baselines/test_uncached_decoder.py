import numpy as np
import pytest
import torch

from nas_rlm import RLM
from nas_rlm.benchmarks.baselines.uncached_decoder import UncachedDecoder


def test_medians_are_finite_and_reproducible(tiny_checkpoint):
    network = RLM.load(tiny_checkpoint).network
    torch.manual_seed(0)
    baseline = UncachedDecoder(network.config).eval()
    ids = torch.randint(1, 200, (3, 11))
    token = network.config.objective_ids(["accuracy"])[0]
    with torch.inference_mode():
        states, padding = network.states(ids)[0], torch.zeros(3, 11, dtype=torch.bool)
        medians = [
            baseline.median(states, padding, token, 9, torch.Generator().manual_seed(1)) for _ in range(2)
        ]
    assert np.isfinite(medians[0]).all()
    assert np.array_equal(*medians)
    own, theirs = (sum(p.numel() for p in part.parameters()) for part in (network.decoder, baseline.decoder))
    assert theirs == pytest.approx(own, rel=0.1)
