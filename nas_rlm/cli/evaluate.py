"""evaluate: a model's predictions compared with measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import CommaList, Flag, Integer, SpaceList, app, check_model, load, register_spaces
from nas_rlm.cli.texts import (
    check_reads_texts,
    label_line,
    metric_lines,
    read_texts_of_model,
    saved_targets,
)
from nas_rlm.model.directories import reads_any_text, saved_objectives

if TYPE_CHECKING:
    import numpy as np

    from nas_rlm.data.text_data import TextData


@app.command
def evaluate(
    *,
    model: str = "nas",
    data: Path | None = None,
    objectives: CommaList = (),
    samples: Integer = 64,
    validation: Flag = False,
    no_surrogates: Flag = False,
    picture: Path | None = None,
    space: SpaceList = (),
    texts: Path | None = None,
    text: str = "",
) -> None:
    """Compare predictions with measurements and baselines.

    Prints Spearman and Kendall correlations and the coverage of 80 % intervals of each objective. Baselines
    are FLOPs, parameters and gradient-boosted trees for networks, and length, depth of loops and similar
    programs for programs.

    With --texts, it prints for each target the metrics that fit prints. Values that the model has learnt are
    predicted better than new ones.

    Args:
        model: a checkpoint directory, or the name of a shipped model.
        data: a parquet table; by default the test rows of the shipped models' tables with spaces on which the
            model was trained.
        objectives: objectives to evaluate; by default all that model and table share.
        samples: number of samples whose median is compared with the model's median; 0 for none, which is much
            faster.
        validation: without --data, use the validation rows, which decided the temperatures, instead of the
            test rows.
        no_surrogates: evaluate only the network, without surrogates.
        picture: draw predicted against measured values on a normal probability scale: .png, .svg, .pdf or
            .jpg.
        space: your own search spaces that rows of the table name, as FILE.py:CLASS or MODULE:CLASS. A row may
            name a space by its name or its location.
        texts: instead of --data, a CSV, Parquet or JSON lines file of texts with columns of targets, for a
            --model that fit wrote.
        text: column of --texts; by default what the model was fitted to.
    """
    from nas_rlm.data.tables import check_readable
    from nas_rlm.plotting.style import check_picture_path

    if picture:
        check_picture_path(picture)
    if texts is not None:
        others = {"--data": data, "--space": space, "--validation": validation}
        for name, value in (others | {"--no-surrogates": no_surrogates}).items():
            if value:
                raise ValueError(f"--texts {texts} and {name}: give one of them")
        _evaluate_texts(model, texts, text, objectives, picture)
        return
    if text:
        raise ValueError(f"--text {text} without --texts: give the file of the texts too")
    if reads_any_text(model):
        raise ValueError(
            f"--model {model} was fitted to texts: give --texts {data or 'FILE'} with columns of targets"
        )
    check_model(model, objectives)
    if data is not None:
        check_readable(data)
    register_spaces(space)

    from nas_rlm.benchmarks.evaluation import evaluate_model, format_evaluations

    rlm = load(model)
    rlm.surrogates = {} if no_surrogates else rlm.surrogates
    evaluations = evaluate_model(rlm, data, objectives, samples, validation)
    print(format_evaluations(evaluations))
    if picture:
        _draw({f"{e.table}: {e.objective}": e.points for e in evaluations if not e.uid}, picture)


def _evaluate_texts(
    model: str, path: Path, text: str, objectives: Sequence[str], picture: Path | None
) -> None:
    """Print for each target of a model of texts how well it predicts the values in a file.

    Raises:
        ValueError: the model reads no texts, or the file cannot be read or has none of the targets.
    """
    data = _read_labelled_texts(model, path, text, objectives)

    import numpy as np

    from nas_rlm.training.text_network import LEVELS
    from nas_rlm.training.text_report import RLM_METHOD, holdout_metrics

    quantiles = load(model).predict_text(data.texts, data.objectives, LEVELS, progress=True)
    metrics = holdout_metrics({RLM_METHOD: quantiles}, data)
    labels = {name: len(data.labelled(name)) for name in data.objectives}
    for name in data.objectives:
        print(label_line(name, labels, len(data)), *metric_lines(metrics[name]), sep="\n")
    if picture:
        medians = quantiles[:, :, LEVELS.index(0.5)].T
        pairs = {n: np.stack([data.values[n], m]) for n, m in zip(data.objectives, medians, strict=True)}
        _draw({name: pair[:, np.isfinite(pair).all(0)] for name, pair in pairs.items()}, picture)


def _read_labelled_texts(model: str, path: Path, text: str, objectives: Sequence[str]) -> TextData:
    """Read the texts of a file, with the values of a model's objectives.

    Args:
        model: directory of the model.
        path: the file.
        text: column of the texts; empty for what the model was fitted to.
        objectives: targets to read; by default all that model and file share.

    Raises:
        ValueError: the model reads no texts, or the file cannot be read or has none of the targets.
    """
    from nas_rlm.data.text_data import text_data
    from nas_rlm.data.text_files import column_names
    from nas_rlm.utils.validation import listed

    check_reads_texts(model, path)
    check_model(model, objectives, for_programs=True)
    columns = column_names(path)
    targets = list(objectives) or [name for name in saved_targets(model) if name in columns]
    if not targets:
        raise ValueError(
            f"{str(path)!r} has the columns {listed(columns)}: expected one of the targets of {model},"
            f" {listed(saved_targets(model))}"
        )
    file = read_texts_of_model(model, path, text, targets)
    data = text_data(file.texts, file.values)
    known = saved_objectives(model)
    return replace(data, values={name: data.values[name] for name in data.objectives if name in known})


def _draw(panels: Mapping[str, np.ndarray], picture: Path) -> None:
    """Draw measured and predicted values [2, N] by title, and print the path of the picture."""
    from nas_rlm.plotting.probability import draw_probability_plot
    from nas_rlm.plotting.style import save_figure

    save_figure(draw_probability_plot(panels), picture)
    print(f"picture: {picture}")
