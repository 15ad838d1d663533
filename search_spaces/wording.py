"""Numbers with nouns in messages."""

from __future__ import annotations


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with a noun, and what follows it, in singular or plural.

    Examples:
        >>> counted(1, "network"), counted(1200, "network"), counted(0, "entry", "entries")
        ('1 network', '1,200 networks', '0 entries')
        >>> counted(1, "row has", "rows have")
        '1 row has'

    Args:
        count: the number.
        singular: the text after the number 1.
        plural: the text after other numbers; by default the singular with an s.
    """
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"
