import pytest
import torch

from nas_rlm.model.attention import KeyValueCache
from tests.nas_rlm.model.small_networks import network


def test_size_scales_width_and_layers():
    small, large = network(2), network(6)
    assert (len(small.encoder), small.config.width, len(small.decoder)) == (2, 64, 1)
    assert (len(large.encoder), large.config.width, len(large.decoder)) == (6, 192, 2)


@pytest.mark.parametrize("statements", [0, 1])
def test_padding_changes_nothing(statements):
    net = network(statement_layers=statements)
    ids = torch.tensor([[2, 4, 3, 6, 4, 7]])
    padded = torch.cat([ids, torch.zeros(1, 5, dtype=torch.long)], 1)
    tokens = torch.tensor([[12, 0, 1, 3]])
    with torch.no_grad():
        assert torch.allclose(net(ids, tokens), net(padded, tokens), atol=1e-5)


def test_decoding_with_a_cache_equals_decoding_the_full_prefix():
    net = network(6)
    memory = net.encode(torch.randint(1, 8, (3, 9)))
    tokens = torch.tensor([[12, 0, 1, 4, 5]] * 3)
    with torch.no_grad():
        full = net.decode(tokens, memory)
        caches = [KeyValueCache() for _ in net.decoder]
        steps = torch.cat([net.decode(tokens[:, i : i + 1], memory, caches) for i in range(5)], 1)
    assert torch.allclose(full, steps, atol=1e-5)


def test_several_tokens_may_follow_a_cached_prefix():
    net = network(6)
    memory = net.encode(torch.randint(1, 8, (3, 9)))
    tokens = torch.randint(0, 12, (3, 7))
    with torch.no_grad():
        caches = [KeyValueCache() for _ in net.decoder]
        chunks = [net.decode(chunk, memory, caches) for chunk in tokens.split([2, 4, 1], 1)]
        assert torch.allclose(net.decode(tokens, memory), torch.cat(chunks, 1), atol=1e-5)


def test_texts_are_encoded_in_bfloat16_without_gradients(monkeypatch):
    net, ids = network(), torch.tensor([[2, 4, 3, 6, 4, 7], [2, 4, 6, 0, 0, 0]])

    def encode(use_bfloat16):
        monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: use_bfloat16)
        ((keys, values),) = net.encode(ids).key_values
        return torch.stack([keys, values])

    with torch.no_grad():
        approximate, exact = encode(True), encode(False)
    assert approximate.dtype == exact.dtype == torch.float32
    assert 0 < (approximate - exact).abs().max() < 0.02 * exact.abs().max()
    assert (encode(True) == exact).all()  # with gradients


def test_decodings_of_one_text_share_its_memory():
    net = network()
    ids = torch.randint(1, 8, (2, 7))
    tokens = torch.tensor([[12, 0], [12, 1], [13, 0], [13, 1]])
    with torch.no_grad():
        shared = net.decode(tokens, net.encode(ids))
        copied = net.decode(tokens, net.encode(ids.repeat_interleave(2, 0)))
    assert torch.allclose(shared, copied, atol=1e-5)
