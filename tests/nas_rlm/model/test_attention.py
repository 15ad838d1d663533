import numpy as np
import pytest
import torch

from nas_rlm.model.attention import AttentionMask, attend, rotate
from tests.nas_rlm.model.small_networks import network, special_head_mask


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
            monkeypatch.setattr("nas_rlm.model.attention.CPU_CACHE_SCORES", scores)
            assert torch.equal(attend(q, k, v, mask), expected)


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
