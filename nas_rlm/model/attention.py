"""Attention: of decoder and encoder, its masks, rotary positions, and the cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model.config import HEAD_WIDTH, Config
from nas_rlm.text.statements import Statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

Rotary = Sequence[Tensor]
KeyValue = tuple[Tensor, Tensor]
MASKED_SCORE = -1e4  # added to the score of a masked token; finite in half precision too
CPU_CACHE_SCORES = 2**23  # attention scores that fit into a CPU's cache


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Compute softmax attention with an additive mask.

    In bfloat16 on a CPU it uses plain matrix products. They are faster there than the fused kernel, several
    times so in the backward pass. The batch, and the queries of a long text, are split so that the scores fit
    into the CPU's cache.

    Args:
        q: queries [B, H, t, HEAD_WIDTH].
        k: keys [B, H, T, HEAD_WIDTH].
        v: values [B, H, T, HEAD_WIDTH].
        mask: added to the scores, broadcast to [B, H, t, T].

    Returns:
        Outputs [B, H, t, HEAD_WIDTH].
    """
    if q.dtype != torch.bfloat16 or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    max_scores = CPU_CACHE_SCORES if torch.is_grad_enabled() else CPU_CACHE_SCORES // 8
    max_queries = max(1, max_scores // (q.shape[1] * k.shape[2]))
    chunk_size = max(1, max_queries // q.shape[2])
    mask = mask.expand(*q.shape[:3], k.shape[2])
    chunks = zip(*(tensor.split(chunk_size) for tensor in (q, k, v, mask)), strict=True)
    return torch.cat([_attend_in_parts(max_queries, *chunk) for chunk in chunks])


def _attend_in_parts(max_queries: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention of at most `max_queries` queries at a time; other arguments as for `attend`."""
    parts = zip(q.split(max_queries, 2), mask.split(max_queries, 2), strict=True)
    return torch.cat([_matmul_attention(queries, k, v, m) for queries, m in parts], 2)


def _matmul_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention by plain matrix products; arguments as for `attend`."""
    scores = torch.matmul(q * HEAD_WIDTH**-0.5, k.transpose(2, 3)) + mask
    return torch.matmul(scores.softmax(-1), v)


class Attention(nn.Module):
    """Self-attention with rotary position embeddings and a key-value cache for decoding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotary: Rotary, mask: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Return the outputs [B, t, width] of states [B, t, width], with an additive mask."""
        b, t, d = x.shape
        qkv = self.qkv(x).view(b, t, 3, d // HEAD_WIDTH, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        (q, k), v = rotate(qkv[:2], rotary), qkv[2]
        if cache is not None:
            k, v = cache.extend(k, v)
        y: Tensor = self.out(attend(q, k, v, mask).transpose(1, 2).reshape(b, t, d))
        return y


class CrossAttention(nn.Module):
    """Attention to the encoded text; its keys and values are projected once per text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def project(self, memory: Tensor) -> KeyValue:
        """Project encoder states [B, T, D] to keys and values, each [B, H, T, HEAD_WIDTH]."""
        b, t, d = memory.shape
        key_value = self.key_value(memory).view(b, t, 2, d // HEAD_WIDTH, HEAD_WIDTH)
        k, v = key_value.permute(2, 0, 3, 1, 4).contiguous()
        return k, v

    def forward(self, x: Tensor, key_value: KeyValue, mask: Tensor) -> Tensor:
        """Return the outputs [B * n, t, D] of decoder states, n of each text, that attend to B texts."""
        rows, t, d = x.shape
        k, v = key_value
        b = k.shape[0]
        n = rows // b
        q = self.query(x).view(b, n * t, d // HEAD_WIDTH, HEAD_WIDTH).transpose(1, 2)
        y: Tensor = self.out(attend(q, k, v, mask).transpose(1, 2).reshape(rows, t, d))
        return y


class TokenGroup(NamedTuple):
    """Token sets of similar size; the tokens of a set attend only to each other.

    Tokens are numbered across the batch and both kinds of special heads, see `_token_sets`.

    Args:
        tokens: int64 [sets, size], the tokens of each set, padded with its last token.
        padding_mask: additive mask [sets, 1, 1, size] of the padding.
        is_token: int64, indices of the entries of the flattened `tokens` that are not padding.
        targets: int64, numbers of the tokens at `is_token`.
    """

    tokens: Tensor
    padding_mask: Tensor
    is_token: Tensor
    targets: Tensor


@dataclass(frozen=True)
class AttentionMask:
    """Attention mask of the encoder for a batch of texts: the tokens or statements each head attends to.

    Regular heads attend to the entire text. In the special heads, each token attends only to a small set. In
    a statement head, the set is the token's own statement. In a reference head, it is all occurrences of the
    name of a value in the same scope: where the value is defined and where it is used; other tokens attend to
    themselves. These sets are gathered and computed separately, which is cheap in long texts.

    Args:
        padding: additive mask of the padding, [B, 1, 1, T].
        rotary: rotary table of the positions.
        special_heads: number of statement heads, equal to that of reference heads.
        groups: token sets of the statement and reference heads; tokens are numbered as [B, T, 2].
        per_head: additive mask [B, H, T, T] of each head; replaces `padding` and `groups` unless it is None.
    """

    padding: Tensor
    rotary: Rotary
    special_heads: int = 0
    groups: Sequence[TokenGroup] = ()
    per_head: Tensor | None = None

    @classmethod
    def from_tokens(cls, ids: Tensor, kinds: Tensor, special_heads: int, dtype: torch.dtype) -> AttentionMask:
        """Return the mask over the tokens of texts.

        Args:
            ids: token ids, int64 [B, T].
            kinds: uint8 [vocab_size], see `Tokenizer.kinds`.
            special_heads: number of statement heads, equal to that of reference heads.
            dtype: dtype of the additive masks.
        """
        padding = padding_mask(ids == PAD, dtype)
        rotary = rotary_table(0, ids.shape[1], ids.device)
        groups = _token_sets(ids.cpu().numpy(), kinds.cpu().numpy()) if special_heads else []
        on_device = [
            TokenGroup(
                torch.from_numpy(tokens).to(ids.device),
                torch.from_numpy(MASKED_SCORE * is_padding[:, None, None]).to(ids.device, dtype),
                torch.from_numpy(np.flatnonzero(~is_padding)).to(ids.device),
                torch.from_numpy(tokens[~is_padding]).to(ids.device),
            )
            for tokens, is_padding in groups
        ]
        return cls(padding, rotary, special_heads, on_device)

    @classmethod
    def from_statements(cls, split: Statements, config: Config, x: Tensor) -> AttentionMask:
        """Return the mask over statements.

        Three quarters of the heads attend to all statements. A quarter attends to adjacent statements, and
        between the first statement with a name, which defines the value, and those that read it.

        Args:
            split: B texts of up to S statements.
            config: the network's configuration.
            x: states [B, S, width], for their dtype and device.
        """
        heads, special_heads = config.size, config.special_heads
        padding = padding_mask(torch.from_numpy(split.unique_index < 0).to(x.device), matmul_dtype(x))
        mask = padding.expand(-1, heads, x.shape[1], -1).clone()
        if special_heads:
            position = torch.arange(x.shape[1], device=x.device)
            is_adjacent = (position[:, None] - position[None]).abs() <= 1
            sources = torch.from_numpy(split.sources).to(x.device)
            is_near = sources | sources.transpose(1, 2) | is_adjacent
            mask[:, heads - special_heads :].masked_fill_(~is_near[:, None], MASKED_SCORE)
        return cls(padding, rotary_table(0, x.shape[1], x.device), per_head=mask)


def padding_mask(is_padding: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive mask [B, 1, 1, T] of padding [B, T]."""
    mask = torch.zeros(is_padding.shape, dtype=dtype, device=is_padding.device)
    return mask.masked_fill_(is_padding, MASKED_SCORE)[:, None, None]


def _token_sets(ids: np.ndarray, kinds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Token sets of statement and reference heads, grouped by size rounded up to a power of two.

    Args:
        ids: token ids, int64 [B, T].
        kinds: uint8 [vocab_size], see `Tokenizer.kinds`.

    Returns:
        For each size, the numbers of the tokens, int64 [sets, size], and is_padding, bool [sets, size]. The
        token at [b, t] has the number 2 * (b * T + t) in statement heads, and one more in reference heads.
    """
    kind, row_offset = kinds[ids], np.arange(len(ids))[:, None] * (ids.shape[1] + 1)
    is_end = (kind & ENDS_STATEMENT) > 0
    statement = row_offset + is_end.cumsum(1) - is_end
    name = (row_offset + ((kind & ENDS_SCOPE) > 0).cumsum(1)) * len(kinds) + ids
    numbers = 2 * np.arange(ids.size).reshape(ids.shape)
    by_power: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for k, (key, selected) in enumerate(((statement, ids != PAD), (name, (kind & IDENTIFIER) > 0))):
        order = np.argsort(key[selected], kind="stable")
        ordered_numbers, ordered_keys = (numbers + k)[selected][order], key[selected][order]
        starts = np.flatnonzero(np.diff(ordered_keys, prepend=-1))
        sizes = np.diff(starts, append=len(ordered_keys))
        powers = np.ceil(np.log2(sizes)).astype(int)
        for power in np.unique(powers[powers > 0]):  # a set of one token needs no attention
            has_power, column = powers == power, np.arange(1 << power)
            last = sizes[has_power][:, None] - 1
            tokens = ordered_numbers[starts[has_power][:, None] + np.minimum(column, last)]
            by_power.setdefault(int(power), []).append((tokens, column > last))
    return [tuple(map(np.concatenate, zip(*sets, strict=True))) for sets in by_power.values()]  # type: ignore[misc]


class EncoderAttention(Attention):
    """Self-attention in which each head has its own mask."""

    def forward(self, x: Tensor, mask: AttentionMask) -> Tensor:  # type: ignore[override]
        """Return the outputs [B, T, width] of states [B, T, width]."""
        b, t, d = x.shape
        heads, special = d // HEAD_WIDTH, 2 * mask.special_heads
        qkv = self.qkv(x).view(b, t, 3, heads, HEAD_WIDTH)
        q, k = rotate(qkv[:, :, :2], [table[:, None, None] for table in mask.rotary]).unbind(2)
        v = qkv[:, :, 2]
        full_heads = heads - special
        q0, k0, v0 = (tensor[:, :, :full_heads].transpose(1, 2) for tensor in (q, k, v))
        attended = attend(q0, k0, v0, mask.padding if mask.per_head is None else mask.per_head).transpose(
            1, 2
        )
        if special:
            q1, k1, v1 = (
                tensor[:, :, full_heads:].reshape(-1, mask.special_heads, HEAD_WIDTH) for tensor in (q, k, v)
            )
            within = _attend_within(q1, k1, v1, mask.groups).view(b, t, special, HEAD_WIDTH)
            attended = torch.cat([attended, within], 2)
        y: Tensor = self.out(attended.reshape(b, t, d))
        return y


def _attend_within(q: Tensor, k: Tensor, v: Tensor, groups: Sequence[TokenGroup]) -> Tensor:
    """Attention of tokens [tokens, heads, HEAD_WIDTH] within their sets; other tokens return their value."""
    attended = v
    for tokens, padding_mask, is_token, targets in groups:
        queries, keys, values = (tensor[tokens].transpose(1, 2) for tensor in (q, k, v))
        within = _matmul_attention(queries, keys, values, padding_mask).transpose(1, 2).flatten(0, 1)
        attended = attended.index_copy(0, targets, within[is_token])
    return attended


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrix products of a tensor are computed, autocast included."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class KeyValueCache:
    """Keys and values of the decoder tokens so far, for one layer."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of cached tokens."""
        return 0 if self.keys is None else self.keys.shape[2]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values [rows, H, t, HEAD_WIDTH], and return all of them."""
        if self.keys is not None and self.values is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        self.keys, self.values = k, v
        return k, v


def rotary_table(start: int, length: int, device: torch.device) -> Rotary:
    """Return the cosines and sines [length, HEAD_WIDTH / 2] of `length` positions from `start` on."""
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD_WIDTH, 2, device=device) / HEAD_WIDTH)
    angle = torch.arange(start, start + length, device=device)[:, None] * frequency[None]
    return torch.cos(angle), torch.sin(angle)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Apply rotary position embedding to [..., t, HEAD_WIDTH]; it pairs element i with i + HEAD_WIDTH / 2."""
    cos, sin = (table.to(x.dtype) for table in rotary)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
