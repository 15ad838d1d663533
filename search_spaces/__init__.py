"""Search spaces: what an architecture is, how it varies, and the network that it stands for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

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
GROUP = "nas_rlm.search_spaces"


def names() -> list[str]:
    """Names of all spaces: those of this package, and those that installed packages register."""
    return sorted({*_BUILT_IN, *(e.name for e in entry_points(group=GROUP))})


def get(name: str) -> SearchSpace[Any]:
    """A search space by name.

    >>> get("nasbench201").size
    15625

    Raises:
        ValueError: there is no such space; the message names the nearest.
    """
    if name in _BUILT_IN:
        module, kind = _BUILT_IN[name].split(":")
        space: SearchSpace[Any] = getattr(import_module(f"search_spaces.{module}"), kind)()
        return space
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            registered: SearchSpace[Any] = entry.load()()
            return registered
    near = get_close_matches(name, names(), n=1, cutoff=0)[0]
    raise ValueError(f"no search space {name!r}; did you mean {near!r}? Known: {', '.join(names())}")
