import numpy as np
import pytest
import torch

from nas_rlm import RLM
from nas_rlm.benchmarks.baselines.plain import Plain


def test_the_plain_way_draws_numbers_that_are_some(tiny_checkpoint):
    network = RLM.load(tiny_checkpoint).network
    torch.manual_seed(0)
    plain = Plain(network.config).eval()
    ids = torch.randint(1, 200, (3, 11))
    asked = network.config.objective_ids(["accuracy"])[0]
    with torch.inference_mode():
        states, padding = network.states(ids)[0], torch.zeros(3, 11, dtype=torch.bool)
        told = [plain.median(states, padding, asked, 9, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert np.isfinite(told[0]).all()
    assert np.array_equal(*told)
    own, theirs = (sum(p.numel() for p in part.parameters()) for part in (network.decoder, plain.decoder))
    assert theirs == pytest.approx(own, rel=0.1)
