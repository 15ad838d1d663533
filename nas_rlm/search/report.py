"""report.html: one page with everything of a search, which needs nothing but a browser."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx
import onnx.parser

from nas_rlm.files import ASSETS
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.objectives import EXACT
from nas_rlm.search.result import MEASURED, PREDICTED, Result
from nas_rlm.search.settings import Settings
from nas_rlm.text import from_architecture
from nas_rlm.utils.axes import fence, label, padded
from search_spaces import SearchSpace

TEMPLATE = ASSETS / "report.html"


def report_info(
    space: SearchSpace[Any],
    result: Result,
    curve: Sequence[tuple[int, float]] = (),
    reference: Sequence[float] | None = None,
    feasibility: Feasibility | None = None,
) -> dict[str, Any]:
    """What the page shows, as JSON can hold it.

    Args:
        space: of the architectures.
        result: of the search.
        curve: evaluations and hypervolumes, see `nas_rlm.plotting.front.hypervolumes`.
        reference: point of these.
        feasibility: what was told before the search.
    """
    settings = result.settings
    corner = dict(zip(settings.objectives, reference or (), strict=bool(reference)))
    objectives = [
        {"label": label(name), "reference": corner.get(name), "view": _view(result, column)}
        for name, column in zip(settings.predicted, result.medians.T, strict=True)
    ]
    front = [_shown(space, result, i, number) for number, i in enumerate(result.front.tolist())]
    return {
        "title": f"{settings.space}: {', '.join(settings.objectives)}",
        "subtitle": f"{len(result.architectures):,} architectures evaluated by {settings.algorithm},"
        f" {len(front)} on the front",
        "objectives": objectives,
        "quantiles": settings.quantiles,
        "names": result.architectures,
        "points": [[float(f"{v:.6g}") for v in row] for row in result.medians.tolist()],
        "feasible": result.feasible.tolist(),
        "front": front,
        "curve": [list(point) for point in curve],
        "feasibility": str(feasibility) if feasibility else "",
        "settings": {
            k: ", ".join(v) if isinstance(v, tuple) else v for k, v in asdict(settings).items() if v
        },
        "again": command(settings),
    }


def page(info: dict[str, Any]) -> str:
    """The page. Names of architectures are data in it, never markup."""
    data = json.dumps(info, ensure_ascii=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("DATA", data, 1)


def command(settings: Settings) -> str:
    """The command line of a search, but for its model and folder."""
    words = ["nas-rlm", "search", "--space", settings.space, "--objectives", ",".join(settings.objectives)]
    for name, values in (("--constraint", settings.constraints), ("--function", settings.functions)):
        words += [name, *values] if values else []
    words += ["--maximise", ",".join(settings.maximised)] if settings.maximised else []
    words += ["--algorithm", settings.algorithm]
    for name in ("population", "generations", "seed"):
        words += [f"--{name}", str(getattr(settings, name))]
    words += ["--measure", settings.device, "--budget", str(settings.budget)] if settings.device else []
    words += ["--data", settings.data] if settings.data else []
    return f"{shlex.join(words)} --out DIR\n# by the model of fingerprint {settings.model or 'unknown'}"


def _view(result: Result, medians: np.ndarray) -> list[float]:
    """From where to where one objective is shown: around the front, but for what lies far from most of it."""
    seen = medians[result.front] if len(result.front) else medians
    least, most = max(float(seen.min()), -fence(-seen)), min(float(seen.max()), fence(seen))
    return [*padded(least, most, 0.1)]


def _shown(space: SearchSpace[Any], result: Result, index: int, number: int) -> dict[str, Any]:
    """A point of the front."""
    name = result.architectures[index]
    status = result.status.get(name, PREDICTED if result.settings.measures else "")
    counted = all(o in EXACT for o in result.settings.objectives)
    return {
        "index": index,
        "quantiles": [[float(f"{v:.6g}") for v in of_one] for of_one in result.values[index].tolist()],
        "status": status,
        "known": status == MEASURED or counted,
        "file": f"front/{number:03d}.onnx",
        "graph": bodies(from_architecture(space, space.parse(name))),
    }


def bodies(text: str) -> dict[str, dict[str, Any]]:
    """The network, named "", and each of its functions: nodes with labels, what they read, what they call.

    Args:
        text: of a network, as `nas_rlm.text.from_onnx` gives it.
    """
    model = onnx.parser.parse_model(text)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    functions = {f.name for f in model.functions}
    found = {"": _body(model.graph.node, functions, shapes)}
    return found | {f.name: _body(f.node, functions, {}) for f in model.functions}


def _body(
    nodes: Sequence[onnx.NodeProto], functions: set[str], shapes: dict[str, list[int]]
) -> dict[str, Any]:
    """Nodes in order; what reads no other node reads the input, -1, and constants are left out."""
    kept = [node for node in nodes if node.op_type != "Constant"]
    made = {name: k for k, node in enumerate(kept) for name in node.output}
    shown = []
    for node in kept:
        reads = sorted({made[name] for name in node.input if name in made}) or [-1]
        calls = node.op_type if node.op_type in functions else ""
        shown.append({"label": _label(node, shapes), "reads": reads, "calls": calls})
    return {"nodes": shown}


def _label(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> str:
    """An operator's name, with its kernel where one can be seen."""
    kernels = [list(a.ints) for a in node.attribute if a.name == "kernel_shape"]
    if node.op_type == "Conv":
        kernels += [shapes[name][2:] for name in node.input if len(shapes.get(name, ())) == 4]
    kernel = "×".join(map(str, kernels[0])) if kernels else ""
    return f"{node.op_type.split('_')[0]} {kernel}".strip()
