"""Numbers as tokens: sign, exponent sign, exponent and mantissa digits, and the tree that they span.

>>> scheme = NumberScheme(mantissa_digits=3)
>>> scheme.show(scheme.encode(72.5))
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
TOKENS = 12
NAMES = ("<+>", "<->", *(f"<{d}>" for d in range(10)))


@dataclass(frozen=True)
class NumberScheme:
    """A number is an integer mantissa without leading zeros, times a power of ten.

    Positions: sign, exponent sign, `exponent_digits`, `mantissa_digits`. Zero has the most negative exponent
    and a mantissa of zeros, which puts it where it belongs in the order; an exponent of -0 is not used.

    Args:
        exponent_digits: digits of the exponent's magnitude.
        mantissa_digits: digits of the mantissa; values are rounded to them, half to even.
    """

    exponent_digits: int = 1
    mantissa_digits: int = 4

    @property
    def length(self) -> int:
        """Tokens a number."""
        return 2 + self.exponent_digits + self.mantissa_digits

    @property
    def largest_exponent(self) -> int:
        return int(10**self.exponent_digits - 1)

    def encode(self, value: float) -> list[int]:
        """The tokens of a number.

        Magnitudes under half the smallest become zero; magnitudes over the largest, infinities among them,
        become the largest.

        Raises:
            ValueError: the value is NaN.
        """
        if math.isnan(value):
            raise ValueError("NaN has no tokens; leave missing targets out instead")
        digits, top = self.mantissa_digits, self.largest_exponent
        magnitude = min(abs(float(value)), sys.float_info.max)
        # Python's formatting rounds the exact binary value, half to even, and rolls over to the next power.
        leading, power_text = f"{magnitude:.{digits - 1}e}".split("e")
        mantissa, exponent = leading.replace(".", ""), int(power_text) - digits + 1
        if exponent > top:
            mantissa, exponent = "9" * digits, top
        elif exponent < -top or magnitude == 0:
            if 2 * magnitude <= float(f"1e{digits - 1 - top}"):
                return [PLUS, MINUS, *self._digits("9" * self.exponent_digits), *[ZERO] * digits]
            mantissa, exponent = "1" + "0" * (digits - 1), -top
        return [
            MINUS if value < 0 else PLUS,
            MINUS if exponent < 0 else PLUS,
            *self._digits(f"{abs(exponent):0{self.exponent_digits}d}"),
            *self._digits(mantissa),
        ]

    def decode(self, tokens: Sequence[int]) -> float:
        """The number that tokens stand for.

        Raises:
            ValueError: the tokens are not a number of this scheme.
        """
        tokens = [int(t) for t in tokens]
        if len(tokens) != self.length or not self.is_valid(tokens):
            example = f"{self.show(self.encode(72.5))} = 72.5"
            raise ValueError(
                f"{self.show(tokens)} is not a number: expected {self.length} tokens as {example}"
            )
        return float(self.decode_array(np.array(tokens)))

    def decode_array(self, tokens: np.ndarray) -> np.ndarray:
        """Many numbers at once.

        Args:
            tokens: int [..., length], valid numbers.

        Returns:
            float64 [...].
        """
        written = np.frombuffer(b"+-0123456789e", dtype=np.uint8)
        flat = tokens.reshape(-1, self.length)
        end = 2 + self.exponent_digits
        text = written[
            np.insert(np.hstack([flat[:, :1], flat[:, end:], flat[:, 1:end]]), -(end - 1), TOKENS, axis=1)
        ]
        return text.view(f"S{self.length + 1}").astype(np.float64).reshape(tokens.shape[:-1])

    def is_valid(self, tokens: Sequence[int]) -> bool:
        """Whether the tokens begin a number, or are one."""
        return all(t in self.children(tokens[:i]) for i, t in enumerate(tokens))

    def children(self, prefix: Sequence[int]) -> list[int]:
        """The tokens that may follow a prefix, in ascending order of the numbers below them."""
        position, top = len(prefix), self.largest_exponent
        if position == 0:
            return [MINUS, PLUS]
        negative = prefix[0] == MINUS
        if position == 1:
            order = [MINUS, PLUS]
        elif position < 2 + self.exponent_digits:
            order = [ZERO + d for d in range(10)]
            if prefix[1] == MINUS:
                order.reverse()
                last = position == 1 + self.exponent_digits
                if last and all(t == ZERO for t in prefix[2:]):
                    order.remove(ZERO)
        else:
            exponent = self._integer(prefix[2 : 2 + self.exponent_digits])
            least = prefix[1] == MINUS and exponent == top
            order = [ZERO + d for d in range(10)]
            if position == 2 + self.exponent_digits:
                if not (least and not negative):
                    order.remove(ZERO)
            elif prefix[2 + self.exponent_digits] == ZERO:
                order = [ZERO]
        return order[::-1] if negative else order

    def show(self, tokens: Sequence[int]) -> str:
        """Tokens as the paper writes them."""
        return "".join(NAMES[t] if 0 <= t < TOKENS else f"<{t}?>" for t in tokens)

    @staticmethod
    def _digits(text: str) -> list[int]:
        return [ZERO + int(c) for c in text]

    @staticmethod
    def _integer(tokens: Sequence[int]) -> int:
        return int("".join(str(t - ZERO) for t in tokens))


class DigitTree:
    """The scheme's tree as tables, so that a batch of prefixes is walked without a loop over its rows.

    What may follow a prefix depends on its position and on a small state: the sign, the exponent's sign,
    whether all exponent digits so far are 0, whether all are 9, and whether the number is zero.

    Attributes:
        order: int64 [positions, states, 10], children in ascending numeric order, padded with -1.
        step: int64 [positions, states, TOKENS], the state after each token.
    """

    def __init__(self, scheme: NumberScheme) -> None:
        self.scheme = scheme
        states: list[dict[tuple[object, ...], int]] = [{} for _ in range(scheme.length + 1)]
        examples: list[list[list[int]]] = [[] for _ in range(scheme.length + 1)]
        states[0][self._state([])] = 0
        examples[0].append([])
        transitions: list[tuple[int, int, int, int]] = []
        orders: list[tuple[int, int, list[int]]] = []
        for position in range(scheme.length):
            for index, prefix in enumerate(examples[position]):
                children = scheme.children(prefix)
                orders.append((position, index, children))
                for token in children:
                    following = [*prefix, token]
                    key = self._state(following)
                    if key not in states[position + 1]:
                        states[position + 1][key] = len(examples[position + 1])
                        examples[position + 1].append(following)
                    transitions.append((position, index, token, states[position + 1][key]))
        width = max(len(e) for e in examples)
        self.order = np.full((scheme.length, width, 10), -1, dtype=np.int64)
        self.step = np.zeros((scheme.length, width, TOKENS), dtype=np.int64)
        for position, index, children in orders:
            self.order[position, index, : len(children)] = children
        for position, index, token, after in transitions:
            self.step[position, index, token] = after

    def edges(self, digits: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Where the numbers below each child end and those below the next begin.

        Args:
            digits: int [rows, position], prefixes.
            state: int [rows], their states.

        Returns:
            float64 [rows, 11], rising: halfway between the numbers of neighbours, and the outermost numbers
            below the prefix. There is no room between the edges of a child that is not valid.
        """
        children = self.order[digits.shape[1], state]
        valid = (children >= 0).sum(1)
        children = np.where(children < 0, children[:, :1], children)
        least, most = (self._outermost(digits, state, children, last) for last in (False, True))
        between = (most[:, :-1] + least[:, 1:]) / 2
        end = np.take_along_axis(most, valid[:, None] - 1, 1)
        edges = np.concatenate([least[:, :1], between, end], 1)
        return np.where(np.arange(edges.shape[1]) < valid[:, None], edges, end)

    def _outermost(
        self, digits: np.ndarray, state: np.ndarray, children: np.ndarray, last: bool
    ) -> np.ndarray:
        """The least or the largest number below each child, float64 [rows, 10]."""
        position = digits.shape[1]
        full = np.empty((*children.shape, self.scheme.length), dtype=np.int64)
        full[:, :, :position] = digits[:, None]
        full[:, :, position] = children
        states = self.step[position, state[:, None], children]
        for k in range(position + 1, self.scheme.length):
            following = self.order[k, states]
            chosen = (following >= 0).sum(-1) - 1 if last else np.zeros_like(states)
            full[:, :, k] = np.take_along_axis(following, chosen[..., None], -1)[..., 0]
            states = self.step[k, states, full[:, :, k]]
        return self.scheme.decode_array(full)

    def _state(self, prefix: Sequence[int]) -> tuple[object, ...]:
        exponent = prefix[2 : 2 + self.scheme.exponent_digits]
        mantissa = prefix[2 + self.scheme.exponent_digits :]
        return (
            *prefix[:2],
            all(t == ZERO for t in exponent),
            all(t == ZERO + 9 for t in exponent),
            len(mantissa) > 0 and mantissa[0] == ZERO,
        )
