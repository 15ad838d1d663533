"""The encoder-decoder network: an encoder over text tokens, a decoder over number tokens.

The whole network is in this file. `nas_rlm.model.decoding` draws numbers from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model import encoders
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS, NumberScheme
from nas_rlm.text.statements import (
    Statements,
    group_by_length,
    order_after_grouping,
    pad_statements,
    split_statements,
)
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

HEAD_WIDTH = 32
Rotary = Sequence[Tensor]
KeyValue = tuple[Tensor, Tensor]
DEFAULT_MAX_LENGTH = 8192  # tokens; rotary positions set no limit, but time and memory grow with the length
MASKED_SCORE = -1e4  # added to the score of a masked token; finite in half precision too
MAX_CACHED_STATEMENTS = 2**16
STATEMENT_POOLING_SCALE = 0.5  # of the sum over a statement's tokens, which are few
MAX_STATEMENT_LAYERS = 64
STATEMENT_BATCH_SIZE = 64  # statements encoded at once when their states are cached
CPU_CACHE_SCORES = 2**23  # attention scores that fit into a CPU's cache


@dataclass(frozen=True)
class Config:
    """Hyperparameters from which a network is built.

    Args:
        vocab_size: number of tokens of the tokenizer.
        objectives: names of the objectives that the decoder can predict, in the order of their tokens.
        size: the only scaling parameter: `size` encoder layers of width 32 * size with `size` heads, and a
            third as many decoder layers.
        max_length: number of tokens that are read; longer texts are truncated, and a warning says so.
        exponent_digits: digits of a number's exponent, see `NumberScheme`.
        mantissa_digits: digits of a number's mantissa, see `NumberScheme`.
        max_numbers: maximum number of numbers in one decoder sequence during training; see
            `nas_rlm.model.decoding`.
        relational: use a quarter of the encoder's heads as statement heads and a quarter as reference heads,
            see `AttentionMask`.
        encoder: name of a frozen pretrained encoder that replaces the encoder layers, see
            `nas_rlm.model.encoders.load`; "" for none.
        encoder_width: width of the frozen encoder's states.
        statement_layers: layers that encode each statement by itself; the `size` encoder layers then attend
            over statements. With 0 they attend over tokens.
        has_infinity: whether numbers can be infinite, see `NumberScheme`.
        reads_any_text: whether texts are any strings, so that an empty one is read as the unknown token.

    Raises:
        ValueError: a value is out of range.
    """

    vocab_size: int
    objectives: tuple[str, ...]
    size: int = 4
    max_length: int = DEFAULT_MAX_LENGTH
    exponent_digits: int = 1
    mantissa_digits: int = 4
    max_numbers: int = 6
    relational: bool = True
    encoder: str = ""
    encoder_width: int = 0
    statement_layers: int = 0
    has_infinity: bool = False
    reads_any_text: bool = False

    def __post_init__(self) -> None:
        positive = ("vocab_size", "size", "max_length", "exponent_digits", "mantissa_digits")
        if not isinstance(self.encoder, str):
            raise ValueError(f"encoder is {self.encoder!r}: expected a name")
        for name in (*positive, *(["encoder_width"] if self.encoder else [])):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: expected an integer of at least 1")
        max_layers = 0 if self.encoder else MAX_STATEMENT_LAYERS
        if type(self.statement_layers) is not int or not 0 <= self.statement_layers <= max_layers:
            raise ValueError(
                f"statement_layers is {self.statement_layers!r}: expected an integer from 0 to"
                f" {MAX_STATEMENT_LAYERS}, and 0 with a frozen encoder"
            )
        if not isinstance(self.max_numbers, int) or self.max_numbers < 2:
            raise ValueError(f"max_numbers is {self.max_numbers!r}: expected an integer of at least 2")

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return HEAD_WIDTH * self.size

    @property
    def decoder_layers(self) -> int:
        """Number of decoder layers."""
        return max(1, self.size // 3)

    @property
    def special_heads(self) -> int:
        """Number of statement heads, and of reference heads; 0 in networks of fewer than 3 heads."""
        return max(1, self.size // 4) if self.relational and self.size >= 3 else 0

    @property
    def scheme(self) -> NumberScheme:
        """Scheme by which numbers are written as digit tokens."""
        return NumberScheme(self.exponent_digits, self.mantissa_digits, self.has_infinity)

    def objective_ids(self, names: Sequence[str]) -> list[int]:
        """Return the decoder tokens of objectives."""
        ids = {name: NUM_DIGIT_TOKENS + i for i, name in enumerate(self.objectives)}
        return [ids[name] for name in names]


@cache
def has_bfloat16() -> bool:
    """Return whether the CPU has instructions for bfloat16."""
    # Some versions of PyTorch have no get_capabilities.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


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


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [..., width] of states [..., width]."""
        up = self.up(x)
        # In bfloat16 the two GELUs differ by less than a rounding, and the exact one is several times faster.
        is_exact = up.dtype == torch.bfloat16 and not torch.is_grad_enabled()
        y: Tensor = self.down(F.gelu(up, approximate="none" if is_exact else "tanh"))
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
        padding = _padding_mask(ids == PAD, dtype)
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
        padding = _padding_mask(torch.from_numpy(split.unique_index < 0).to(x.device), _matmul_dtype(x))
        mask = padding.expand(-1, heads, x.shape[1], -1).clone()
        if special_heads:
            position = torch.arange(x.shape[1], device=x.device)
            is_adjacent = (position[:, None] - position[None]).abs() <= 1
            sources = torch.from_numpy(split.sources).to(x.device)
            is_near = sources | sources.transpose(1, 2) | is_adjacent
            mask[:, heads - special_heads :].masked_fill_(~is_near[:, None], MASKED_SCORE)
        return cls(padding, rotary_table(0, x.shape[1], x.device), per_head=mask)


def _padding_mask(is_padding: Tensor, dtype: torch.dtype) -> Tensor:
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


class EncoderLayer(nn.Module):
    """A layer of the encoder: self-attention over the text, then the feed-forward block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(width)
        self.attention = EncoderAttention(width)
        self.norm_feed = nn.RMSNorm(width)
        self.feed = FeedForward(width)

    def forward(self, x: Tensor, mask: AttentionMask) -> Tensor:
        """Return the next states [B, T, width] of states [B, T, width]."""
        x = x + self.attention(self.norm_attention(x), mask)
        y: Tensor = x + self.feed(self.norm_feed(x))
        return y


class DecoderLayer(nn.Module):
    """A layer of the decoder: self-attention, cross-attention to the text, then the feed-forward block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(width)
        self.attention = Attention(width)
        self.norm_cross = nn.RMSNorm(width)
        self.cross = CrossAttention(width)
        self.norm_feed = nn.RMSNorm(width)
        self.feed = FeedForward(width)

    def forward(
        self,
        x: Tensor,
        rotary: Rotary,
        causal: Tensor,
        key_value: KeyValue,
        padding: Tensor,
        cache: KeyValueCache | None,
    ) -> Tensor:
        """Return the next states [B * n, t, width] of n decodings of each text.

        Args:
            x: states [B * n, t, width].
            rotary: rotary table of the t positions.
            causal: additive mask [t, cached tokens + t].
            key_value: cross-attention keys and values of B texts.
            padding: additive mask [B, 1, 1, T] of the texts.
            cache: keys and values of the earlier tokens, extended in place; None without a cache.
        """
        x = x + self.attention(self.norm_attention(x), rotary, causal, cache)
        x = x + self.cross(self.norm_cross(x), key_value, padding)
        y: Tensor = x + self.feed(self.norm_feed(x))
        return y


def weight_versions(weights: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """Return a key that changes when a weight is replaced or changed in place."""
    return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)


class StatementEncoder(nn.Module):
    """Encodes each statement by itself, and caches the states when no gradients are needed.

    The cache is emptied when a weight changes or `MAX_CACHED_STATEMENTS` is exceeded.

    Args:
        width: width of the states.
        layers: number of encoder layers, which attend within a statement.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(layers))
        self._rows: dict[bytes, int] = {}
        self._states = torch.empty(0, width)
        self._versions: tuple[tuple[int, int], ...] = ()

    def forward(self, statements: list[bytes], embedding: nn.Module, kinds: Tensor) -> Tensor:
        """Return the states [S, width] of statements.

        Args:
            statements: S distinct statements, each as the bytes of its int64 token ids.
            embedding: token embedding.
            kinds: uint8 [vocab_size], see `Tokenizer.kinds`.
        """
        if torch.is_grad_enabled():
            return self._encode_uncached(statements, embedding, kinds)
        weights = [*embedding.parameters(), *self.parameters()]
        versions = weight_versions(weights)
        if versions != self._versions or len(self._rows) + len(statements) > MAX_CACHED_STATEMENTS:
            self._rows, self._versions = {}, versions
            # Outside inference mode, so that the buffer can be written to inside and outside of it later.
            with torch.inference_mode(False):
                num_rows = max(MAX_CACHED_STATEMENTS, len(statements))
                self._states = weights[0].new_empty(num_rows, weights[0].shape[1])
        new = [statement for statement in statements if statement not in self._rows]
        # Batches have a fixed size, so that states do not depend on what is in the cache.
        for length, members in group_by_length(new).items():
            for start in range(0, len(members), STATEMENT_BATCH_SIZE):
                batch = [new[i] for i in members[start : start + STATEMENT_BATCH_SIZE]]
                first = len(self._rows)
                self._states[first : first + len(batch)] = self._encode_batch(
                    batch, length, embedding, kinds, STATEMENT_BATCH_SIZE
                )
                self._rows.update((statement, first + i) for i, statement in enumerate(batch))
        return self._states[torch.tensor([self._rows[statement] for statement in statements])]

    def _encode_uncached(self, statements: list[bytes], embedding: nn.Module, kinds: Tensor) -> Tensor:
        """States [S, width] computed with gradients; arguments as for `forward`."""
        groups = group_by_length(statements)
        states = torch.cat(
            [
                self._encode_batch([statements[i] for i in members], length, embedding, kinds)
                for length, members in groups.items()
            ]
        )
        return states[torch.from_numpy(order_after_grouping(groups)).to(states.device)]

    def _encode_batch(
        self, statements: Sequence[bytes], length: int, embedding: nn.Module, kinds: Tensor, num_rows: int = 0
    ) -> Tensor:
        """States of statements of at most `length` tokens, in a batch padded to at least `num_rows` rows."""
        tokens = torch.from_numpy(pad_statements(statements, length, num_rows)).to(kinds.device)
        x = embedding(tokens)
        mask = AttentionMask.from_tokens(tokens, kinds, 0, _matmul_dtype(x))
        for layer in self.layers:
            x = layer(x, mask)
        pooled: Tensor = STATEMENT_POOLING_SCALE * (x * (tokens != PAD).unsqueeze(2)).sum(1)
        return pooled[: len(statements)]


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrix products of a tensor are computed, autocast included."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@dataclass
class Memory:
    """A batch of encoded texts, as the decoder attends to it.

    Args:
        key_values: cross-attention keys and values of each decoder layer.
        mask: additive padding mask [B, 1, 1, T].
    """

    key_values: list[KeyValue]
    mask: Tensor

    @property
    def batch(self) -> int:
        """Number of texts."""
        return self.mask.shape[0]


class Network(nn.Module):
    """An encoder-decoder that predicts the digits of numbers from the tokens of a text.

    Args:
        config: hyperparameters and objectives.
        kinds: flags of the tokens, uint8 [vocab_size], see `Tokenizer.kinds`.
    """

    kinds: Tensor

    def __init__(self, config: Config, kinds: np.ndarray) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("kinds", torch.as_tensor(kinds, dtype=torch.uint8))
        width = config.width
        self.pieces: nn.Embedding | nn.Linear = (
            nn.Linear(config.encoder_width, width, bias=False)
            if config.encoder
            else nn.Embedding(config.vocab_size, width)
        )
        layers = config.statement_layers
        self.statement_encoder = StatementEncoder(width, layers) if layers else None
        self.names = nn.Linear(2 * width, width, bias=False) if layers else None
        self.encoder = nn.ModuleList(EncoderLayer(width) for _ in range(0 if config.encoder else config.size))
        self.norm_memory = nn.RMSNorm(width)
        self.tokens = nn.Embedding(NUM_DIGIT_TOKENS + len(config.objectives), width)
        self.decoder = nn.ModuleList(DecoderLayer(width) for _ in range(config.decoder_layers))
        self.norm_out = nn.RMSNorm(width)
        self.digits = nn.Linear(width, NUM_DIGIT_TOKENS, bias=False)
        self._initialize()

    def _initialize(self) -> None:
        """Initialize the weights; residual branches are small, so that layers start near the identity."""
        nn.init.normal_(self.pieces.weight, std=0.1)
        nn.init.normal_(self.tokens.weight, std=0.1)
        stacks = [
            self.encoder,
            self.decoder,
            *([self.statement_encoder.layers] if self.statement_encoder else []),
        ]
        for layers in stacks:
            for name, weight in layers.named_parameters():
                if name.endswith(("out.weight", "down.weight")):
                    nn.init.normal_(weight, std=0.02 / (2 * len(layers)) ** 0.5)

    def encode(self, ids: Tensor) -> Memory:
        """Encode texts once, for any number of objectives and samples.

        Without gradients, matrix products are computed in bfloat16 if the CPU supports it.

        Args:
            ids: token ids, int64 [B, T], padded with 0.
        """
        weight = self.pieces.weight
        is_float32_on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        use_bfloat16 = is_float32_on_cpu and not torch.is_grad_enabled() and has_bfloat16()
        with torch.autocast("cpu", torch.bfloat16) if use_bfloat16 else nullcontext():
            x, padding = self.states(ids)
        if use_bfloat16:
            x, padding = x.float(), padding.float()
        return Memory([cast(DecoderLayer, layer).cross.project(x) for layer in self.decoder], padding)

    def states(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's states of texts, whose token ids are [B, T].

        Returns:
            States [B, S, width] and the additive padding mask [B, 1, 1, S]. S is T, or with statement layers
            the maximum number of statements of a text.
        """
        if self.statement_encoder:
            split = split_statements(ids.cpu().numpy(), self.kinds.cpu().numpy())
            unique_states = self.statement_encoder(split.unique, self.pieces, self.kinds)
            x = unique_states[torch.from_numpy(split.unique_index).to(ids.device)]
            x = x + self._name_states(torch.from_numpy(split.names).to(ids.device))
            mask = AttentionMask.from_statements(split, self.config, x)
        else:
            frozen = self.config.encoder
            x = self.pieces(encoders.load(frozen).states(ids) if frozen else ids)
            special_heads = 0 if frozen else self.config.special_heads
            mask = AttentionMask.from_tokens(ids, self.kinds, special_heads, _matmul_dtype(x))
        for layer in self.encoder:
            x = layer(x, mask)
        return self.norm_memory(x), mask.padding

    def _name_states(self, names: Tensor) -> Tensor:
        """States [B, S, width] of names [B, S, N], from the first name and the sum of all."""
        sums = [
            F.embedding_bag(columns.flatten(0, 1), self.pieces.weight, mode="sum", padding_idx=PAD)
            for columns in (names[:, :, :1], names)
        ]
        states: Tensor = cast(nn.Linear, self.names)(torch.cat(sums, 1))
        return states.view(*names.shape[:2], -1)

    def decode(self, tokens: Tensor, memory: Memory, caches: list[KeyValueCache] | None = None) -> Tensor:
        """Return the logits of the digit that follows each decoder token.

        Args:
            tokens: decoder tokens, int64 [B * n, t]; the n decodings of one text are adjacent.
            memory: B encoded texts, from `encode`.
            caches: keys and values of the earlier tokens, one cache for each layer; extended in place.

        Returns:
            Logits [B * n, t, NUM_DIGIT_TOKENS].
        """
        x = self.tokens(tokens)
        start, t = caches[0].length if caches else 0, tokens.shape[1]
        rotary = rotary_table(start, t, x.device)
        causal = memory.mask.new_full((t, start + t), MASKED_SCORE).triu(start + 1)
        for i, layer in enumerate(self.decoder):
            x = layer(x, rotary, causal, memory.key_values[i], memory.mask, caches[i] if caches else None)
        logits: Tensor = self.digits(self.norm_out(x))
        return logits

    def forward(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """Return teacher-forced logits [B, t, NUM_DIGIT_TOKENS] of texts [B, T] and decoder tokens [B, t]."""
        return self.decode(tokens, self.encode(ids))


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
