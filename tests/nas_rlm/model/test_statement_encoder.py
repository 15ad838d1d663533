from itertools import combinations

import numpy as np
import pytest
import torch

from nas_rlm.model.attention import AttentionMask
from nas_rlm.model.statement_encoder import StatementEncoder
from nas_rlm.text.statements import split_statements
from tests.nas_rlm.model.small_networks import KINDS, network


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("nas_rlm.text.statements.MAX_STATEMENT_TOKENS", 4)


def test_statement_states_are_cached_until_the_weights_change(monkeypatch, short):
    net, other = network(statement_layers=2), network(statement_layers=2)
    ids = torch.tensor([[4, 2, 6, 5, 4, 6, 4, 2, 6], [5, 1, 1, 6, 4, 2, 6, 0, 0]])
    encoded = []
    encode_batch = StatementEncoder._encode_batch

    def record(self, statements, *arguments):
        encoded.extend(statements)
        return encode_batch(self, statements, *arguments)

    monkeypatch.setattr(StatementEncoder, "_encode_batch", record)
    with torch.inference_mode():
        first = net.encode(ids).key_values[0][0]
        net.encode(ids.flip(0))
    assert len(encoded) == 3
    with torch.no_grad():
        assert torch.equal(net.encode(ids).key_values[0][0], first)
        net.pieces.weight.add_(0.1)
        assert not torch.allclose(net.encode(ids).key_values[0][0], first)
    with_gradients = other.encode(ids).key_values[0][0]
    assert torch.allclose(first, with_gradients, atol=0.05)


@torch.inference_mode()
def test_statement_states_do_not_depend_on_the_cache():
    net, other = network(statement_layers=2), network(statement_layers=2)
    statements = [np.array(row).tobytes() for row in ([4, 2, 6], [5, 6], [1, 2, 3, 6], [2, 5, 6])]
    states = net.statement_encoder(statements, net.pieces, net.kinds)
    for i in (3, 1, 0, 2):
        state = other.statement_encoder([statements[i]], other.pieces, other.kinds)
        assert torch.equal(state, states[[i]])


@torch.inference_mode()
def test_states_of_statements_depend_on_names(short):
    net = network(statement_layers=1)
    texts = [[*first, 1, 1, 6] for first in ([4, 2, 5, 6], [5, 2, 4, 6], [5, 2, 5, 6], [4, 2, 6])]
    states = [net.states(torch.tensor([text]))[0] for text in texts]
    assert len(net.statement_encoder._rows) == 2
    assert not any(torch.allclose(a, b, atol=1e-3) for a, b in combinations(states, 2))


def test_the_statement_cache_is_limited(monkeypatch, short):
    monkeypatch.setattr("nas_rlm.model.statement_encoder.MAX_CACHED_STATEMENTS", 4)
    net, other = network(statement_layers=1), network(statement_layers=1)
    texts = [torch.tensor([[i, j, 6, j, 6]]) for i in range(1, 6) for j in range(1, 6)]
    with torch.inference_mode():
        for ids in texts:
            assert torch.equal(net.encode(ids).key_values[0][0], other.encode(ids).key_values[0][0])
    assert len(net.statement_encoder._rows) <= 4


def test_a_quarter_of_the_heads_attends_to_near_statements(short):
    net = network(statement_layers=1)
    ids = np.array([[4, 2, 6, 3, 6, 5, 6, 4, 6, 1, 0]])
    mask = AttentionMask.from_statements(split_statements(ids, KINDS), net.config, torch.zeros(1, 5, 128))
    *full, near = (mask.per_head[0, head] == 0 for head in range(4))
    assert all(visible.all() for visible in full) and torch.equal(near, near.T)
    assert (~near).nonzero().tolist() == [
        *([0, 2], [0, 4], [1, 3], [1, 4], [2, 0], [2, 4], [3, 1], [4, 0], [4, 1], [4, 2])
    ]
