"""A SentencePiece tokenizer for ONNX text, in which the name of a value is always a piece of its own."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import pairwise, starmap
from pathlib import Path

import numpy as np
import sentencepiece

PAD = 0
IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE = 1, 2, 4
REMEMBERED = 1 << 14  # stretches of text, with their ids
MOST = 16  # pieces that the next chunk may change, and of those of the chunk
NAMES = 256  # v0..v255 and d0..d255 are pieces of their own
_EDGE = -1  # where a text starts or ends
_SCOPE_END = "\n}\n"
_NAME = re.compile(r"([vd](?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))")
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
        self._texts = [
            "" if self._is_odd(i) else self._pieces.IdToPiece(i).replace("▁", " ")
            for i in range(self.vocab_size)
        ]
        self._known = lru_cache(maxsize=REMEMBERED)(self._pieces.EncodeAsIds)
        self._function = lru_cache(maxsize=REMEMBERED)(self._split)
        self._between_pieces = lru_cache(maxsize=REMEMBERED)(self._between_anew)
        self._fit = lru_cache(maxsize=REMEMBERED)(self._fit_anew)

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
        network, *functions = text.split(_SCOPE_END)
        ids = self._split(network)
        for function in functions:
            ids.append(self._symbols[_SCOPE_END])
            ids += self._function(function)
        return ids

    def _split(self, scope: str) -> list[int]:
        ids: list[int] = []
        parts = iter(_NAME.split(scope))
        for between in parts:
            if between:
                ids += self._between(between)
            name = next(parts, None)
            if name is not None:
                ids.append(self._symbols[name])
        return ids

    def _between(self, text: str) -> list[int]:
        """Ids of a text without names of values, of which each chunk is looked up."""
        chunks = text.replace(",float[", ",float[\0").replace("=f.", "\0=f.").split("\0")
        if len(chunks) == 1 or "\0" in text:
            return self._known(text)
        ids: list[int] = []
        for chunk in chunks:
            if not self._joined(ids, self._known(chunk)):
                return list(self._pieces.EncodeAsIds(text))
        return ids

    def _joined(self, ids: list[int], more: list[int]) -> bool:
        """Add the pieces of a text to those of another one, so that all are as if they had been one text.

        Merging is local: pieces are what their text gives if and only if each two neighbours are what the
        text of these two gives. So where they are not, a few on both sides are looked at again.

        Returns:
            False if these are too many.
        """
        for k in range(MOST):
            tail = tuple(ids[-k - 1 :]) if k < len(ids) else (_EDGE, *ids)
            head = tuple(more[: k + 1]) if k < len(more) else (*more, _EDGE)
            between = self._between_pieces(tail, head)
            if between is not None:
                ids[max(0, len(ids) - k) :] = between + more[k:]
                return True
        return False

    def _between_anew(self, tail: tuple[int, ...], head: tuple[int, ...]) -> list[int] | None:
        """What pieces become between the first and the last of them; None if these would change as well."""
        texts = [self._texts[i] for i in tail[1:] + head[:-1]]
        if not all(texts):
            return None
        between = list(self._pieces.EncodeAsIds("".join(texts)))
        row = [tail[0], *between, head[-1]]
        return between if all(starmap(self._fit, pairwise(row))) else None

    def _fit_anew(self, one: int, other: int) -> bool:
        """Whether two pieces stay as they are beside each other."""
        if _EDGE in (one, other):
            return True
        return bool(self._pieces.EncodeAsIds(self._texts[one] + self._texts[other]) == [one, other])

    def unknown(self, ids: list[int]) -> int:
        """How many of the pieces are unknown, or single bytes in place of a character that has no piece."""
        return sum(map(self._is_odd, ids))

    def _is_odd(self, i: int) -> bool:
        return bool(self._pieces.IsUnknown(i) or self._pieces.IsByte(i))

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
