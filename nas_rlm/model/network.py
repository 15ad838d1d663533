"""The network: an encoder that reads text and a decoder that writes numbers, whole in this file."""

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
from nas_rlm.model.numbers import TOKENS, NumberScheme
from nas_rlm.text.statements import Statements, by_length, in_order, read, statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

HEAD = 32
Rotary = Sequence[Tensor]
KeyValue = tuple[Tensor, Tensor]
_BLOCKED = -1e4
REMEMBERED = 2**16  # statements
HALF = 0.5  # of the sum of a statement's tokens, of which there are a few
LAYERS = 64  # of statements, at most
TOGETHER = 64  # statements that are read at once, where they are remembered
CACHED = 2**23  # scores of attention that a processor keeps near


@dataclass(frozen=True)
class Config:
    """What rebuilds a network.

    Args:
        vocab_size: pieces of the tokenizer.
        objectives: names of the numbers that the decoder can be asked for, in the order of their tokens.
        size: the one dial: `size` encoder layers of width 32 * size with `size` heads, and a third as many
            decoder layers.
        max_length: texts are cropped to this many tokens.
        exponent_digits, mantissa_digits: the number scheme.
        numbers: at most so many in one sequence, as training showed them; see `nas_rlm.model.decoding`.
        relational: give a quarter of the encoder's heads to statements and a quarter to references.
        encoder: a frozen one that reads the text in the place of layers of its own, see
            `nas_rlm.model.encoders.load`.
        encoder_width: of its states.
        statements: so many layers read each statement by itself, and then those of `size` read statements; 0:
            those read tokens.
    """

    vocab_size: int
    objectives: tuple[str, ...]
    size: int = 4
    max_length: int = 2048
    exponent_digits: int = 1
    mantissa_digits: int = 4
    numbers: int = 6
    relational: bool = True
    encoder: str = ""
    encoder_width: int = 0
    statements: int = 0

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "size", "max_length", "exponent_digits", "mantissa_digits")
        if not isinstance(self.encoder, str):
            raise ValueError(f"encoder is {self.encoder!r}: expected a name")
        for name in (*sizes, *(["encoder_width"] if self.encoder else [])):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: expected a whole number from 1 on")
        if type(self.statements) is not int or not 0 <= self.statements <= (0 if self.encoder else LAYERS):
            raise ValueError(
                f"statements is {self.statements!r}: expected up to {LAYERS} layers, and none beside a frozen"
                " encoder"
            )
        if not isinstance(self.numbers, int) or self.numbers < 2:
            raise ValueError(f"numbers is {self.numbers!r}: expected a whole number from 2 on")

    @property
    def width(self) -> int:
        return HEAD * self.size

    @property
    def decoder_layers(self) -> int:
        return max(1, self.size // 3)

    @property
    def special_heads(self) -> int:
        """Heads for statements, and as many for references; a network of two heads has none to spare."""
        return max(1, self.size // 4) if self.relational and self.size >= 3 else 0

    @property
    def scheme(self) -> NumberScheme:
        return NumberScheme(self.exponent_digits, self.mantissa_digits)

    def objective_ids(self, names: Sequence[str]) -> list[int]:
        """The decoder tokens that name objectives."""
        position = {name: TOKENS + i for i, name in enumerate(self.objectives)}
        return [position[name] for name in names]


@cache
def has_bfloat16() -> bool:
    """Whether the processor computes in bfloat16."""
    able: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions do not tell
    return any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention [B, H, t, HEAD] under an additive mask.

    In bfloat16 on a processor, by plain matrix products: there the fused kernel is slower, its backward pass
    several times. So few inputs go at once that their scores stay in the processor's cache.
    """
    if q.dtype != torch.bfloat16 or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    most = CACHED if torch.is_grad_enabled() else CACHED // 8
    some = max(1, most // (q.shape[1] * q.shape[2] * k.shape[2]))
    mask = mask.expand(*q.shape[:3], k.shape[2])
    parts = zip(*(whole.split(some) for whole in (q, k, v, mask)), strict=True)
    return torch.cat([_attended(*part) for part in parts])


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.matmul(q * HEAD**-0.5, k.transpose(2, 3)) + mask
    return torch.matmul(scores.softmax(-1), v)


class Attention(nn.Module):
    """Self-attention with rotary positions and a cache for decoding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotary: Rotary, mask: Tensor, cache: Cache | None = None) -> Tensor:
        b, t, d = x.shape
        qkv = self.qkv(x).view(b, t, 3, d // HEAD, HEAD).permute(2, 0, 3, 1, 4)
        (q, k), v = rotate(qkv[:2], rotary), qkv[2]
        if cache is not None:
            k, v = cache.extend(k, v)
        y: Tensor = self.out(attend(q, k, v, mask).transpose(1, 2).reshape(b, t, d))
        return y


class CrossAttention(nn.Module):
    """Attention to the encoded text, whose keys and values are projected once an input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def project(self, memory: Tensor) -> KeyValue:
        """Keys and values, each [B, H, T, HEAD], of a memory [B, T, D]."""
        b, t, d = memory.shape
        k, v = self.key_value(memory).view(b, t, 2, d // HEAD, HEAD).permute(2, 0, 3, 1, 4).contiguous()
        return k, v

    def forward(self, x: Tensor, key_value: KeyValue, mask: Tensor) -> Tensor:
        """x: [B * n, t, D]; the n decodings of an input share its keys and values, without copies of them."""
        rows, t, d = x.shape
        k, v = key_value
        b = k.shape[0]
        n = rows // b
        q = self.query(x).view(b, n * t, d // HEAD, HEAD).transpose(1, 2)
        y: Tensor = self.out(attend(q, k, v, mask).transpose(1, 2).reshape(rows, t, d))
        return y


class FeedForward(nn.Module):
    """Two projections with a GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        # What tells the two apart is less than bfloat16 can hold, and the exact one is several times faster.
        is_rough = up.dtype == torch.bfloat16 and not torch.is_grad_enabled()
        y: Tensor = self.down(F.gelu(up, approximate="none" if is_rough else "tanh"))
        return y


class Group(NamedTuple):
    """Sets of tokens of about one size, each of which sees itself alone.

    Args:
        places: of the tokens among all, [sets, most]; the last one of a set fills it up.
        mask: additive, of what fills up, [sets, 1, 1, most].
        known: where no filler is, among all of `places`.
        into: the places there.
    """

    places: Tensor
    mask: Tensor
    known: Tensor
    into: Tensor


@dataclass(frozen=True)
class Sight:
    """What the encoder's heads see of a batch of texts.

    Most heads see the whole text. A statement head sees the tokens of its own statement, and a reference
    head, from a value's name, the same name within the same graph or function: where the value is made and
    where it is used. Other tokens see themselves alone there. As such sets are small, they are gathered and
    computed by themselves, which costs next to nothing where texts are long.

    Args:
        padding: additive mask, [B, 1, 1, T].
        rotary: of the positions.
        special: heads for statements, and as many for references.
        groups: of the tokens' places, [B, T, 2]: for statements, and for references.
        mask: where heads are told by one what they see, additive, [B, H, T, T].
    """

    padding: Tensor
    rotary: Rotary
    special: int = 0
    groups: Sequence[Group] = ()
    mask: Tensor | None = None

    @classmethod
    def of(cls, ids: Tensor, kinds: Tensor, special: int, dtype: torch.dtype) -> Sight:
        """Of texts [B, T], in which the pieces are of such kinds, see `Tokenizer.kinds`."""
        padding = _blocking(ids == PAD, dtype)
        rotary = rotary_table(0, ids.shape[1], ids.device)
        groups = _groups(ids.cpu().numpy(), kinds.cpu().numpy()) if special else []
        on_device = [
            Group(
                torch.from_numpy(places).to(ids.device),
                torch.from_numpy(_BLOCKED * filled[:, None, None]).to(ids.device, dtype),
                torch.from_numpy(np.flatnonzero(~filled)).to(ids.device),
                torch.from_numpy(places[~filled]).to(ids.device),
            )
            for places, filled in groups
        ]
        return cls(padding, rotary, special, on_device)

    @classmethod
    def of_statements(cls, cut: Statements, config: Config, x: Tensor) -> Sight:
        """Of statements x [B, S, width].

        Most heads see them all, a quarter those near: the ones beside it, and those that its names come from
        or go to.
        """
        heads, special = config.size, config.special_heads
        padding = _blocking(torch.from_numpy(cut.places < 0).to(x.device), _computed(x))
        mask = padding.expand(-1, heads, x.shape[1], -1).clone()
        if special:
            place = torch.arange(x.shape[1], device=x.device)
            beside = (place[:, None] - place[None]).abs() <= 1
            sources = torch.from_numpy(cut.sources).to(x.device)
            near = sources | sources.transpose(1, 2) | beside
            mask[:, heads - special :].masked_fill_(~near[:, None], _BLOCKED)
        return cls(padding, rotary_table(0, x.shape[1], x.device), mask=mask)


def _blocking(is_padding: Tensor, dtype: torch.dtype) -> Tensor:
    """The additive mask [B, 1, 1, T] of what only fills up [B, T]."""
    padding = torch.zeros(is_padding.shape, dtype=dtype, device=is_padding.device)
    return padding.masked_fill_(is_padding, _BLOCKED)[:, None, None]


def _groups(ids: np.ndarray, kinds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Statements and names of texts as places of their tokens, by powers of two, and what only fills up."""
    kind, rows = kinds[ids], np.arange(len(ids))[:, None] * (ids.shape[1] + 1)
    is_end = (kind & ENDS_STATEMENT) > 0
    statement = rows + is_end.cumsum(1) - is_end
    name = (rows + ((kind & ENDS_SCOPE) > 0).cumsum(1)) * len(kinds) + ids
    places = 2 * np.arange(ids.size).reshape(ids.shape)
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for k, (key, some) in enumerate(((statement, ids != PAD), (name, (kind & IDENTIFIER) > 0))):
        order = np.argsort(key[some], kind="stable")
        held, ordered = (places + k)[some][order], key[some][order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        sizes = np.diff(starts, append=len(ordered))
        powers = np.ceil(np.log2(sizes)).astype(int)
        for power in np.unique(powers[powers > 0]):  # a token that is alone sees itself anyway
            of_these, within = powers == power, np.arange(1 << power)
            last = sizes[of_these][:, None] - 1
            at = held[starts[of_these][:, None] + np.minimum(within, last)]
            found.setdefault(int(power), []).append((at, within > last))
    return [tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in found.values()]  # type: ignore[misc]


class EncoderAttention(Attention):
    """Self-attention in which each head sees its own part of the text."""

    def forward(self, x: Tensor, sight: Sight) -> Tensor:  # type: ignore[override]
        b, t, d = x.shape
        heads, special = d // HEAD, 2 * sight.special
        qkv = self.qkv(x).view(b, t, 3, heads, HEAD)
        q, k = rotate(qkv[:, :, :2], [part[:, None, None] for part in sight.rotary]).unbind(2)
        v = qkv[:, :, 2]
        most = heads - special
        q0, k0, v0 = (part[:, :, :most].transpose(1, 2) for part in (q, k, v))
        mask = sight.padding if sight.mask is None else sight.mask
        seen = attend(q0, k0, v0, mask).transpose(1, 2)
        if special:
            q1, k1, v1 = (part[:, :, most:].reshape(-1, sight.special, HEAD) for part in (q, k, v))
            seen = torch.cat([seen, _among(q1, k1, v1, sight.groups).view(b, t, special, HEAD)], 2)
        y: Tensor = self.out(seen.reshape(b, t, d))
        return y


def _among(q: Tensor, k: Tensor, v: Tensor, groups: Sequence[Group]) -> Tensor:
    """Attention of tokens [places, heads, HEAD] within their sets; who is in none sees itself."""
    found = v
    for places, mask, known, into in groups:
        own, keys, values = (part[places].transpose(1, 2) for part in (q, k, v))
        seen = _attended(own, keys, values, mask).transpose(1, 2).flatten(0, 1)
        found = found.index_copy(0, into, seen[known])
    return found


class EncoderLayer(nn.Module):
    """Self-attention over the text, then the feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(width)
        self.attention = EncoderAttention(width)
        self.norm_feed = nn.RMSNorm(width)
        self.feed = FeedForward(width)

    def forward(self, x: Tensor, sight: Sight) -> Tensor:
        x = x + self.attention(self.norm_attention(x), sight)
        y: Tensor = x + self.feed(self.norm_feed(x))
        return y


class DecoderLayer(nn.Module):
    """Self-attention over the numbers so far, attention to the text, then the feed-forward."""

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
        cache: Cache | None,
    ) -> Tensor:
        x = x + self.attention(self.norm_attention(x), rotary, causal, cache)
        x = x + self.cross(self.norm_cross(x), key_value, padding)
        y: Tensor = x + self.feed(self.norm_feed(x))
        return y


def version_of(weights: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """Another one when weights were changed."""
    return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)


class StatementEncoder(nn.Module):
    """Reads statements, each by itself, so that what it makes of them can be remembered.

    Args:
        width: of the states.
        layers: of attention within a statement.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(layers))
        self._places: dict[bytes, int] = {}
        self._states = torch.empty(0, width)
        self._of: tuple[tuple[int, int], ...] = ()

    def forward(self, different: list[bytes], pieces: nn.Module, kinds: Tensor) -> Tensor:
        """States [S, width] of statements, of which none is the same as another one.

        Args:
            different: the int64 bytes of their tokens.
            pieces: the embedding.
            kinds: of the pieces.
        """
        if torch.is_grad_enabled():
            return self._read(different, pieces, kinds)
        weights = [*pieces.parameters(), *self.parameters()]
        version = version_of(weights)
        if version != self._of or len(self._places) + len(different) > REMEMBERED:
            self._places, self._of = {}, version
            with torch.inference_mode(False):  # what is written to later, within the mode or without it
                self._states = weights[0].new_empty(max(REMEMBERED, len(different)), weights[0].shape[1])
        new = [raw for raw in different if raw not in self._places]
        # Always as many at once, so that their states do not depend on what was read before.
        for length, some in by_length(new).items():
            for start in range(0, len(some), TOGETHER):
                part = [new[i] for i in some[start : start + TOGETHER]]
                first = len(self._places)
                self._states[first : first + len(part)] = self._states_of(
                    part, length, pieces, kinds, TOGETHER
                )
                self._places.update((raw, first + i) for i, raw in enumerate(part))
        return self._states[torch.tensor([self._places[raw] for raw in different])]

    def _read(self, different: list[bytes], pieces: nn.Module, kinds: Tensor) -> Tensor:
        groups = by_length(different)
        found = torch.cat(
            [self._states_of([different[i] for i in g], n, pieces, kinds) for n, g in groups.items()]
        )
        return found[torch.from_numpy(in_order(groups)).to(found.device)]

    def _states_of(
        self, some: Sequence[bytes], length: int, pieces: nn.Module, kinds: Tensor, rows: int = 0
    ) -> Tensor:
        """Of statements of up to so many tokens, filled up to so many rows."""
        tokens = torch.from_numpy(read(some, length, rows)).to(kinds.device)
        x = pieces(tokens)
        sight = Sight.of(tokens, kinds, 0, _computed(x))
        for layer in self.layers:
            x = layer(x, sight)
        whole: Tensor = HALF * (x * (tokens != PAD).unsqueeze(2)).sum(1)
        return whole[: len(some)]


def _computed(x: Tensor) -> torch.dtype:
    """In what matrix products of it are computed."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@dataclass
class Memory:
    """An encoded batch as the decoder reads it: keys and values for each layer, and the padding's mask."""

    key_values: list[KeyValue]
    mask: Tensor

    @property
    def batch(self) -> int:
        return self.mask.shape[0]


class Network(nn.Module):
    """Text ids in, digit logits out.

    Args:
        config: sizes and objectives.
        kinds: uint8 [vocab_size], the tokenizer's `kinds()`.
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
        self.statement_encoder = StatementEncoder(width, config.statements) if config.statements else None
        self.names = nn.Linear(2 * width, width, bias=False) if config.statements else None
        self.encoder = nn.ModuleList(EncoderLayer(width) for _ in range(0 if config.encoder else config.size))
        self.norm_memory = nn.RMSNorm(width)
        self.tokens = nn.Embedding(TOKENS + len(config.objectives), width)
        self.decoder = nn.ModuleList(DecoderLayer(width) for _ in range(config.decoder_layers))
        self.norm_out = nn.RMSNorm(width)
        self.digits = nn.Linear(width, TOKENS, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Small residual branches, so that a short training starts near the identity."""
        nn.init.normal_(self.pieces.weight, std=0.1)
        nn.init.normal_(self.tokens.weight, std=0.1)
        parts = [
            self.encoder,
            self.decoder,
            *([self.statement_encoder.layers] if self.statement_encoder else []),
        ]
        for layers in parts:
            for name, weight in layers.named_parameters():
                if name.endswith(("out.weight", "down.weight")):
                    nn.init.normal_(weight, std=0.02 / (2 * len(layers)) ** 0.5)

    def encode(self, ids: Tensor) -> Memory:
        """Encode texts once, for any number of objectives and samples.

        Where nothing is learnt from it, matrix products are in bfloat16, if the processor has it.

        Args:
            ids: int64 [B, T], padded with 0.
        """
        weight = self.pieces.weight
        is_single = weight.device.type == "cpu" and weight.dtype == torch.float32
        is_rough = is_single and not torch.is_grad_enabled() and has_bfloat16()
        with torch.autocast("cpu", torch.bfloat16) if is_rough else nullcontext():
            x, padding = self.states(ids)
        if is_rough:
            x, padding = x.float(), padding.float()
        return Memory([cast(DecoderLayer, layer).cross.project(x) for layer in self.decoder], padding)

    def states(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder makes of texts [B, T]: states [B, S, width], and the padding's mask.

        S is T, or the statements of the longest text.
        """
        if self.statement_encoder:
            cut = statements(ids.cpu().numpy(), self.kinds.cpu().numpy())
            different = self.statement_encoder(cut.different, self.pieces, self.kinds)
            x = different[torch.from_numpy(cut.places).to(ids.device)]
            x = x + self._named(torch.from_numpy(cut.names).to(ids.device))
            sight = Sight.of_statements(cut, self.config, x)
        else:
            frozen = self.config.encoder
            x = self.pieces(encoders.load(frozen).states(ids) if frozen else ids)
            sight = Sight.of(ids, self.kinds, 0 if frozen else self.config.special_heads, _computed(x))
        for layer in self.encoder:
            x = layer(x, sight)
        return self.norm_memory(x), sight.padding

    def _named(self, names: Tensor) -> Tensor:
        """What names [B, S, N] add to statements [B, S, width]: the first, and all of them."""
        sums = [
            F.embedding_bag(some.flatten(0, 1), self.pieces.weight, mode="sum", padding_idx=PAD)
            for some in (names[:, :, :1], names)
        ]
        added: Tensor = cast(nn.Linear, self.names)(torch.cat(sums, 1))
        return added.view(*names.shape[:2], -1)

    def decode(self, tokens: Tensor, memory: Memory, caches: list[Cache] | None = None) -> Tensor:
        """Logits of the token after each decoder token.

        Args:
            tokens: int64 [B * n, t]; n decodings of each input, those of one input together.
            memory: from `encode`.
            caches: what was decoded before, extended in place.

        Returns:
            [B * n, t, TOKENS].
        """
        x = self.tokens(tokens)
        start, t = caches[0].length if caches else 0, tokens.shape[1]
        rotary = rotary_table(start, t, x.device)
        causal = memory.mask.new_full((t, start + t), _BLOCKED).triu(start + 1)
        for i, layer in enumerate(self.decoder):
            x = layer(x, rotary, causal, memory.key_values[i], memory.mask, caches[i] if caches else None)
        logits: Tensor = self.digits(self.norm_out(x))
        return logits

    def forward(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """Teacher-forced logits [B, t, TOKENS] for texts [B, T] and decoder tokens [B, t]."""
        return self.decode(tokens, self.encode(ids))


class Cache:
    """Keys and values of the decoder tokens so far, of one layer."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        self.keys, self.values = k, v
        return k, v


def rotary_table(start: int, length: int, device: torch.device) -> Rotary:
    """Cosines and sines [length, HEAD / 2] of positions from `start`."""
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD, 2, device=device) / HEAD)
    angle = torch.arange(start, start + length, device=device)[:, None] * frequency[None]
    return torch.cos(angle), torch.sin(angle)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair of a head's halves by the angle of its position."""
    cos, sin = (r.to(x.dtype) for r in rotary)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
