"""The numbers and words of programs, and the form that programs have in common without them."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_NUMBER = 1e100
_NUMBER = r"0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<number>(?<![\w.])(?:{_NUMBER}))|(?P<digits>\d+)|(?P<word>[^\W\d]+)")
_BLANKS = re.compile(r"\s+")


class Configuration(NamedTuple):
    """A program as its form, its numbers and its words.

    Args:
        form: hash of the program with marks in the place of numbers and words, and without blanks.
        numbers: its numbers, those within names included.
        words: a number for each of its words.
    """

    form: str
    numbers: tuple[float, ...]
    words: tuple[int, ...]


def configuration_of(program: str) -> Configuration:
    """Return the form, the numbers and the words of a program.

    Examples:
        >>> a, b = map(configuration_of, ["for i in range(0x40): f16(i)", "for k in range(1_000):  f32(k)"])
        >>> a.form == b.form, a.numbers, b.numbers
        (True, (64.0, 16.0), (1000.0, 32.0))

    Args:
        program: source of the program.
    """
    rest: list[str] = []
    numbers: list[float] = []
    words: list[int] = []
    end = 0
    for token in _TOKEN.finditer(program):
        rest.append(_BLANKS.sub("", program[end : token.start()]))
        end = token.end()
        if token["word"] is not None:
            words.append(zlib.crc32(token[0].encode(errors="surrogatepass")))
            rest.append("@")
        else:
            numbers.append(_value(token[0]))
            rest.append("#")
    rest.append(_BLANKS.sub("", program[end:]))
    marked = f"{len(numbers)} {len(words)} {''.join(rest)}"  # the program may have marks itself
    form = hashlib.sha256(marked.encode(errors="surrogatepass")).hexdigest()
    return Configuration(form, tuple(numbers), tuple(words))


def numbers_of(program: str) -> list[float]:
    """Return the numbers of a program, those within names included.

    Examples:
        >>> numbers_of("x1 = 10**6 + 1e-3 * a[0b11]")
        [1.0, 10.0, 6.0, 0.001, 3.0]

    Args:
        program: source of the program.
    """
    return list(configuration_of(program).numbers)


def grouped(configurations: Iterable[Configuration]) -> dict[str, list[int]]:
    """Return the positions of the configurations of each form."""
    groups: dict[str, list[int]] = {}
    for i, found in enumerate(configurations):
        groups.setdefault(found.form, []).append(i)
    return groups


def differ_in_numbers_only(programs: Sequence[str]) -> bool:
    """Return whether programs differ, and are all equal but for numbers and words.

    Examples:
        >>> differ_in_numbers_only(["print(1)", "print(2)"]), differ_in_numbers_only(["print(1)", "x = 2"])
        (True, False)

    Args:
        programs: sources of the programs.
    """
    found = [configuration_of(program) for program in programs]
    return len(set(found)) > 1 and len(grouped(found)) == 1


def _value(text: str) -> float:
    """Return the value of a number of a program, at most `MAX_NUMBER`."""
    digits = text.replace("_", "")
    prefix = digits[:2].lower()
    if prefix in ("0x", "0b", "0o"):
        bits_per_digit = {"0x": 4, "0b": 1, "0o": 3}[prefix]
        is_large = len(digits) * bits_per_digit > 400
        return MAX_NUMBER if is_large else float(int(digits[2:] or "0", {"0x": 16, "0b": 2, "0o": 8}[prefix]))
    return min(float(digits), MAX_NUMBER)
