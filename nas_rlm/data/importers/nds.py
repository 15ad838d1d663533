"""Network design spaces as published (Radosavovic et al. 2019): a JSON file for each space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.data.tables import Row
from search_spaces import SearchSpace, get

BLOCK_SPACES = {"vanilla_block": "nds_vanilla", "res_basic_block": "nds_resnet"}
CELL_SPACES = {name: f"nds_{name.lower()}" for name in ("NASNet", "Amoeba", "PNAS", "ENAS", "DARTS")}


def read_rows(path: Path) -> list[Row]:
    """Read the final test accuracies of the trained networks.

    Args:
        path: the JSON file, named after its design space.
    """
    content = json.loads(path.read_text("utf-8"))
    entries = content if isinstance(content, list) else [e for group in content.values() for e in group]
    rows = []
    for i, entry in enumerate(entries):
        space = _find_space(path.stem, entry["net"])
        targets = {"accuracy": 100.0 - float(np.atleast_1d(entry["test_ep_top1"])[-1])}
        for name in ("params", "flops"):
            if entry.get(name) is not None:
                targets[name] = float(entry[name])
        notation = str(space.parse(json.dumps(entry["net"])))
        rows.append(Row(space.name, notation, targets, identifier=f"{path.stem}_{i}"))
    return rows


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
