"""compare: costs, predicted objectives and latencies of blocks of ONNX files, side by side."""

from __future__ import annotations

import base64
import html
import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import search_spaces
from nas_rlm.cli.app import (
    DEFAULT_FILE_LIMITS,
    CommaList,
    FileLimits,
    InputShapes,
    app,
    check_files,
    check_model,
    load,
)
from nas_rlm.files import check_target, read_text, write_text

if TYPE_CHECKING:
    from nas_rlm.reports.comparison import Comparison, Prediction

PAGE, DATA = ".html", ".json"
IMAGE_STYLE = "img { max-width: 100%; margin-top: 1.5rem; }"


@app.command
def compare(
    *files: Path,
    objectives: CommaList = (),
    input_shape: InputShapes = (),
    space: str | None = None,
    model: str = "nas",
    out: Path | None = None,
    limits: FileLimits = DEFAULT_FILE_LIMITS,
) -> None:
    """Compare costs, predictions and layers of ONNX files.

    Programs have no layers: rank and predict compare these.

    Predictions have 80 % intervals. Each row says which quantity its numbers are: the time of one input, of a
    batch, or of an image at the largest batch. Times of different quantities cannot be compared or added.
    The picture has a bar for each file, made of the predicted latencies of its layers, by image side and
    class of layer. It shows the first of the objectives that is predicted by layers.

    Args:
        files: ONNX files.
        objectives: objectives to predict, such as latency/cortexA76cpu,accuracy/imagenet. By default the
            latencies that are predicted for networks of any family, but those that were learnt from networks
            unlike all files, and what the model knows of --space.
        input_shape: shape of an input with open sizes in the files, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
        space: the space as part of which the files are predicted: its name, or FILE.py:CLASS or MODULE:CLASS
            of your own; by default none.
        model: a checkpoint directory, or the name of a shipped model.
        out: a page (.html) with table and picture, the picture (.png, .svg, .pdf or .jpg), or the data
            (.json) with the keys objectives, block_objective and networks. Each network has the keys name,
            macs, params, activations, predictions (by objective: median, low, high, novelty) and blocks
            (side, layer_class, layers, latency).
        limits: limits on each file.
    """
    if not files:
        raise ValueError("nothing to compare: give ONNX files")
    is_picture = out is not None and out.suffix not in (PAGE, DATA)
    if out:
        _check_out(out, files)
    check_files(files)
    _refuse_programs(files)
    check_model(model, objectives)

    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.text.canonical import costed_texts

    texts = costed_texts(files, dict(input_shape), limits.checked())

    from nas_rlm.reports.comparison import block_latency, compare_texts, default_objectives

    space_name = search_spaces.name_of(space) if space else ""
    rlm = load(model)
    chosen = tuple([name for name in objectives if name not in EXACT_OBJECTIVES])
    chosen = chosen if objectives else default_objectives(rlm, space_name)
    if is_picture:
        from nas_rlm.plotting.block_latencies import check_block_latency

        if chosen:
            rlm.check(chosen)
        check_block_latency(block_latency(rlm, chosen, space_name), chosen)
    found = compare_texts([str(file) for file in files], texts, objectives, rlm, space_name)
    print(_text(found))
    if out:
        _write(found, out)
        print(f"{'picture' if is_picture else 'comparison'}: {out}")


def _refuse_programs(files: tuple[Path, ...]) -> None:
    """Refuse programs, which have neither layers nor costs, and name the commands that compare them."""
    from nas_rlm.programs.source import is_program

    for file in files:
        if is_program(file):
            raise ValueError(
                f"{file} is a program, which has no layers: expected ONNX files. For programs, nas-rlm rank"
                " FILES --by memory,time --quantiles .1,.9 lists the best first, with 80 % intervals, and"
                " nas-rlm predict FILES --objectives memory,time keeps their order"
            )


def _check_out(out: Path, files: tuple[Path, ...]) -> None:
    """Refuse an output file that cannot be written, or is one of the files to read."""
    from nas_rlm.plotting.style import FORMATS

    if out.suffix not in (PAGE, DATA, *FORMATS):
        raise ValueError(f"--out is {str(out)!r}: expected {PAGE}, {DATA} or {', '.join(FORMATS)}")
    check_target(out)
    if any(out.exists() and file.exists() and file.samefile(out) for file in files):
        raise ValueError(f"--out {str(out)!r} is one of the files to read: choose another")


def _write(comparison: Comparison, out: Path) -> None:
    """Write a comparison as a page, a picture or data."""
    if out.suffix == DATA:
        write_text(out, json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) + "\n")
    elif out.suffix == PAGE:
        write_text(out, _page(comparison))
    else:
        from nas_rlm.plotting.block_latencies import block_info, draw_blocks
        from nas_rlm.plotting.style import save_figure

        save_figure(draw_blocks(block_info(comparison)), out)


def _rows(comparison: Comparison) -> list[list[str]]:
    """Return the cells of the table: a header, and a row for each cost and each objective."""
    from nas_rlm.data.device_names import quantity_of
    from nas_rlm.plotting.block_latencies import shortened

    networks = comparison.networks
    rows = [["", *shortened([network.name for network in networks])]]
    rows.append(["MACs", *(f"{network.macs:,}" for network in networks)])
    rows.append(["parameters", *(f"{network.params:,}" for network in networks)])
    rows.append(["activations", *(f"{network.activations:,}" for network in networks)])
    quantities = {name: quantity_of(name) for name in comparison.objectives}
    order = list(dict.fromkeys(quantities.values()))  # objectives of one quantity are together
    for name, quantity in sorted(quantities.items(), key=lambda item: order.index(item[1])):
        label = f"{name} ({quantity})" if quantity else name
        rows.append([label, *(_interval(network.predictions[name]) for network in networks)])
    return rows


def _interval(prediction: Prediction) -> str:
    """Return a median with its interval as text."""
    return f"{prediction.median:.4g} [{prediction.low:.4g}, {prediction.high:.4g}]"


def _text(comparison: Comparison) -> str:
    """Return the table as text."""
    rows = _rows(comparison)
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for label, *cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, others, strict=True)]
        lines.append("  ".join([f"{label:<{first}}", *padded]))
    return "\n".join(lines)


def _page(comparison: Comparison) -> str:
    """Return a page with the table and, where blocks are known, the picture."""
    from nas_rlm.plotting.block_latencies import block_info, draw_blocks
    from nas_rlm.search.report.page import STYLE

    style = f"{read_text(STYLE, 'a style sheet')}{IMAGE_STYLE}"
    header, *rows = [[html.escape(cell) for cell in row] for row in _rows(comparison)]
    table = "".join(f"<th>{cell}</th>" for cell in header)
    table = f"<tr>{table}</tr>\n"
    table += "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    try:
        figure = draw_blocks(block_info(comparison))
    except ValueError as error:
        warnings.warn(str(error), stacklevel=2)
        picture = ""
    else:
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150, metadata={"Software": None})
        data = base64.b64encode(content.getvalue()).decode()
        picture = f'<img alt="predicted latency by block" src="data:image/png;base64,{data}">\n'
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Networks</title>\n'
        f"<style>\n{style}\n</style>\n<h1>Networks</h1>\n<p>Medians, and in brackets intervals that have 80 %"
        f" of the probability.</p>\n<table>\n{table}</table>\n{picture}</html>\n"
    )
