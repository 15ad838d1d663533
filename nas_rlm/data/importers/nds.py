"""Network design spaces as published (Radosavovic et al. 2019): a JSON file for each space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nas_rlm.data.omissions import Omissions, to_number
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from search_spaces import SearchSpace, get

BLOCK_SPACES = {"vanilla_block": "nds_vanilla", "res_basic_block": "nds_resnet"}
CELL_SPACES = {name: f"nds_{name.lower()}" for name in ("NASNet", "Amoeba", "PNAS", "ENAS", "DARTS")}

IMAGENET_SUFFIX = "_in"


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read the final test accuracies of the trained networks.

    A name that ends in `_in` stands for ImageNet. Its accuracy is `accuracy/imagenet`, and its rows have
    neither `params` nor `flops`, since the networks of the search space are those for CIFAR-10.

    Args:
        path: the JSON file, named after its design space.
        omissions: counts the entries that are not valid.
    """
    content = json.loads(path.read_text("utf-8"))
    groups = [content] if isinstance(content, list) else content.values()
    is_imagenet = path.stem.lower().endswith(IMAGENET_SUFFIX)
    accuracy, costs = ("accuracy/imagenet", ()) if is_imagenet else ("accuracy", EXACT_OBJECTIVES)
    rows = []
    for i, entry in enumerate(entry for group in groups for entry in _entries(group)):
        name = f"{path.stem}_{i}"
        with omissions.skip(name):
            space = _find_space(path.stem, entry["net"])
            architecture = space.parse(json.dumps(entry["net"]))
            targets: dict[str, float] = {}
            with omissions.skip(name, accuracy):
                targets |= omissions.targets({accuracy: _final_accuracy(entry["test_ep_top1"])}, name)
            values = {cost: entry[cost] for cost in costs if entry.get(cost) is not None}
            targets |= omissions.targets(values, name)
            rows.append(Row(space.name, str(architecture), targets, identifier=name))
    return rows


def _entries(group: Any) -> list[Any]:
    """Return the entries of a group; a group of another type stands for one entry, which is not valid."""
    return group if isinstance(group, list) else [group]


def _final_accuracy(errors: Any) -> object:
    """Return the accuracy in percent after the last epoch, or the last error itself where it is not valid."""
    error = errors[-1] if isinstance(errors, list) else errors
    number = to_number(error)
    return error if number is None else 100.0 - number


def _find_space(stem: str, net: dict[str, Any]) -> SearchSpace[Any]:
    """Return the design space of a network.

    Args:
        stem: name of the file without suffix, such as DARTS_in, which names the space of a network of cells.
        net: description of the network in the file, whose block type names the space of a network of blocks.
    """
    block_type = net.get("block_type")
    if block_type in BLOCK_SPACES:
        return get(BLOCK_SPACES[block_type])
    if block_type == "res_bottleneck_block":
        return get("nds_resnext_b" if "-B" in stem.upper().replace("_", "-") else "nds_resnext_a")
    for name, space in CELL_SPACES.items():
        if stem.lower().startswith(name.lower()):
            return get(space)
    raise ValueError(
        f"its name does not name a design space: expected a name that starts with {', '.join(CELL_SPACES)}"
    )
