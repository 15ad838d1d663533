from itertools import combinations

import numpy as np
import pytest
import torch

from nas_rlm.model.network import Cache, Config, Network, Sight, StatementEncoder, attend, rotate
from nas_rlm.text.statements import statements as statements_of
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER

KINDS = np.array(
    [0, 0, 0, 0, IDENTIFIER, IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT], dtype=np.uint8
)


def network(size: int = 4, **changes: object) -> Network:
    torch.manual_seed(0)
    return Network(
        Config(vocab_size=8, objectives=("accuracy", "latency/a"), size=size, **changes), KINDS
    ).eval()


def test_one_dial_sets_the_size():
    small, large = network(2), network(6)
    assert (len(small.encoder), small.config.width, len(small.decoder)) == (2, 64, 1)
    assert (len(large.encoder), large.config.width, len(large.decoder)) == (6, 192, 2)


@pytest.mark.parametrize("statements", [0, 1])
def test_padding_changes_nothing(statements):
    net = network(statements=statements)
    ids = torch.tensor([[2, 4, 3, 6, 4, 7]])
    padded = torch.cat([ids, torch.zeros(1, 5, dtype=torch.long)], 1)
    tokens = torch.tensor([[12, 0, 1, 3]])
    with torch.no_grad():
        assert torch.allclose(net(ids, tokens), net(padded, tokens), atol=1e-5)


def test_the_cache_gives_what_the_whole_prefix_gives():
    net = network(6)
    memory = net.encode(torch.randint(1, 8, (3, 9)))
    tokens = torch.tensor([[12, 0, 1, 4, 5]] * 3)
    with torch.no_grad():
        whole = net.decode(tokens, memory)
        caches = [Cache() for _ in net.decoder]
        steps = torch.cat([net.decode(tokens[:, i : i + 1], memory, caches) for i in range(5)], 1)
    assert torch.allclose(whole, steps, atol=1e-5)


def test_several_tokens_may_follow_a_cached_prefix():
    net = network(6)
    memory = net.encode(torch.randint(1, 8, (3, 9)))
    tokens = torch.randint(0, 12, (3, 7))
    with torch.no_grad():
        caches = [Cache() for _ in net.decoder]
        parts = [net.decode(part, memory, caches) for part in tokens.split([2, 4, 1], 1)]
        assert torch.allclose(net.decode(tokens, memory), torch.cat(parts, 1), atol=1e-5)


def test_bfloat16_attends_as_float32_does():
    q, k, v = torch.randn(3, 2, 4, 11, 32)
    mask = torch.zeros(2, 4, 11, 11).masked_fill_(torch.rand(2, 4, 11, 11) < 0.3, -1e4)
    half = attend(*(x.bfloat16() for x in (q, k, v, mask)))
    assert torch.allclose(attend(q, k, v, mask), half.float(), atol=0.05)
    with torch.no_grad():
        assert torch.allclose(
            attend(q, k, v, mask), attend(*(x.bfloat16() for x in (q, k, v, mask))).float(), atol=0.05
        )


def test_inputs_attend_alike_one_at_a_time_and_all_at_once(monkeypatch):
    q, k, v = torch.randn(3, 5, 4, 11, 32).bfloat16()
    mask = torch.zeros(5, 1, 1, 11).masked_fill_(torch.rand(5, 1, 1, 11) < 0.3, -1e4).bfloat16()
    whole = attend(q, k, v, mask)
    for scores in (1, 2 * 4 * 11 * 11):
        monkeypatch.setattr("nas_rlm.model.network.CACHED", scores)
        assert torch.equal(attend(q, k, v, mask), whole)


def test_texts_are_encoded_in_bfloat16_where_nothing_is_learnt(monkeypatch):
    net, ids = network(), torch.tensor([[2, 4, 3, 6, 4, 7], [2, 4, 6, 0, 0, 0]])

    def encoded(half):
        monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: half)
        ((keys, values),) = net.encode(ids).key_values
        return torch.stack([keys, values])

    with torch.no_grad():
        rough, exact = encoded(True), encoded(False)
    assert rough.dtype == exact.dtype == torch.float32
    assert 0 < (rough - exact).abs().max() < 0.02 * exact.abs().max()
    assert (encoded(True) == exact).all()  # as it is learnt from


@pytest.mark.parametrize(("name", "value"), [("size", 0), ("vocab_size", "8"), ("mantissa_digits", -1)])
def test_a_config_that_builds_no_network_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}: expected a whole number"):
        Config(**{"vocab_size": 8, "objectives": ("accuracy",), name: value})


def test_decodings_of_one_input_share_its_memory():
    net = network()
    ids = torch.randint(1, 8, (2, 7))
    tokens = torch.tensor([[12, 0], [12, 1], [13, 0], [13, 1]])
    with torch.no_grad():
        shared = net.decode(tokens, net.encode(ids))
        copied = net.decode(tokens, net.encode(ids.repeat_interleave(2, 0)))
    assert torch.allclose(shared, copied, atol=1e-5)


def seen(ids, head):
    """Which tokens each token of a text sees in a special head, 0 for statements and 1 for references."""
    sight = Sight.of(torch.tensor([ids]), torch.from_numpy(KINDS), 1, torch.float32)
    found = np.eye(len(ids), dtype=bool)
    for places, mask, _, _ in sight.groups:
        for row, hidden in zip(places.numpy(), mask[:, 0, 0].numpy() < 0, strict=True):
            tokens = row[~hidden]
            if tokens[0] % 2 == head:
                found[np.ix_(tokens // 2, tokens // 2)] = True
    return found


def test_heads_see_statements_and_references():
    #       v  (  end v  end-of-scope  v  (
    ids = [4, 2, 6, 4, 7, 4, 2]
    statement, reference = seen(ids, 0), seen(ids, 1)
    assert statement[0].tolist() == [True, True, True, False, False, False, False]
    assert statement[3].tolist() == [False, False, False, True, True, False, False]
    assert reference[0].tolist() == [True, False, False, True, False, False, False]
    assert reference[5].tolist() == [False, False, False, False, False, True, False]
    assert reference[1].tolist() == [False, True, False, False, False, False, False]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_heads_attend_as_under_a_mask_of_all_pairs(size):
    net = network(size)
    rng = np.random.default_rng(size)
    rows = [rng.integers(1, 8, n) for n in (40, 23, 1)]
    ids = torch.from_numpy(np.stack([np.pad(row, (0, 40 - len(row))) for row in rows]))
    special, attention = net.config.special_heads, net.encoder[0].attention
    x = torch.randn(3, 40, net.config.width)
    sight = Sight.of(ids, net.kinds, special, x.dtype)
    with torch.no_grad():
        found = attention(x, sight)
        whole = (ids > 0).numpy()[:, None, :].repeat(40, 1)
        masks = [[whole[b]] * (size - 2 * special) for b in range(3)]
        for row, mask in zip(rows, masks, strict=True):
            pairs = [np.pad(seen(list(row), head), (0, 40 - len(row))) for head in (0, 1) if special]
            mask += [pair for pair in pairs for _ in range(special)]
        dense = torch.zeros(3, size, 40, 40).masked_fill(~torch.from_numpy(np.array(masks)), -1e4)
        q, k, v = attention.qkv(x).view(3, 40, 3, size, 32).permute(2, 0, 3, 1, 4)
        expected = attend(rotate(q, sight.rotary), rotate(k, sight.rotary), v, dense)
        expected = attention.out(expected.transpose(1, 2).flatten(2))
    real = ids > 0
    assert torch.allclose(found[real], expected[real], atol=1e-5)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("nas_rlm.text.statements.LONGEST", 4)


def test_statements_are_read_once_until_the_weights_change(monkeypatch, short):
    net, other = network(statements=2), network(statements=2)
    ids = torch.tensor([[4, 2, 6, 5, 4, 6, 4, 2, 6], [5, 1, 1, 6, 4, 2, 6, 0, 0]])
    read = []
    states_of = StatementEncoder._states_of

    def counting(self, some, *rest):
        read.extend(some)
        return states_of(self, some, *rest)

    monkeypatch.setattr(StatementEncoder, "_states_of", counting)
    with torch.inference_mode():
        first = net.encode(ids).key_values[0][0]
        net.encode(ids.flip(0))
    assert len(read) == 3
    with torch.no_grad():
        assert torch.equal(net.encode(ids).key_values[0][0], first)
        net.pieces.weight.add_(0.1)
        assert not torch.allclose(net.encode(ids).key_values[0][0], first)
    assert torch.allclose(
        first, other.encode(ids).key_values[0][0], atol=0.05
    )  # where gradients are asked for


@torch.inference_mode()
def test_what_a_statement_says_does_not_depend_on_what_was_read_before():
    net, other = network(statements=2), network(statements=2)
    different = [np.array(row).tobytes() for row in ([4, 2, 6], [5, 6], [1, 2, 3, 6], [2, 5, 6])]
    states = net.statement_encoder(different, net.pieces, net.kinds)
    for i in (3, 1, 0, 2):
        alone = other.statement_encoder([different[i]], other.pieces, other.kinds)
        assert torch.equal(alone, states[[i]])


@torch.inference_mode()
def test_names_tell_statements_apart(short):
    net = network(statements=1)
    texts = [[*some, 1, 1, 6] for some in ([4, 2, 5, 6], [5, 2, 4, 6], [5, 2, 5, 6], [4, 2, 6])]
    states = [net.states(torch.tensor([text]))[0] for text in texts]
    assert len(net.statement_encoder._places) == 2
    assert not any(torch.allclose(a, b, atol=1e-3) for a, b in combinations(states, 2))


def test_no_more_statements_are_remembered_than_there_is_place_for(monkeypatch, short):
    monkeypatch.setattr("nas_rlm.model.network.REMEMBERED", 4)
    net, whole = network(statements=1), network(statements=1)
    some = [torch.tensor([[i, j, 6, j, 6]]) for i in range(1, 6) for j in range(1, 6)]
    with torch.inference_mode():
        for ids in some:
            assert torch.equal(net.encode(ids).key_values[0][0], whole.encode(ids).key_values[0][0])
    assert len(net.statement_encoder._places) <= 4


def test_a_quarter_of_the_heads_sees_what_is_near(short):
    net = network(statements=1)
    ids = np.array([[4, 2, 6, 3, 6, 5, 6, 4, 6, 1, 0]])
    sight = Sight.of_statements(statements_of(ids, KINDS), net.config, torch.zeros(1, 5, 128))
    *whole, near = (sight.mask[0, head] == 0 for head in range(4))
    assert all(mask.all() for mask in whole) and torch.equal(near, near.T)
    assert (~near).nonzero().tolist() == [
        *([0, 2], [0, 4], [1, 3], [1, 4], [2, 0], [2, 4], [3, 1], [4, 0], [4, 1], [4, 2])
    ]


@pytest.mark.parametrize(
    "changes", [{"statements": -1}, {"statements": 1, "encoder": "minilm", "encoder_width": 8}]
)
def test_a_wrong_number_of_statement_layers_is_refused(changes):
    with pytest.raises(ValueError, match="statements is"):
        network(**changes)
