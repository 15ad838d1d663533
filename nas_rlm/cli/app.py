"""The application, the types of its options, and what several commands need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

import nas_rlm

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM
    from nas_rlm.search.ray_cluster import LocalWorkers

app = App(
    name="nas-rlm",
    help=nas_rlm.__doc__,
    version=nas_rlm.__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)


def _split(_: Any, tokens: Sequence[Any]) -> tuple[str, ...]:
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


def _levels(kind: Any, tokens: Sequence[Any]) -> tuple[float, ...]:
    parts = _split(kind, tokens)
    try:
        levels = tuple(float(part) for part in parts)
    except ValueError:
        levels = ()
    names = {f"{level:g}" for level in levels}
    if not levels or len(names) < len(levels) or not all(0.001 <= level <= 0.999 for level in levels):
        raise ValueError(
            f"{','.join(parts)!r} is no list of different levels between .001 and .999: try .1,.9"
        )
    return levels


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Names = Annotated[tuple[str, ...], Parameter(converter=_split, n_tokens=1, negative="")]
Levels = Annotated[tuple[float, ...], Parameter(converter=_levels, n_tokens=1, negative="")]
Whole = Annotated[int, Parameter(converter=_whole, n_tokens=1)]
Many = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]


def load(model: str) -> RLM:
    """A model by its folder or shipped name; torch is imported here and not before."""
    from nas_rlm.rlm import RLM

    return RLM.load(model)


def workers(ray: str) -> LocalWorkers:
    """Return the workers that predict and measure, see `nas_rlm.search.ray_cluster`."""
    from nas_rlm.search.ray_cluster import connect_workers

    if ray:
        announce_ray(ray)
    return connect_workers(ray)


def announce_ray(ray: str) -> None:
    """Say on stderr that Ray is being connected, which may take half a minute."""
    print(f"nas-rlm: connecting to Ray ({ray})", file=sys.stderr)


def bar(items: Sequence[Any], what: str) -> Any:
    """Items behind a progress bar, which shows itself after two seconds."""
    from nas_rlm.utils.progress import progress_bar

    return progress_bar(items, desc=what, unit="net", delay=2)
