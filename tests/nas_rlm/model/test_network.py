from itertools import combinations

import numpy as np
import pytest
import torch

from nas_rlm.model.network import (
    AttentionMask,
    Config,
    KeyValueCache,
    Network,
    StatementEncoder,
    attend,
    rotate,
)
from nas_rlm.text.statements import split_statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER

KINDS = np.array(
    [0, 0, 0, 0, IDENTIFIER, IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT], dtype=np.uint8
)


def network(size: int = 4, **changes: object) -> Network:
    torch.manual_seed(0)
    return Network(
        Config(vocab_size=8, objectives=("accuracy", "latency/a"), size=size, **changes), KINDS
    ).eval()


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


def test_attention_in_bfloat16_is_close_to_float32():
    q, k, v = torch.randn(3, 2, 4, 11, 32)
    mask = torch.zeros(2, 4, 11, 11).masked_fill_(torch.rand(2, 4, 11, 11) < 0.3, -1e4)
    half = attend(*(x.bfloat16() for x in (q, k, v, mask)))
    assert torch.allclose(attend(q, k, v, mask), half.float(), atol=0.05)
    with torch.no_grad():
        assert torch.allclose(
            attend(q, k, v, mask), attend(*(x.bfloat16() for x in (q, k, v, mask))).float(), atol=0.05
        )


def test_attention_does_not_depend_on_the_chunk_size(monkeypatch):
    q, k, v = torch.randn(3, 5, 4, 11, 32).bfloat16()
    for shape in ((5, 1, 1, 11), (5, 4, 11, 11)):
        mask = torch.zeros(shape).masked_fill_(torch.rand(shape) < 0.3, -1e4).bfloat16()
        monkeypatch.undo()
        expected = attend(q, k, v, mask)
        for scores in (1, 4 * 11 * 3, 2 * 4 * 11 * 11):  # one query, three queries, two texts
            monkeypatch.setattr("nas_rlm.model.network.CPU_CACHE_SCORES", scores)
            assert torch.equal(attend(q, k, v, mask), expected)


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


@pytest.mark.parametrize(("name", "value"), [("size", 0), ("vocab_size", "8"), ("mantissa_digits", -1)])
def test_an_invalid_config_is_rejected(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}: expected an integer"):
        Config(**{"vocab_size": 8, "objectives": ("accuracy",), name: value})


def test_decodings_of_one_text_share_its_memory():
    net = network()
    ids = torch.randint(1, 8, (2, 7))
    tokens = torch.tensor([[12, 0], [12, 1], [13, 0], [13, 1]])
    with torch.no_grad():
        shared = net.decode(tokens, net.encode(ids))
        copied = net.decode(tokens, net.encode(ids.repeat_interleave(2, 0)))
    assert torch.allclose(shared, copied, atol=1e-5)


def special_head_mask(ids, head):
    """bool [T, T]: which tokens each token attends to in a statement head (0) or reference head (1)."""
    mask = AttentionMask.from_tokens(torch.tensor([ids]), torch.from_numpy(KINDS), 1, torch.float32)
    attends = np.eye(len(ids), dtype=bool)
    for token_sets, padding_mask, _, _ in mask.groups:
        for row, is_padding in zip(token_sets.numpy(), padding_mask[:, 0, 0].numpy() < 0, strict=True):
            tokens = row[~is_padding]
            if tokens[0] % 2 == head:
                attends[np.ix_(tokens // 2, tokens // 2)] = True
    return attends


def test_special_heads_attend_within_statements_and_references():
    #       v  (  end v  end-of-scope  v  (
    ids = [4, 2, 6, 4, 7, 4, 2]
    statement, reference = special_head_mask(ids, 0), special_head_mask(ids, 1)
    assert statement[0].tolist() == [True, True, True, False, False, False, False]
    assert statement[3].tolist() == [False, False, False, True, True, False, False]
    assert reference[0].tolist() == [True, False, False, True, False, False, False]
    assert reference[5].tolist() == [False, False, False, False, False, True, False]
    assert reference[1].tolist() == [False, True, False, False, False, False, False]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_encoder_attention_equals_attention_under_a_dense_mask(size):
    net = network(size)
    rng = np.random.default_rng(size)
    rows = [rng.integers(1, 8, n) for n in (40, 23, 1)]
    ids = torch.from_numpy(np.stack([np.pad(row, (0, 40 - len(row))) for row in rows]))
    special, attention = net.config.special_heads, net.encoder[0].attention
    x = torch.randn(3, 40, net.config.width)
    mask = AttentionMask.from_tokens(ids, net.kinds, special, x.dtype)
    with torch.no_grad():
        attended = attention(x, mask)
        full = (ids > 0).numpy()[:, None, :].repeat(40, 1)
        head_masks = [[full[b]] * (size - 2 * special) for b in range(3)]
        for row, masks in zip(rows, head_masks, strict=True):
            for head in (0, 1) if special else ():
                masks += [np.pad(special_head_mask(list(row), head), (0, 40 - len(row)))] * special
        dense = torch.zeros(3, size, 40, 40).masked_fill(~torch.from_numpy(np.array(head_masks)), -1e4)
        q, k, v = attention.qkv(x).view(3, 40, 3, size, 32).permute(2, 0, 3, 1, 4)
        expected = attend(rotate(q, mask.rotary), rotate(k, mask.rotary), v, dense)
        expected = attention.out(expected.transpose(1, 2).flatten(2))
    is_token = ids > 0
    assert torch.allclose(attended[is_token], expected[is_token], atol=1e-5)


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
    monkeypatch.setattr("nas_rlm.model.network.MAX_CACHED_STATEMENTS", 4)
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


@pytest.mark.parametrize(
    "changes", [{"statement_layers": -1}, {"statement_layers": 1, "encoder": "minilm", "encoder_width": 8}]
)
def test_an_invalid_number_of_statement_layers_is_rejected(changes):
    with pytest.raises(ValueError, match="statement_layers is"):
        network(**changes)
