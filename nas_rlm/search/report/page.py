"""The report page: the data that it shows, and the page itself from `template.html`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.result import MEASURED, PREDICTED, SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.text import from_architecture
from nas_rlm.utils.axes import axis_label, outlier_threshold, padded_limits
from search_spaces import SearchSpace

TEMPLATE = Path(__file__).with_name("template.html")
STYLE, CHARTS = Path(__file__).with_name("page.css"), Path(__file__).with_name("charts.js")
VIEW_MARGIN = 0.1  # beyond the shown values, relative to their range


def report_info(
    space: SearchSpace[Any],
    result: SearchResult,
    curve: Sequence[tuple[int, float]] = (),
    reference: Sequence[float] | None = None,
    feasibility: Feasibility | None = None,
) -> dict[str, Any]:
    """Return the data that the page shows, ready for JSON.

    Args:
        space: the search space.
        result: result of the search.
        curve: evaluations and hypervolumes, see `nas_rlm.plotting.hypervolume.hypervolume_curve`.
        reference: reference point of the hypervolumes.
        feasibility: feasibility estimate from before the search.
    """
    settings = result.settings
    reference_values = dict(zip(settings.objectives, reference or (), strict=bool(reference)))
    objectives = [
        {
            "label": axis_label(name),
            "reference": reference_values.get(name),
            "view": _view_limits(result, medians),
        }
        for name, medians in zip(settings.all_objectives, result.medians.T, strict=True)
    ]
    front = [_front_entry(space, result, i, number) for number, i in enumerate(result.front.tolist())]
    return {
        "title": f"{settings.space}: {', '.join(settings.objectives)}",
        "subtitle": f"{len(result.architectures):,} architectures evaluated by {settings.algorithm},"
        f" {len(front)} on the front",
        "objectives": objectives,
        "quantiles": settings.quantile_levels,
        "names": result.architectures,
        "points": [[_rounded(value) for value in medians] for medians in result.medians.tolist()],
        "feasible": result.feasible.tolist(),
        "front": front,
        "curve": [list(point) for point in curve],
        "feasibility": str(feasibility) if feasibility else "",
        "settings": {
            name: ", ".join(value) if isinstance(value, tuple) else value
            for name, value in asdict(settings).items()
            if value
        },
        "command": command_line(settings),
    }


def render_report(info: dict[str, Any], template: Path = TEMPLATE) -> str:
    """Return a page as HTML. Names of architectures are data in it, never markup.

    Args:
        info: data from `report_info`, or of another template.
        template: the page, with the marks STYLE and CHARTS for what pages share, and DATA.
    """
    data = json.dumps(info, ensure_ascii=False).replace("<", "\\u003c")
    page = _read(template)
    for mark, text in (("STYLE", _read(STYLE)), ("CHARTS", _read(CHARTS)), ("DATA", data)):
        page = page.replace(mark, text, 1)
    return page


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def command_line(settings: SearchSettings) -> str:
    """Return the command line of a search, without its model and run directory."""
    arguments = ["nas-rlm", "search", "--space", settings.location or settings.space]
    arguments += ["--objectives", ",".join(settings.objectives)]
    for option, values in (("--constraint", settings.constraints), ("--function", settings.functions)):
        arguments += [option, *values] if values else []
    arguments += ["--maximise", ",".join(settings.maximised)] if settings.maximised else []
    arguments += ["--algorithm", settings.algorithm]
    for name in ("population", "generations", "seed"):
        arguments += [f"--{name}", str(getattr(settings, name))]
    if settings.device:
        arguments += ["--measure", settings.device, "--budget", str(settings.budget)]
    arguments += ["--data", settings.data] if settings.data else []
    fingerprint = settings.model or "unknown"
    return f"{shlex.join(arguments)} --out DIR\n# with the model of fingerprint {fingerprint}"


def _rounded(value: float) -> float:
    """A value with six digits, to keep the page small."""
    return float(f"{value:.6g}")


def _view_limits(result: SearchResult, medians: np.ndarray) -> list[float]:
    """Limits of an objective's axis: the front without outliers, and a margin."""
    values = medians[result.front] if len(result.front) else medians
    low = max(float(values.min()), -outlier_threshold(-values))
    high = min(float(values.max()), outlier_threshold(values))
    return [*padded_limits(low, high, VIEW_MARGIN)]


def _front_entry(space: SearchSpace[Any], result: SearchResult, index: int, number: int) -> dict[str, Any]:
    """The data of an architecture on the front.

    Args:
        space: the search space.
        result: result of the search.
        index: index of the architecture in the result.
        number: its position on the front.
    """
    name = result.architectures[index]
    status = result.status.get(name, PREDICTED if result.settings.has_measurements else "")
    is_exact = all(objective in EXACT_OBJECTIVES for objective in result.settings.objectives)
    return {
        "index": index,
        "quantiles": [
            [_rounded(value) for value in quantiles] for quantiles in result.values[index].tolist()
        ],
        "status": status,
        "is_known": status == MEASURED or is_exact,
        "file": f"front/{number:03d}.onnx",
        "graph": graph_view(from_architecture(space, space.parse(name))),
    }


def graph_view(text: str) -> dict[str, dict[str, Any]]:
    """Return the nodes of a network, under the name "", and of each of its functions.

    Args:
        text: the network, as `nas_rlm.text.from_onnx` returns it.

    Returns:
        By function name, `nodes` with `label`, `reads` (numbers of nodes, or -1 for the input) and `calls`
        (the name of a function, or empty).
    """
    model = onnx.parser.parse_model(text)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    function_names = {f.name for f in model.functions}
    bodies = {"": _body_view(model.graph.node, function_names, shapes)}
    return bodies | {f.name: _body_view(f.node, function_names, {}) for f in model.functions}


def _body_view(
    nodes: Sequence[onnx.NodeProto], function_names: set[str], shapes: dict[str, list[int]]
) -> dict[str, Any]:
    """Nodes in order, without constants; a node that reads no other node reads the input, -1."""
    drawn = [node for node in nodes if node.op_type != "Constant"]
    producers = {name: k for k, node in enumerate(drawn) for name in node.output}
    views = []
    for node in drawn:
        reads = sorted({producers[name] for name in node.input if name in producers}) or [-1]
        calls = node.op_type if node.op_type in function_names else ""
        views.append({"label": _node_label(node, shapes), "reads": reads, "calls": calls})
    return {"nodes": views}


def _node_label(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> str:
    """An operator's name, with its kernel size if it is known."""
    kernels = [list(a.ints) for a in node.attribute if a.name == "kernel_shape"]
    if node.op_type == "Conv":
        kernels += [shapes[name][2:] for name in node.input if len(shapes.get(name, ())) == 4]
    kernel = "×".join(map(str, kernels[0])) if kernels else ""
    return f"{node.op_type.split('_')[0]} {kernel}".strip()
