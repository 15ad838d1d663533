"""fit: a model that learns any texts with any numbers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import CommaList, Flag, Integer, app, check_minimum, check_model
from nas_rlm.cli.texts import REPORT_FILE, label_line, metric_lines
from nas_rlm.files import atomic_directory, check_new_directory, write_text
from nas_rlm.utils.validation import check_objective_names
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.training.text_report import FitReport


@app.command
def fit(
    data: Path,
    *,
    target: CommaList,
    out: Path,
    text: str = "",
    holdout: float = 0.1,
    source: str = "",
    tokenizer: str = "",
    start: str = "",
    size: Integer = 0,
    epochs: Integer = 0,
    maximise: CommaList = (),
    no_refit: Flag = False,
    seed: Integer = 0,
) -> None:
    """Fit a new model to any texts with any numbers.

    The metrics are those on rows that are held out: of the model, of each of its parts, and of simple
    baselines. The saved model then learns these rows too.

    Args:
        data: a CSV, Parquet or JSON lines file.
        target: columns of the numbers to learn, such as loss,seconds. Empty cells and NA are missing, inf is
            a value, and words such as failed, timeout or OOM are failures, whose probability is learnt.
        out: a new directory for the checkpoint and the report, fit.json.
        text: column of the texts; by default a text is the JSON of all columns but the targets.
        holdout: share of the texts that is held out for the metrics; 0 for none.
        source: what predicts: network, surrogate (a Gaussian process on fields and n-grams, which takes
            seconds) or both; by default chosen on validation rows.
        tokenizer: name of a shipped model, such as programs, or a SentencePiece file; by default a tokenizer
            is learnt from the texts.
        start: a model that fit wrote, whose network is trained further.
        size: size of the network, at most 16; 0 to choose it by the number of rows.
        epochs: maximum number of epochs; 0 to choose it by the amount of text.
        maximise: targets of which higher values are better, for rank.
        no_refit: keep the model that was fitted without the held-out rows, which halves the time.
        seed: seed of everything random.
    """
    from nas_rlm.data.text_data import text_data
    from nas_rlm.data.text_files import numeric_columns, read_text_file

    check_new_directory(out)
    check_minimum("--size", size, 0)
    check_minimum("--epochs", epochs, 0)
    if start:
        check_model(start)
    if not target:
        numeric = ", ".join(numeric_columns(data)) or "none"
        raise ValueError(f"no --target: expected columns of {str(data)!r} with numbers, which are: {numeric}")
    check_objective_names(target)
    file = read_text_file(data, text, target)
    text_data(file.texts, file.values)  # refuses bad values
    from nas_rlm.rlm import RLM  # after the checks, since torch takes seconds
    from nas_rlm.training.texts import FewTextsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewTextsWarning)  # which is printed with the report
        rlm = RLM.fit(
            file.texts,
            file.values,
            start=RLM.load(start) if start else None,
            holdout=holdout,
            tokenizer=tokenizer,
            size=size or None,
            epochs=epochs or None,
            source=source or None,  # type: ignore[arg-type]  # checked there
            refit=not no_refit,
            maximise=maximise,
            seed=seed,
        )
    report = rlm.fit_report
    assert report is not None
    with atomic_directory(out) as directory:
        rlm.save(directory)
        content = {"text": text, "columns": file.columns, **asdict(report)}
        write_text(directory / REPORT_FILE, json.dumps(content, indent=1) + "\n")
    for line in (*_lines(report), *file.notes, *report.notes, f"model: {out}"):
        print(line)


def _lines(report: FitReport) -> Iterator[str]:
    """Yield the lines that describe a fit: for each target its labels, and a table of metrics."""
    from nas_rlm.training.text_report import METHODS

    for name in report.labels:
        line = label_line(name, report.labels, report.rows)
        yield f"{line}; predicted by {_described(report.sources[name])}"
        yield from metric_lines(report.metrics.get(name, {}))
    if report.metrics:
        yield f"metrics of {report.holdout_rows:,} held out of {counted(report.rows, 'row')}"
        shown = dict.fromkeys(method for metrics in report.metrics.values() for method in metrics)
        yield from (f"  {method}: {METHODS[method]}" for method in shown)


def _described(source: str) -> str:
    """Return the name of a source in a sentence."""
    return {
        "network": "the network",
        "surrogate": "the surrogate (a Gaussian process on fields and n-grams)",
    }.get(source, "network and surrogate")
