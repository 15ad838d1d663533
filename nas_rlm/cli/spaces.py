"""spaces: the search spaces and the objectives of the shipped models; spaces check: the check of a space."""

from __future__ import annotations

import json
import textwrap

from cyclopts import App

import search_spaces
from nas_rlm.cli.app import Integer, app, check_minimum
from nas_rlm.files import ASSETS

LINE_WIDTH = 100  # characters

spaces = app.command(App(name="spaces", help="List search spaces, or check your own."))


@spaces.default
def list_spaces() -> None:
    """List search spaces, and objectives of the shipped models."""
    spaces = [search_spaces.get(name) for name in search_spaces.names()]
    sizes = [f"{space.size:,}" if space.size else "unbounded" for space in spaces]
    width = max(map(len, sizes)) + 2
    print(f"{'space':<14}{'architectures':>{width}}{'genes':>8}")
    for space, size in zip(spaces, sizes, strict=True):
        print(f"{space.name:<14}{size:>{width}}{len(space.genes):>8}")
    for model, description in (("nas", "models nas and nas-fast"), ("programs", "model programs")):
        config = ASSETS / model / "config.json"
        if config.is_file():
            objectives = json.loads(config.read_text())["network"]["objectives"]
            print(f"objectives of the shipped {description}:")
            print(textwrap.fill(" ".join(sorted(objectives)), LINE_WIDTH, break_on_hyphens=False))


@spaces.command(name="check")
def check(space: str, *, count: Integer = 50, seed: Integer = 0) -> None:
    """Check that a search space keeps its contract, on random architectures.

    Sampling, mutation and crossover stay in the space; genome and notation round-trip; malformed notation is
    refused; the size is right; networks are valid and have exact costs. The first violation is reported with
    its architecture.

    Args:
        space: FILE.py:CLASS or MODULE:CLASS of your own space, or the name of a registered one.
        count: number of random architectures.
        seed: seed of the architectures.
    """
    from nas_rlm.reports.space_checks import check_space

    check_minimum("--count", count, 1)
    check_minimum("--seed", seed, 0)
    print(check_space(space, count, seed, progress=True))
