"""Layers of the encoder and the decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model.attention import (
    Attention,
    AttentionMask,
    CrossAttention,
    EncoderAttention,
    KeyValue,
    KeyValueCache,
    Rotary,
)


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
