"""Numbers as digit tokens: sign, exponent sign, exponent and mantissa digits, and the tree that they form.

Examples:
    >>> scheme = NumberScheme(mantissa_digits=3)
    >>> scheme.format_tokens(scheme.encode(72.5))
    '<+><-><1><7><2><5>'

Source: section 3 of the paper.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PLUS, MINUS, ZERO = 0, 1, 2  # the digit d is token ZERO + d
NUM_DIGIT_TOKENS = 12
TOKEN_NAMES = ("<+>", "<->", *(f"<{d}>" for d in range(10)))


@dataclass(frozen=True)
class NumberScheme:
    """A scheme that writes numbers as tokens: an integer mantissa without leading zeros, times a power of 10.

    The tokens of a number are its sign, the exponent's sign, `exponent_digits` digits of the exponent and
    `mantissa_digits` digits of the mantissa. Zero has the most negative exponent and a mantissa of zeros, so
    that the order of the tree is the order of the numbers. An exponent of -0 is not used.

    Args:
        exponent_digits: digits of the exponent's magnitude.
        mantissa_digits: digits of the mantissa; values are rounded to them, half to even.
        has_infinity: whether the largest exponent is that of infinity, with a mantissa of 10…0, so that
            infinite values are numbers of their own at both ends of the tree.
    """

    exponent_digits: int = 1
    mantissa_digits: int = 4
    has_infinity: bool = False

    @property
    def length(self) -> int:
        """Number of tokens of a number."""
        return 2 + self.exponent_digits + self.mantissa_digits

    @property
    def max_exponent(self) -> int:
        """The largest exponent that can be written; the smallest is its negative."""
        return int(10**self.exponent_digits - 1)

    @property
    def max_finite_exponent(self) -> int:
        """The largest exponent of a finite number."""
        return self.max_exponent - self.has_infinity

    def encode(self, value: float) -> list[int]:
        """Return the tokens of a number.

        Magnitudes below half of the smallest positive number become zero. Magnitudes above the largest
        number, also infinite ones, become the largest. With `has_infinity`, infinite values stay infinite.

        Raises:
            ValueError: the value is NaN.
        """
        if math.isnan(value):
            raise ValueError("NaN has no tokens: leave missing values out")
        digits, max_exponent = self.mantissa_digits, self.max_exponent
        if self.has_infinity and math.isinf(value):
            sign, exponent_tokens = MINUS if value < 0 else PLUS, self._digit_tokens(str(max_exponent))
            return [sign, PLUS, *exponent_tokens, *self._digit_tokens("1" + "0" * (digits - 1))]
        magnitude = min(abs(float(value)), sys.float_info.max)
        # Python's formatting rounds the exact binary value, half to even, and carries into the exponent.
        leading, power_text = f"{magnitude:.{digits - 1}e}".split("e")
        mantissa, exponent = leading.replace(".", ""), int(power_text) - digits + 1
        if exponent > self.max_finite_exponent:
            mantissa, exponent = "9" * digits, self.max_finite_exponent
        elif exponent < -max_exponent or magnitude == 0:
            if 2 * magnitude <= float(f"1e{digits - 1 - max_exponent}"):
                return [PLUS, MINUS, *self._digit_tokens("9" * self.exponent_digits), *[ZERO] * digits]
            mantissa, exponent = "1" + "0" * (digits - 1), -max_exponent
        return [
            MINUS if value < 0 else PLUS,
            MINUS if exponent < 0 else PLUS,
            *self._digit_tokens(f"{abs(exponent):0{self.exponent_digits}d}"),
            *self._digit_tokens(mantissa),
        ]

    def decode(self, tokens: Sequence[int]) -> float:
        """Return the number of a sequence of tokens.

        Raises:
            ValueError: the tokens are not a number of this scheme.
        """
        tokens = [int(t) for t in tokens]
        if len(tokens) != self.length or not self.is_valid(tokens):
            example = f"{self.format_tokens(self.encode(72.5))} for 72.5"
            raise ValueError(
                f"{self.format_tokens(tokens)} is not a number: expected {self.length} tokens, {example}"
            )
        return float(self.decode_array(np.array(tokens)))

    def decode_array(self, tokens: np.ndarray) -> np.ndarray:
        """Return the numbers of an array of tokens, without checking them.

        Args:
            tokens: int [..., length], valid numbers.

        Returns:
            float64 [...].
        """
        characters = np.frombuffer(b"+-0123456789e", dtype=np.uint8)
        e_character = NUM_DIGIT_TOKENS
        flat = tokens.reshape(-1, self.length)
        end = 2 + self.exponent_digits
        reordered = np.hstack([flat[:, :1], flat[:, end:], flat[:, 1:end]])
        text = characters[np.insert(reordered, -(end - 1), e_character, axis=1)]
        with np.errstate(over="ignore"):  # numbers above the largest float are infinite
            numbers = text.view(f"S{self.length + 1}").astype(np.float64).reshape(tokens.shape[:-1])
        if self.has_infinity:
            exponent = tokens[..., 1:end]
            is_infinite = (exponent == [PLUS, *[ZERO + 9] * self.exponent_digits]).all(-1)
            largest = sys.float_info.max  # which rounding to few digits may exceed
            numbers = np.where(is_infinite, np.copysign(np.inf, numbers), np.clip(numbers, -largest, largest))
        return numbers

    def is_valid(self, tokens: Sequence[int]) -> bool:
        """Return whether the tokens are a number or a prefix of one."""
        return all(t in self.children(tokens[:i]) for i, t in enumerate(tokens))

    def children(self, prefix: Sequence[int]) -> list[int]:
        """Return the valid next tokens after a prefix, in ascending order of the numbers below them."""
        position, max_exponent = len(prefix), self.max_exponent
        if position == 0:
            return [MINUS, PLUS]
        is_negative = prefix[0] == MINUS
        if position == 1:
            tokens = [MINUS, PLUS]
        elif position < 2 + self.exponent_digits:
            tokens = [ZERO + d for d in range(10)]
            if prefix[1] == MINUS:
                tokens.reverse()
                is_last_digit = position == 1 + self.exponent_digits
                if is_last_digit and all(t == ZERO for t in prefix[2:]):
                    tokens.remove(ZERO)
        else:
            exponent = self._integer(prefix[2 : 2 + self.exponent_digits])
            is_min_exponent = prefix[1] == MINUS and exponent == max_exponent
            tokens = [ZERO + d for d in range(10)]
            if self.has_infinity and prefix[1] == PLUS and exponent == max_exponent:
                return [ZERO + (position == 2 + self.exponent_digits)]
            if position == 2 + self.exponent_digits:
                if not (is_min_exponent and not is_negative):
                    tokens.remove(ZERO)
            elif prefix[2 + self.exponent_digits] == ZERO:
                tokens = [ZERO]
        return tokens[::-1] if is_negative else tokens

    def format_tokens(self, tokens: Sequence[int]) -> str:
        """Return tokens in the notation of the paper, such as `<+><-><1><7>`."""
        return "".join(TOKEN_NAMES[t] if 0 <= t < NUM_DIGIT_TOKENS else f"<{t}?>" for t in tokens)

    @staticmethod
    def _digit_tokens(digits: str) -> list[int]:
        """The tokens of decimal digits."""
        return [ZERO + int(c) for c in digits]

    @staticmethod
    def _integer(tokens: Sequence[int]) -> int:
        """The integer of digit tokens."""
        return int("".join(str(t - ZERO) for t in tokens))


class DigitTree:
    """The tree of a scheme's numbers as lookup tables, to walk a batch of prefixes without a loop over rows.

    The valid next tokens depend on the position and on a state: the sign, the exponent's sign, whether all
    exponent digits so far are 0, whether all are 9, and whether the number is zero. State 0 is the root. The
    numbers below a prefix are those that start with its tokens.

    Args:
        scheme: scheme of the numbers.

    Attributes:
        children: int64 [positions, states, 10], valid next tokens in ascending order of the numbers below
            them, padded with -1.
        next_states: int64 [positions, states, NUM_DIGIT_TOKENS], the state after each token.
    """

    def __init__(self, scheme: NumberScheme) -> None:
        self.scheme = scheme
        states: list[dict[tuple[object, ...], int]] = [{} for _ in range(scheme.length + 1)]
        examples: list[list[list[int]]] = [[] for _ in range(scheme.length + 1)]
        states[0][self._state([])] = 0
        examples[0].append([])
        transitions: list[tuple[int, int, int, int]] = []
        valid_tokens: list[tuple[int, int, list[int]]] = []
        for position in range(scheme.length):
            for index, prefix in enumerate(examples[position]):
                tokens = scheme.children(prefix)
                valid_tokens.append((position, index, tokens))
                for token in tokens:
                    longer = [*prefix, token]
                    state = self._state(longer)
                    if state not in states[position + 1]:
                        states[position + 1][state] = len(examples[position + 1])
                        examples[position + 1].append(longer)
                    transitions.append((position, index, token, states[position + 1][state]))
        num_states = max(len(e) for e in examples)
        self.children = np.full((scheme.length, num_states, 10), -1, dtype=np.int64)
        self.next_states = np.zeros((scheme.length, num_states, NUM_DIGIT_TOKENS), dtype=np.int64)
        for position, index, tokens in valid_tokens:
            self.children[position, index, : len(tokens)] = tokens
        for position, index, token, next_index in transitions:
            self.next_states[position, index, token] = next_index

    def edges(self, digits: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return, for each prefix, the edges that separate the numbers below its children.

        Args:
            digits: prefixes, int [rows, position].
            states: states of the prefixes, int [rows].

        Returns:
            float64 [rows, 11], ascending: midpoints between the numbers of adjacent children, and as first
            and last edge the extreme numbers below the prefix. Invalid children have intervals of width 0.
            The edge between finite numbers and infinity is the largest finite float.
        """
        children = self.children[digits.shape[1], states]
        num_valid = (children >= 0).sum(1)
        children = np.where(children < 0, children[:, :1], children)
        low, high = (self._extreme(digits, states, children, largest) for largest in (False, True))
        with np.errstate(invalid="ignore"):  # infinities of children that are padding, which are replaced
            midpoints = np.clip(high[:, :-1] / 2 + low[:, 1:] / 2, -sys.float_info.max, sys.float_info.max)
        end = np.take_along_axis(high, num_valid[:, None] - 1, 1)
        edges = np.concatenate([low[:, :1], midpoints, end], 1)
        return np.where(np.arange(edges.shape[1]) < num_valid[:, None], edges, end)

    def _extreme(
        self, digits: np.ndarray, states: np.ndarray, children: np.ndarray, largest: bool
    ) -> np.ndarray:
        """The smallest or largest number below each child of prefixes, float64 [rows, 10]; see `edges`."""
        position = digits.shape[1]
        tokens = np.empty((*children.shape, self.scheme.length), dtype=np.int64)
        tokens[:, :, :position] = digits[:, None]
        tokens[:, :, position] = children
        states = self.next_states[position, states[:, None], children]
        for k in range(position + 1, self.scheme.length):
            candidates = self.children[k, states]
            chosen = (candidates >= 0).sum(-1) - 1 if largest else np.zeros_like(states)
            tokens[:, :, k] = np.take_along_axis(candidates, chosen[..., None], -1)[..., 0]
            states = self.next_states[k, states, tokens[:, :, k]]
        return self.scheme.decode_array(tokens)

    def _state(self, prefix: Sequence[int]) -> tuple[object, ...]:
        """The state of a prefix, see `DigitTree`."""
        exponent = prefix[2 : 2 + self.scheme.exponent_digits]
        mantissa = prefix[2 + self.scheme.exponent_digits :]
        return (
            *prefix[:2],
            all(t == ZERO for t in exponent),
            all(t == ZERO + 9 for t in exponent),
            len(mantissa) > 0 and mantissa[0] == ZERO,
        )
