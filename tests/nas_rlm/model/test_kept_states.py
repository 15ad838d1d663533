"""Kept states of texts: the logits of the network, and each text is encoded once."""

import pytest
import torch

from nas_rlm.model import kept_states
from nas_rlm.model.kept_states import KeptStates
from tests.nas_rlm.model.small_networks import network

IDS = torch.tensor([[2, 4, 3, 6, 4, 7, 5, 3], [5, 4, 3, 0, 0, 0, 0, 0], [2, 4, 6, 6, 1, 0, 0, 0]])


@pytest.mark.parametrize("statements", [0, 1])
@pytest.mark.parametrize(("max_bytes", "encoded"), [(2**30, [2, 1]), (0, [2, 2, 1, 2])])
@torch.no_grad()
def test_logits_are_those_of_the_network_and_texts_are_encoded_once(
    monkeypatch, statements, max_bytes, encoded
):
    monkeypatch.setattr(kept_states, "MAX_BYTES", max_bytes)
    net = network(statement_layers=statements)
    batches = [IDS[rows] for rows in ([0, 1], [2, 1, 1], [1], [2, 0])]
    tokens = torch.tensor([[12, 0, 1, 3]])
    expected = [net(ids, tokens.expand(len(ids), -1)) for ids in batches]
    counts, compute = [], net._states
    monkeypatch.setattr(net, "_states", lambda ids: counts.append(len(ids)) or compute(ids))
    net.kept_states = KeptStates()
    for ids, logits in zip(batches, expected, strict=True):
        assert torch.allclose(net(ids, tokens.expand(len(ids), -1)), logits, atol=1e-5)
    assert counts == encoded
