"""Encoder states of texts that are computed once each, while an encoder is not trained."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nas_rlm.model.attention import matmul_dtype, padding_mask
from nas_rlm.text.tokenizer import PAD

MAX_BYTES = 2**30  # of states that are kept; the states of other texts are computed each time

Encode = Callable[[Tensor], tuple[Tensor, Tensor]]  # from ids to states and mask, see `Network.states`


class KeptStates:
    """States of the texts that a frozen encoder has encoded."""

    def __init__(self) -> None:
        self._states: dict[bytes, Tensor] = {}
        self._free_bytes = MAX_BYTES

    def states(self, ids: Tensor, encode: Encode) -> tuple[Tensor, Tensor]:
        """Return states and padding mask of texts as `encode` does, which is called for new ones alone.

        Args:
            ids: token ids, int64 [B, T], padded with 0.
            encode: the encoder.
        """
        keys = [row[row != PAD].numpy().tobytes() for row in ids.cpu()]
        found = {key: self._states[key] for key in keys if key in self._states}
        new = {key: i for i, key in enumerate(keys) if key not in found}
        if new:
            with torch.no_grad():
                x, padding = encode(ids[list(new.values())])
            counts = (padding[:, 0, 0] == 0).sum(1).tolist()
            for key, states, length in zip(new, x.float(), counts, strict=True):
                found[key] = states[:length].clone()
                self._keep(key, found[key])
        texts = [found[key] for key in keys]
        lengths = torch.tensor([len(states) for states in texts], device=ids.device)
        x = pad_sequence(texts, batch_first=True)
        is_padding = torch.arange(x.shape[1], device=ids.device) >= lengths[:, None]
        return x, padding_mask(is_padding, matmul_dtype(x))

    def _keep(self, key: bytes, states: Tensor) -> None:
        """Keep the states of a text, unless they would exceed the memory."""
        size = states.numel() * states.element_size()
        if size <= self._free_bytes:
            self._states[key] = states
            self._free_bytes -= size
