"""What would have been right, for a name that is not known."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

SHOWN = 6


def hint(name: str, known: Collection[str]) -> str:
    """The nearest known names, or else some of them.

    >>> hint("latency/pixel4", ["accuracy", "latency/pixel3"])
    'did you mean latency/pixel3?'
    """
    known = dict.fromkeys(known)
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    if near:
        return f"did you mean {', '.join(near)}?"
    more = ", …" if len(known) > SHOWN else ""
    return f"known: {', '.join(list(known)[:SHOWN]) or 'none'}{more}"
