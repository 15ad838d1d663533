"""rank: architectures, ONNX files and programs, the best first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nas_rlm.cli.app import (
    DEFAULT_FILE_LIMITS,
    CommaList,
    FileLimits,
    Flag,
    InputShapes,
    Integer,
    QuantileLevels,
    app,
    check_csv_target,
    check_minimum,
)
from nas_rlm.cli.given import GivenNumbers
from nas_rlm.cli.prediction import Inputs, predict_inputs


@app.command
def rank(
    *files: Path,
    by: CommaList,
    objectives: CommaList = (),
    maximise: Flag = False,
    top: Integer | None = None,
    space: str | None = None,
    archs: Path | None = None,
    model: str = "",
    quantiles: QuantileLevels = (),
    out: Path | None = None,
    ray: str = "",
    input_shape: InputShapes = (),
    given: GivenNumbers = (),
    given_data: Path | None = None,
    texts: Path | None = None,
    text: str = "",
    limits: FileLimits = DEFAULT_FILE_LIMITS,
) -> None:
    """Rank architectures, ONNX files or programs, the best first.

    The output is CSV with a row for each input, sorted by a predicted objective.

    Args:
        files: ONNX files, or programs in one of 18 languages, instead of --space and --archs. The ending
            of a file, such as .py or .java, says its language, else its content.
        by: the objective to rank by, such as accuracy or latency/pixel3. Accuracies, throughputs and other
            kinds that are maximised are sorted downwards, all others upwards. With several, such as
            memory,time, the Pareto front comes first, then the front of the others, and so on.
        objectives: further objectives to predict.
        maximise: sort downwards, where the kind of the objective and the model do not say so.
        top: number of rows to list; by default all.
        space: the search space of --archs: its name, or FILE.py:CLASS or MODULE:CLASS of your own. With
            files: the space as part of which they are predicted; by default the most similar one for
            programs, none for networks.
        archs: a file with one architecture per line.
        model: a checkpoint directory, the output of export-model, or the name of a shipped model; by default
            programs for programs, else nas.
        quantiles: quantile levels such as .1,.9; each adds a column OBJECTIVE@LEVEL.
        out: the CSV file; stdout by default.
        ray: address of a Ray cluster that predicts: auto, HOST:6379, ray://HOST:10001, or local for processes
            of this machine.
        input_shape: shape of an input with open sizes in the ONNX files, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
        given: measured numbers on which the predictions are conditioned, such as accuracy/cifar10_12ep=89.2
            for all inputs, or accuracy/cifar10_12ep alone for those in --given-data. May be repeated.
        given_data: table with given numbers: CSV with the column arch, or parquet. Inputs that it lacks are
            predicted without.
        texts: a CSV, Parquet or JSON lines file of texts, for a --model that fit wrote.
        text: column of --texts; by default what the model was fitted to.
        limits: limits on each ONNX file.
    """
    from nas_rlm.search.pareto import minimised, pareto_order

    if top is not None:
        check_minimum("--top", top, 1)
    if out:
        check_csv_target(out)
    if not by:
        raise ValueError("--by is empty: expected an objective, such as accuracy")
    names = tuple(dict.fromkeys([*objectives, *by]))
    predictions = predict_inputs(
        Inputs(
            *(files, space, archs, model, ray, input_shape, limits.checked(), given, given_data),
            *(texts, text),
        ),
        names,
        quantiles,
        out,
    )
    maximised = (*predictions.maximised, *(by if maximise else []))
    columns = [names.index(name) for name in by]
    costs = minimised(predictions.medians, names, maximised)[:, columns]
    order = pareto_order(costs) if len(by) > 1 else np.argsort(costs[:, 0], kind="stable")
    predictions.select(order[:top]).write(out)
