"""inspect: inputs, operators and costs of ONNX files, and what the model knows of such networks."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import (
    DEFAULT_FILE_LIMITS,
    FileLimits,
    Flag,
    InputShapes,
    app,
    check_networks,
    load,
    show_progress,
)
from nas_rlm.utils.faults import Faults
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.reports.inspection import NetworkReport, Value

MAX_LISTED = 12  # operators and blocks


@app.command
def inspect(
    *files: Path,
    input_shape: InputShapes = (),
    json: Flag = False,
    model: str = "nas",
    limits: FileLimits = DEFAULT_FILE_LIMITS,
) -> None:
    """List inputs, operators, costs and tokens of ONNX files.

    Args:
        files: ONNX files.
        input_shape: shape of an input with open sizes in the file, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
        json: write a JSON list with an object for each file, with the keys name, inputs, outputs, opset,
            nodes, operators, macs, params, activations, weight_bytes, precision, tokens, max_tokens,
            repeated_blocks, similar and warnings.
        model: the model whose tokenizer and training data are compared: a checkpoint directory, or the name
            of a shipped model.
        limits: limits on each file.
    """
    if not files:
        raise ValueError("nothing to inspect: give ONNX files")
    faults = Faults()
    for file in files:
        with faults.collect():
            check_networks([file], limits.checked())
    faults.check()
    from nas_rlm.text.canonical import shapes_of_models

    shapes = shapes_of_models(files, dict(input_shape))

    from nas_rlm.reports.inspection import inspect_network

    rlm = load(model)
    reports = []
    for file, own in zip(show_progress(files, "inspect"), shapes, strict=True):
        with faults.collect():
            reports.append(inspect_network(file, rlm, own, limits.checked()))
    faults.check()
    print(_json(reports) if json else "\n\n".join(map(_text, reports)))


def _json(reports: list[NetworkReport]) -> str:
    """Return reports as JSON."""
    return json_format.dumps([report.to_dict() for report in reports], indent=2)


def _text(report: NetworkReport) -> str:
    """Return a report as text."""
    lines = [report.name]
    lines += [f"  input       {_describe(v)}" for v in report.inputs]
    lines += [f"  output      {_describe(v)}" for v in report.outputs]
    opset = ", ".join(f"{domain} {version}" for domain, version in report.opset.items())
    lines.append(f"  opset       {opset}")
    lines.append(f"  nodes       {report.nodes:,} in the file, {sum(report.operators.values()):,} executed")
    lines.append(f"  operators   {_listed([f'{kind} {n}' for kind, n in report.operators.items()])}")
    lines.append(f"  MACs        {'not known' if report.macs is None else f'{report.macs:,}'}")
    lines.append(f"  parameters  {report.params:,}" + (f" ({report.precision})" if report.precision else ""))
    lines.append(f"  activations {report.activations:,}")
    lines.append(f"  weights     {counted(report.weight_bytes, 'byte')}")
    lines.append(f"  tokens      {report.tokens:,}, the model reads {report.max_tokens:,}")
    blocks = [f"{n} × [{operators}]" for operators, n in report.repeated_blocks]
    lines.append(f"  repeated    {_listed(blocks) or 'nothing'}")
    similar = [
        f"{s.space} ({s.known_layers:.0%} of the layers{'' if s.macs_in_range else ', other MACs'})"
        for s in report.similar
    ]
    lines.append(f"  similar to  {', '.join(similar) or 'no space that the model was trained on'}")
    lines += [f"  warning     {text}" for text in report.warnings]
    return "\n".join(lines)


def _describe(value: Value) -> str:
    """Return an input or output as text."""
    sizes = "…" if value.shape is None else ",".join("?" if d is None else str(d) for d in value.shape)
    return f"{value.name}: {value.type or 'unknown type'}[{sizes}]"


def _listed(items: list[str]) -> str:
    """Return a list that is not too long as text."""
    more = len(items) - MAX_LISTED
    return ", ".join(items[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
