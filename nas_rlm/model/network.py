"""The encoder-decoder network: an encoder over text tokens, a decoder over number tokens.

`nas_rlm.model.decoding` draws numbers from it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model import encoders
from nas_rlm.model.attention import (
    MASKED_SCORE,
    AttentionMask,
    KeyValue,
    KeyValueCache,
    matmul_dtype,
    rotary_table,
)
from nas_rlm.model.config import Config
from nas_rlm.model.kept_states import KeptStates
from nas_rlm.model.layers import DecoderLayer, EncoderLayer
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS
from nas_rlm.model.statement_encoder import StatementEncoder
from nas_rlm.text.statements import split_statements
from nas_rlm.text.tokenizer import PAD

__all__ = ["Config", "Memory", "Network", "has_bfloat16"]


@cache
def has_bfloat16() -> bool:
    """Return whether the CPU has instructions for bfloat16."""
    # Some versions of PyTorch have no get_capabilities.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


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

    Attributes:
        kept_states: keeps the encoder's states of texts while the encoder does not change; None for none.
    """

    kinds: Tensor
    kept_states: KeptStates | None = None

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
        return self.kept_states.states(ids, self._states) if self.kept_states else self._states(ids)

    def _states(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the result of `states`."""
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
            mask = AttentionMask.from_tokens(ids, self.kinds, special_heads, matmul_dtype(x))
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
