"""Decoding with PyTorch's own transformer decoder, without a cache: the baseline of exact decoding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from nas_rlm.model import decoding
from nas_rlm.model.network import Config, Network


class UncachedDecoder(nn.Module):
    """A decoder with weights of the network's sizes that reads all digits again at each digit.

    Every sample has its own copy of the text's encoder states.

    Args:
        config: configuration of the network.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        layer = nn.TransformerDecoderLayer(
            width, config.size, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.decoder = nn.TransformerDecoder(layer, config.decoder_layers)
        self.scheme = config.scheme
        network = Network(replace(config, encoder="", size=config.size), np.zeros(config.vocab_size))
        self.tokens, self.digits = network.tokens, network.digits

    @torch.inference_mode()
    def median(
        self, states: Tensor, padding: Tensor, objective: int, num_samples: int, generator: torch.Generator
    ) -> np.ndarray:
        """Return the median of samples for each text.

        Args:
            states: encoder states of the texts [B, T, width].
            padding: whether a position is padding, bool [B, T].
            objective: token of the objective.
            num_samples: samples of each text.
            generator: source of randomness.

        Returns:
            Medians [B].
        """
        memory, is_padding = (t.repeat_interleave(num_samples, 0) for t in (states, padding))
        order, step = decoding.tree_tensors(self.scheme)
        tokens = torch.full((len(memory), 1), objective)
        state = torch.zeros(len(memory), dtype=torch.long)
        for position in range(self.scheme.length):
            causal = nn.Transformer.generate_square_subsequent_mask(position + 1)
            x = self.decoder(
                self.tokens(tokens), memory, causal, tgt_is_causal=True, memory_key_padding_mask=is_padding
            )
            children = order[position, state]
            scores = self.digits(x[:, -1]).gather(1, children.clamp(min=0))
            scores = scores.masked_fill(children < 0, float("-inf"))
            index = torch.multinomial(scores.softmax(1), 1, generator=generator)
            digit = children.gather(1, index)
            state = step[position, state, digit[:, 0]]
            tokens = torch.cat([tokens, digit], 1)
        samples = self.scheme.decode_array(tokens[:, 1:].numpy())
        medians: np.ndarray = np.median(samples.reshape(len(states), num_samples), 1)
        return medians
