"""spaces: the search spaces and the objectives of the shipped models."""

from __future__ import annotations

import json
import textwrap

import search_spaces
from nas_rlm.cli.app import app
from nas_rlm.files import ASSETS

LINE_WIDTH = 100  # characters


@app.command
def spaces() -> None:
    """List search spaces, and objectives of the shipped models."""
    print(f"{'space':<14}{'architectures':>32}{'genes':>8}")
    for name in search_spaces.names():
        space = search_spaces.get(name)
        size = f"{space.size:,}" if space.size else "unbounded"
        print(f"{name:<14}{size:>32}{len(space.genes):>8}")
    for model, description in (("nas", "models nas and nas-fast"), ("programs", "model programs")):
        config = ASSETS / model / "config.json"
        if config.is_file():
            objectives = json.loads(config.read_text())["network"]["objectives"]
            print(f"objectives of the shipped {description}:")
            print(textwrap.fill(" ".join(sorted(objectives)), LINE_WIDTH, break_on_hyphens=False))
