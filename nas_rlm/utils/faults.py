"""What is wrong with the lines, cells or values of an input, to name all of them in one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_LISTED = 5


class Faults:
    """What is wrong with the parts of an input.

    Examples:
        >>> faults = Faults()
        >>> for number, cell in enumerate(["1", "a", "b"], 1):
        ...     with faults.collect():
        ...         if not cell.isdigit():
        ...             raise ValueError(f"line {number} is {cell!r}")
        >>> faults.check("data.txt ", ": expected numbers")
        Traceback (most recent call last):
        ValueError: data.txt line 2 is 'a'; line 3 is 'b': expected numbers
    """

    def __init__(self) -> None:
        self._messages: list[str] = []

    def add(self, message: str) -> None:
        """Add what is wrong with a part.

        Args:
            message: the part and what is wrong with it.
        """
        self._messages.append(message)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Add the message of a ValueError of the block, instead of raising it."""
        try:
            yield
        except ValueError as error:
            self.add(str(error))

    def check(self, start: str = "", end: str = "") -> None:
        """Refuse the input if something is wrong with it.

        Args:
            start: start of the message, such as the path of a file.
            end: end of the message, on what is right.

        Raises:
            ValueError: something is wrong; the message lists the first faults and counts the others.
        """
        if self._messages:
            listed = "; ".join(self._messages[:MAX_LISTED])
            num_others = len(self._messages) - MAX_LISTED
            more = f"; and {num_others:,} more" if num_others > 0 else ""
            raise ValueError(f"{start}{listed}{more}{end}")
