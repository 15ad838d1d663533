"""Searches as a whole: everything that a finished search writes to its run directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from nas_rlm.data.predictions import predictions_csv
from nas_rlm.files import write_text
from nas_rlm.plotting import front, hypervolume
from nas_rlm.plotting.hypervolume import hypervolumes
from nas_rlm.plotting.style import save
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.loop import Sampler
from nas_rlm.search.reference_points import reference
from nas_rlm.search.report import page, report_info
from nas_rlm.search.result import PREDICTED, Result
from search_spaces import SearchSpace

MODULES = '''"""The networks of this front as torch modules, freshly initialised, to be trained.

>>> module = network(0)  # 000.onnx
"""

import search_spaces
from nas_rlm.graph.torch_module import to_torch

SPACE = search_spaces.get({space!r})
ARCHITECTURES = {names!r}


def network(number):
    """The torch module of one of the ARCHITECTURES, in training mode, for batches of any size."""
    return to_torch(SPACE.to_onnx(SPACE.parse(ARCHITECTURES[number]), weights=True))
'''
DRAWS = 256  # joint draws of each highlighted architecture, enough for a smooth contour


def write_front(
    folder: Path,
    space: SearchSpace[Any],
    result: Result,
    samples: Mapping[str, np.ndarray],
    feasibility: Feasibility | None = None,
) -> None:
    """Write what a finished search found: front/, pictures, report.html and, last, front.csv.

    Args:
        folder: of the search.
        space: of its architectures.
        result: of it.
        samples: see `joint_samples`; what the folder holds already is written again.
        feasibility: what was told before it.
    """
    settings, found = result.settings, result.front
    names = [result.architectures[i] for i in found]
    unfinished, finished = folder / ".front", folder / "front"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for i, name in enumerate(names):
        onnx.save(space.to_onnx(space.parse(name)), unfinished / f"{i:03d}.onnx")
    write_text(unfinished / "networks.py", MODULES.format(space=settings.space, names=names))
    shutil.rmtree(finished, ignore_errors=True)
    unfinished.rename(finished)

    write_text(folder / "samples.json", json.dumps({k: v.tolist() for k, v in samples.items()}) + "\n")
    save(front.draw(front.front_info(result, samples)), folder / "pareto.png")
    ranges = feasibility.ranges if feasibility else {}
    corner = reference(settings.space, settings.objectives, ranges, settings.maximised)
    curve = hypervolumes(result, corner) if corner else []
    if curve:
        title = f"{settings.space}: {', '.join(settings.objectives)}"
        save(hypervolume.draw(curve, title), folder / "hypervolume.png")
    info = report_info(space, result, curve, corner, feasibility)
    write_text(folder / "report.html", page(info))
    status = [result.status.get(name, PREDICTED) for name in names] if settings.measures else ()
    table = predictions_csv(
        names, settings.predicted, result.medians[found], settings.quantiles, result.values[found], status
    )
    write_text(folder / "front.csv", table)


def joint_samples(space: SearchSpace[Any], predictor: Sampler, result: Result) -> dict[str, np.ndarray]:
    """Joint draws [DRAWS, K] of a few architectures of a result's front, for the picture."""
    settings = result.settings
    names = [result.architectures[i] for i in front.highlights(result)]
    if not names:
        return {}
    architectures = [space.parse(name) for name in names]
    draws = predictor.sample(space, architectures, settings.predicted, num_samples=DRAWS, seed=settings.seed)
    return dict(zip(names, draws, strict=True))
