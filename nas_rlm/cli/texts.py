"""Texts of a command line: files of them for a model that `fit` wrote, and how well it predicts them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.files import read_text
from nas_rlm.model.directories import CONFIG_FILE, reads_any_text, saved_objectives
from nas_rlm.utils.validation import listed
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.data.text_files import TextFile
    from nas_rlm.training.text_report import HoldoutMetrics

REPORT_FILE = "fit.json"  # in the directory of a model
METHOD_WIDTH, NUMBER_WIDTH = 11, 11
COLUMNS = {  # title and format of each metric
    "spearman": ("Spearman", ".3f"),
    "kendall": ("Kendall", ".3f"),
    "mae": ("MAE", ".4g"),
    "mape": ("MAPE %", ".3g"),
    "within_10_percent": ("in 10 %", ".0%"),
    "coverage": ("coverage", ".0%"),
}


def check_reads_texts(model: str, path: Path) -> None:
    """Refuse a model that was not fitted to texts, before torch is imported.

    Args:
        model: directory or name of the model.
        path: the file of texts.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: none is named, it reads networks or programs, or its configuration cannot be read.
    """
    if not model:
        raise ValueError(f"--texts {path} without --model: give a directory that fit wrote")
    if not saved_objectives(model):
        raise ValueError(
            f"--model {model} has no readable {CONFIG_FILE}: it is incomplete or damaged; copy it again"
        )
    if not reads_any_text(model):
        raise ValueError(f"--model {model} reads networks or programs: --texts needs a model that fit wrote")


def saved_targets(model: str) -> list[str]:
    """Return the targets of a model of texts: its objectives that are not failures of others."""
    from nas_rlm.data.text_data import FAILURE_PREFIX

    return [name for name in saved_objectives(model) if not name.startswith(FAILURE_PREFIX)]


def read_texts_of_model(model: str, path: Path, text: str = "", targets: Sequence[str] = ()) -> TextFile:
    """Read texts as the model was fitted to them.

    Args:
        model: directory of the model.
        path: the file.
        text: column of the texts; empty for what the model was fitted to.
        targets: columns of targets.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the columns of the fit are not known; or see `nas_rlm.data.text_files.read_text_file`.

    Warns:
        UserWarning: rows have no text.
    """
    from nas_rlm.data.text_files import read_text_file

    column, columns = (text, []) if text else _columns_of_fit(model, path)
    file = read_text_file(path, column, targets, () if column else columns)
    if file.num_left_out:
        warnings.warn(
            f"{path}: {counted(file.num_left_out, 'row has', 'rows have')} no {column}, left out",
            stacklevel=3,
        )
    return file


def _columns_of_fit(model: str, path: Path) -> tuple[str, list[str]]:
    """Return the column of the texts that a model was fitted to, empty for JSON of columns, and these.

    Args:
        model: directory of the model.
        path: a file of texts.

    Raises:
        ValueError: the report of the fit is missing or damaged.
    """
    from nas_rlm.data.text_files import column_names

    report = Path(model) / REPORT_FILE
    if not report.is_file():
        raise ValueError(
            f"{model} has no {REPORT_FILE}, which names the columns of its texts: give --text with one of"
            f" {listed(column_names(path))}"
        )
    try:
        known = json.loads(read_text(report, "the report of fit"))
        column, columns = known["text"], known["columns"]
        is_valid = isinstance(columns, list) and all(isinstance(name, str) for name in [column, *columns])
    except (ValueError, KeyError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"{report} is damaged: copy the model again, or give the column of its texts with --text"
        )
    return column, columns


def label_line(name: str, labels: Mapping[str, int], rows: int) -> str:
    """Return a line on the values of an objective: how many there are, failed and are missing.

    Args:
        name: the objective.
        labels: number of values of each objective.
        rows: number of rows.
    """
    from nas_rlm.data.text_data import FAILURE_PREFIX

    count = labels[name]
    failed = labels.get(FAILURE_PREFIX + name, count) - count
    missing = rows - count - failed
    others = [f", {n:,} {kind}" for n, kind in ((failed, "failed"), (missing, "missing")) if n]
    return f"{name}: {counted(count, 'value')}{''.join(others)}"


def metric_lines(metrics: Mapping[str, HoldoutMetrics]) -> Iterator[str]:
    """Yield the lines of a table with a row for each method; none without methods."""
    if metrics:
        yield f"{'':{METHOD_WIDTH}}" + "".join(f"{title:>{NUMBER_WIDTH}}" for title, _ in COLUMNS.values())
    for method, found in metrics.items():
        cells = [f"{getattr(found, name):>{NUMBER_WIDTH}{form}}" for name, (_, form) in COLUMNS.items()]
        yield f"{method:{METHOD_WIDTH}}" + "".join(cells)
