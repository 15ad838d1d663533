"""A SentencePiece tokenizer for ONNX text, in which each name of a value is a single token."""

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

from nas_rlm.files import write_bytes
from search_spaces.wording import counted

PAD, UNKNOWN = 0, 1
IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE = 1, 2, 4
CACHE_SIZE = 1 << 14  # entries of each cache
MAX_BOUNDARY_PIECES = 16  # pieces on each side of a boundary that are merged again
NUM_VALUE_NAMES = 256  # v0..v255 and d0..d255 are single tokens
_TEXT_EDGE = -1  # in place of a token: the start or end of the text
_SCOPE_END = "\n}\n"
_NAME = re.compile(r"([vd](?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))")
_SYMBOLS = (_SCOPE_END, *(f"{k}{i}" for k in "vd" for i in range(NUM_VALUE_NAMES)))


def encodable(text: str) -> str:
    r"""Return a text in which characters that UTF-8 does not have are escaped.

    Examples:
        >>> encodable("a\ud800é")
        'a\\ud800é'
    """
    return text.encode(errors="backslashreplace").decode()


class Tokenizer:
    """A SentencePiece tokenizer that converts text to token ids and back.

    Examples:
        >>> from nas_rlm.files import ASSETS
        >>> tokenizer = Tokenizer.load(ASSETS / "nas" / "tokenizer.model")
        >>> tokenizer.decode(tokenizer.encode("v2=Add(v0,v1)")) == "v2=Add(v0,v1)"
        True

    Args:
        proto: contents of a SentencePiece model file.

    Raises:
        ValueError: `proto` is not a SentencePiece model.
    """

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.LoadFromSerializedProto(proto)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({counted(len(proto), 'byte')}): {error}") from None
        self._symbols = {s: self._pieces.PieceToId(s) for s in _SYMBOLS}
        self._is_split = all(self._pieces.IdToPiece(i) == s for s, i in self._symbols.items())
        self._texts = [
            "" if self._is_unknown(i) else self._pieces.IdToPiece(i).replace("▁", " ")
            for i in range(self.vocab_size)
        ]
        self._encode_cached = lru_cache(maxsize=CACHE_SIZE)(self._pieces.EncodeAsIds)
        self._split_cached = lru_cache(maxsize=CACHE_SIZE)(self._split)
        self._remerge_cached = lru_cache(maxsize=CACHE_SIZE)(self._remerge)
        self._are_stable_cached = lru_cache(maxsize=CACHE_SIZE)(self._are_stable)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        """Pickle the model file alone: caches cannot be."""
        return type(self), (self.proto,)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a SentencePiece model file.

        Raises:
            ValueError: the file is not a SentencePiece model.
        """
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8192,
        longest_piece: int = 64,
        seed: int = 0,
        splits_digits: bool = False,
        character_coverage: float = 1.0,
    ) -> Tokenizer:
        """Train a tokenizer on a mixture of texts.

        Args:
            texts: ONNX texts (`nas_rlm.text.from_onnx`); a few thousand of each space are enough.
            vocab_size: maximum number of tokens, including 256 bytes and 512 names of values.
            longest_piece: maximum length of a token in characters.
            seed: random seed of SentencePiece.
            splits_digits: whether each digit is a token, so that numbers in texts are read digit by digit.
            character_coverage: share of all characters that are tokens; others are read as bytes.

        Raises:
            ValueError: there are no texts, or `vocab_size` is too small for the characters, bytes and names.

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
                split_digits=splits_digits,
                byte_fallback=True,
                character_coverage=character_coverage,
                user_defined_symbols=list(_SYMBOLS),
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=-1,
                eos_id=-1,
                num_threads=2,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(
                f"a tokenizer of {counted(vocab_size, 'token')} cannot be trained: {error}"
            ) from None
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return int(self._pieces.GetPieceSize())

    @cached_property
    def sha256(self) -> str:
        """Hash of the model file, in hexadecimal digits."""
        return hashlib.sha256(self.proto).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the SentencePiece model file."""
        write_bytes(path, self.proto)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text.

        No token contains the name of a value or the end of a scope together with other characters. The text
        between them, which repeats within a space, is therefore encoded once and cached.
        """
        if not self._is_split:
            return list(self._pieces.EncodeAsIds(text))
        network, *functions = text.split(_SCOPE_END)
        ids = self._split(network)
        for function in functions:
            ids.append(self._symbols[_SCOPE_END])
            ids += self._split_cached(function)
        return ids

    def _split(self, scope: str) -> list[int]:
        """Encode the text of a scope: the names of values, and the text between them."""
        ids: list[int] = []
        segments = iter(_NAME.split(scope))
        for text in segments:
            if text:
                ids += self._encode_between_names(text)
            name = next(segments, None)
            if name is not None:
                ids.append(self._symbols[name])
        return ids

    def _encode_between_names(self, text: str) -> list[int]:
        """Encode a text without names of values, split into chunks whose encodings are cached."""
        chunks = text.replace(",float[", ",float[\0").replace("=f.", "\0=f.").split("\0")
        if len(chunks) == 1 or "\0" in text:
            return self._encode_cached(text)
        ids: list[int] = []
        for chunk in chunks:
            if not self._join(ids, self._encode_cached(chunk)):
                return list(self._pieces.EncodeAsIds(text))
        return ids

    def _join(self, ids: list[int], more: list[int]) -> bool:
        """Append the token ids `more` of the next chunk to `ids`, as if both texts were encoded together.

        Byte-pair merging is local: a sequence of tokens is the encoding of its text if and only if each two
        neighbours are the encoding of their joint text. If they are not, a few tokens on both sides of the
        boundary are encoded again.

        Returns:
            False if more than MAX_BOUNDARY_PIECES tokens on a side would change.
        """
        for k in range(MAX_BOUNDARY_PIECES):
            tail = tuple(ids[-k - 1 :]) if k < len(ids) else (_TEXT_EDGE, *ids)
            head = tuple(more[: k + 1]) if k < len(more) else (*more, _TEXT_EDGE)
            boundary = self._remerge_cached(tail, head)
            if boundary is not None:
                ids[max(0, len(ids) - k) :] = boundary + more[k:]
                return True
        return False

    def _remerge(self, tail: tuple[int, ...], head: tuple[int, ...]) -> list[int] | None:
        """Encode the text between the first token of `tail` and the last of `head`; None if these change."""
        texts = [self._texts[i] for i in tail[1:] + head[:-1]]
        if not all(texts):
            return None
        boundary = list(self._pieces.EncodeAsIds("".join(texts)))
        row = [tail[0], *boundary, head[-1]]
        return boundary if all(starmap(self._are_stable_cached, pairwise(row))) else None

    def _are_stable(self, left: int, right: int) -> bool:
        """Return True if two neighbouring tokens are the encoding of their joint text."""
        if _TEXT_EDGE in (left, right):
            return True
        return bool(self._pieces.EncodeAsIds(self._texts[left] + self._texts[right]) == [left, right])

    def num_unknown(self, ids: list[int]) -> int:
        """Return the number of ids that are the unknown token, or a byte of a character without a token."""
        return sum(map(self._is_unknown, ids))

    def _is_unknown(self, i: int) -> bool:
        """Return True for the id of the unknown token or of a byte."""
        return bool(self._pieces.IsUnknown(i) or self._pieces.IsByte(i))

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids."""
        return str(self._pieces.DecodeIds(ids))

    def kinds(self) -> np.ndarray:
        """Return flags of each token: name of a value, end of a statement, end of a scope.

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
