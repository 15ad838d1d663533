"""Numbers the plain way, by torch's own decoder: what the network's own decoding is held against."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from nas_rlm.model import decoding
from nas_rlm.model.network import Config, Network


class Plain(nn.Module):
    """The plain way to a median, with weights of the same sizes: all is read again at each digit.

    Every sample has a copy of the text's states, and torch's own decoder reads all digits so far.

    Args:
        config: of the network whose sizes it has.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        layer = nn.TransformerDecoderLayer(
            width, config.size, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.decoder = nn.TransformerDecoder(layer, config.decoder_layers)
        self.scheme = config.scheme
        like = Network(replace(config, encoder="", size=config.size), np.zeros(config.vocab_size))
        self.tokens, self.digits = like.tokens, like.digits

    @torch.inference_mode()
    def median(
        self, states: Tensor, padding: Tensor, objective: int, samples: int, generator: torch.Generator
    ) -> np.ndarray:
        """The medians of samples of each text.

        Args:
            states: of the texts, [B, T, width].
            padding: bool [B, T].
            objective: its token.
            samples: of each text.
            generator: source of randomness.

        Returns:
            float64 [B].
        """
        memory, is_padding = (t.repeat_interleave(samples, 0) for t in (states, padding))
        order, step = decoding.tree_tensors(self.scheme)
        written = torch.full((len(memory), 1), objective)
        state = torch.zeros(len(memory), dtype=torch.long)
        for position in range(self.scheme.length):
            causal = nn.Transformer.generate_square_subsequent_mask(position + 1)
            x = self.decoder(
                self.tokens(written), memory, causal, tgt_is_causal=True, memory_key_padding_mask=is_padding
            )
            children = order[position, state]
            scores = self.digits(x[:, -1]).gather(1, children.clamp(min=0))
            scores = scores.masked_fill(children < 0, float("-inf"))
            chosen = torch.multinomial(scores.softmax(1), 1, generator=generator)
            digit = children.gather(1, chosen)
            state = step[position, state, digit[:, 0]]
            written = torch.cat([written, digit], 1)
        numbers = self.scheme.decode_array(written[:, 1:].numpy())
        found: np.ndarray = np.median(numbers.reshape(len(states), samples), 1)
        return found
