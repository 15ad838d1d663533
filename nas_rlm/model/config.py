"""Hyperparameters of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nas_rlm.model.numbers import NUM_DIGIT_TOKENS, NumberScheme

HEAD_WIDTH = 32
DEFAULT_MAX_LENGTH = 8192  # tokens; rotary positions set no limit, but time and memory grow with the length
MAX_STATEMENT_LAYERS = 64


@dataclass(frozen=True)
class Config:
    """Hyperparameters from which a network is built.

    Args:
        vocab_size: number of tokens of the tokenizer.
        objectives: names of the objectives that the decoder can predict, in the order of their tokens.
        size: the only scaling parameter: `size` encoder layers of width 32 * size with `size` heads, and a
            third as many decoder layers.
        max_length: number of tokens that are read; longer texts are truncated, and a warning says so.
        exponent_digits: digits of a number's exponent, see `NumberScheme`.
        mantissa_digits: digits of a number's mantissa, see `NumberScheme`.
        max_numbers: maximum number of numbers in one decoder sequence during training; see
            `nas_rlm.model.decoding`.
        relational: use a quarter of the encoder's heads as statement heads and a quarter as reference heads,
            see `AttentionMask`.
        encoder: name of a frozen pretrained encoder that replaces the encoder layers, see
            `nas_rlm.model.encoders.load`; "" for none.
        encoder_width: width of the frozen encoder's states.
        statement_layers: layers that encode each statement by itself; the `size` encoder layers then attend
            over statements. With 0 they attend over tokens.
        has_infinity: whether numbers can be infinite, see `NumberScheme`.
        reads_any_text: whether texts are any strings, so that an empty one is read as the unknown token.

    Raises:
        ValueError: a value is out of range.
    """

    vocab_size: int
    objectives: tuple[str, ...]
    size: int = 4
    max_length: int = DEFAULT_MAX_LENGTH
    exponent_digits: int = 1
    mantissa_digits: int = 4
    max_numbers: int = 6
    relational: bool = True
    encoder: str = ""
    encoder_width: int = 0
    statement_layers: int = 0
    has_infinity: bool = False
    reads_any_text: bool = False

    def __post_init__(self) -> None:
        positive = ("vocab_size", "size", "max_length", "exponent_digits", "mantissa_digits")
        if not isinstance(self.objectives, tuple) or not all(isinstance(o, str) for o in self.objectives):
            raise ValueError(f"objectives is {self.objectives!r}: expected a list of names")
        if not isinstance(self.encoder, str):
            raise ValueError(f"encoder is {self.encoder!r}: expected a name")
        for name in (*positive, *(["encoder_width"] if self.encoder else [])):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: expected an integer of at least 1")
        max_layers = 0 if self.encoder else MAX_STATEMENT_LAYERS
        if type(self.statement_layers) is not int or not 0 <= self.statement_layers <= max_layers:
            raise ValueError(
                f"statement_layers is {self.statement_layers!r}: expected an integer from 0 to"
                f" {MAX_STATEMENT_LAYERS}, and 0 with a frozen encoder"
            )
        if type(self.max_numbers) is not int or self.max_numbers < 2:
            raise ValueError(f"max_numbers is {self.max_numbers!r}: expected an integer of at least 2")
        for name in ("relational", "has_infinity", "reads_any_text"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected true or false")

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return HEAD_WIDTH * self.size

    @property
    def decoder_layers(self) -> int:
        """Number of decoder layers."""
        return max(1, self.size // 3)

    @property
    def special_heads(self) -> int:
        """Number of statement heads, and of reference heads; 0 in networks of fewer than 3 heads."""
        return max(1, self.size // 4) if self.relational and self.size >= 3 else 0

    @property
    def scheme(self) -> NumberScheme:
        """Scheme by which numbers are written as digit tokens."""
        return NumberScheme(self.exponent_digits, self.mantissa_digits, self.has_infinity)

    def objective_ids(self, names: Sequence[str]) -> list[int]:
        """Return the decoder tokens of objectives."""
        ids = {name: NUM_DIGIT_TOKENS + i for i, name in enumerate(self.objectives)}
        return [ids[name] for name in names]
