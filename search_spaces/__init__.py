"""Search spaces: notation, genome, variation operators and network of architectures.

Terms:

- architecture: a member of a space; its `str` is its text in the notation of the benchmark;
- genome: an architecture as an array of integers (genes), which mutation and crossover change;
- block: a part of a network that `Graph.block` writes; repeated blocks become ONNX local functions;
- leaf: a weight or constant that an operator reads.

May import: only numpy and onnx.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from search_spaces.notation import most_similar
from search_spaces.space import SearchSpace

__all__ = ["SearchSpace", "get", "names"]

_BUILT_IN = {
    "fbnet": "fbnet:FBNet",
    "hiaml": "hiaml:HiAML",
    "inception": "inception:Inception",
    "nasbench101": "nasbench101:NASBench101",
    "nasbench201": "nasbench201:NASBench201",
    "nats_size": "nats_size:NATSSize",
    "nds_amoeba": "nds:Amoeba",
    "nds_darts": "nds:DARTS",
    "nds_enas": "nds:ENAS",
    "nds_nasnet": "nds:NASNet",
    "nds_pnas": "nds:PNAS",
    "nds_resnet": "nds_blocks:ResNet",
    "nds_resnext_a": "nds_blocks:ResNeXtA",
    "nds_resnext_b": "nds_blocks:ResNeXtB",
    "nds_vanilla": "nds_blocks:Vanilla",
    "ofa_mbv3": "ofa:OFAMobileNetV3",
    "ofa_proxyless": "ofa:OFAProxyless",
    "ofa_resnet50": "ofa:OFAResNet50",
    "snas": "snas:SNAS",
    "two_path": "two_path:TwoPath",
}
ENTRY_POINT_GROUP = "nas_rlm.search_spaces"


def names() -> list[str]:
    """Return the names of all spaces: those of this package and those that installed packages register."""
    return sorted({*_BUILT_IN, *(e.name for e in entry_points(group=ENTRY_POINT_GROUP))})


def get(name: str) -> SearchSpace[Any]:
    """Return a search space by name.

    Examples:
        >>> get("nasbench201").size
        15625

    Raises:
        ValueError: no space has this name; the message suggests the most similar one.
    """
    if name in _BUILT_IN:
        module, kind = _BUILT_IN[name].split(":")
        space: SearchSpace[Any] = getattr(import_module(f"search_spaces.{module}"), kind)()
        return space
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            registered: SearchSpace[Any] = entry.load()()
            return registered
    raise ValueError(
        f"no search space {name!r}; did you mean {most_similar(name, names())!r}? Known: {', '.join(names())}"
    )
