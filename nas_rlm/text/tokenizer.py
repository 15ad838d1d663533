"""A SentencePiece tokenizer for ONNX text, in which the name of a value is always a piece of its own."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import sentencepiece

PAD = 0
IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE = 1, 2, 4
REMEMBERED = 1 << 14  # stretches of text, with their ids
NAMES = 256  # v0..v255 and d0..d255 are pieces of their own
_SCOPE_END = "\n}\n"
_SYMBOL = re.compile(r"(\n\}\n|[vd](?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))")
_SYMBOLS = (_SCOPE_END, *(f"{k}{i}" for k in "vd" for i in range(NAMES)))


class Tokenizer:
    """Text to token ids and back.

    >>> tokenizer = Tokenizer.load("nas_rlm/assets/nas/tokenizer.model")
    >>> tokenizer.decode(tokenizer.encode("v2=Add(v0,v1)")) == "v2=Add(v0,v1)"
    True
    """

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.LoadFromSerializedProto(proto)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({len(proto):,} bytes): {error}") from None
        self._symbols = {s: self._pieces.PieceToId(s) for s in _SYMBOLS}
        self._is_split = all(self._pieces.IdToPiece(i) == s for s, i in self._symbols.items())
        self._between = lru_cache(maxsize=REMEMBERED)(self._pieces.EncodeAsIds)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a SentencePiece model file."""
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int = 8192, longest_piece: int = 64, seed: int = 0
    ) -> Tokenizer:
        """Learn the pieces of a mixture of texts.

        Args:
            texts: ONNX texts (`nas_rlm.text.from_onnx`), a few thousand of each space.
            vocab_size: at most this many pieces, 256 bytes and 512 value names among them.
            longest_piece: in characters; limits how much of a statement one piece can hold.
            seed: of SentencePiece's own sampling.

        Raises:
            ValueError: no texts, or too few pieces for the characters, bytes and value names.

        Source: section 6.3 of the paper (a learned 8K vocabulary instead of T5's 32K).
        """
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(seed)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                max_sentencepiece_length=longest_piece,
                max_sentence_length=1 << 20,
                split_by_whitespace=False,
                split_by_unicode_script=False,
                split_by_number=False,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                byte_fallback=True,
                character_coverage=1.0,
                user_defined_symbols=list(_SYMBOLS),
                pad_id=PAD,
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                num_threads=2,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(f"no tokenizer of {vocab_size} pieces from these texts: {error}") from None
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        return int(self._pieces.GetPieceSize())

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.proto).hexdigest()

    def save(self, path: str | Path) -> None:
        from nas_rlm.files import write_bytes

        write_bytes(path, self.proto)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text.

        No piece reaches over a value's name or a scope's end. So what is between them, much of which the
        texts of a space have in common, is looked up.
        """
        if not self._is_split:
            return list(self._pieces.EncodeAsIds(text))
        ids: list[int] = []
        parts = iter(_SYMBOL.split(text))
        for between in parts:
            if between:
                ids += self._between(between)
            symbol = next(parts, None)
            if symbol is not None:
                ids.append(self._symbols[symbol])
        return ids

    def unknown(self, ids: list[int]) -> int:
        """How many of the pieces are unknown, or single bytes in place of a character that has no piece."""
        return sum(self._pieces.IsUnknown(i) or self._pieces.IsByte(i) for i in ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._pieces.DecodeIds(ids))

    def kinds(self) -> np.ndarray:
        """What the network may know of each piece: is it a value's name, does it end a statement or a scope.

        Returns:
            uint8 [vocab_size], bits IDENTIFIER, ENDS_STATEMENT and ENDS_SCOPE.
        """
        kinds = np.zeros(self.vocab_size, dtype=np.uint8)
        for i in range(self.vocab_size):
            piece = self._pieces.IdToPiece(i)
            kinds[i] = (
                IDENTIFIER * bool(re.fullmatch(r"[vd]\d+", piece))
                + ENDS_STATEMENT * ("\n" in piece)
                + ENDS_SCOPE * (piece == _SCOPE_END)
            )
        return kinds
