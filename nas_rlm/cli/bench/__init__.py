"""The verb bench: one module for each benchmark, which adds itself to the application."""

from nas_rlm.cli.bench import (
    ablation,
    devices,
    few_shot,
    foreign,
    fuzz,
    in_context,
    measure,
    networks,
    new_spaces,
    programs,
    reading,
    references,
    reliability,
    search,
    speed,
    text,
)

__all__ = [
    "ablation",
    "devices",
    "few_shot",
    "foreign",
    "fuzz",
    "in_context",
    "measure",
    "networks",
    "new_spaces",
    "programs",
    "reading",
    "references",
    "reliability",
    "search",
    "speed",
    "text",
]
