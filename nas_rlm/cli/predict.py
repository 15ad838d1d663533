"""predict: predictions of architectures, ONNX files and programs."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import (
    DEFAULT_FILE_LIMITS,
    CommaList,
    FileLimits,
    InputShapes,
    QuantileLevels,
    app,
    check_csv_target,
)
from nas_rlm.cli.given import GivenNumbers
from nas_rlm.cli.prediction import Inputs, predict_inputs


@app.command
def predict(
    *files: Path,
    objectives: CommaList = (),
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
    """Predict objectives of architectures, ONNX files or programs.

    The output is CSV with a row for each input, in order. Accuracies are in percent, latencies in
    milliseconds, memory is in bytes.

    Args:
        files: ONNX files, or programs in one of 18 languages, instead of --space and --archs. The ending
            of a file, such as .py or .java, says its language, else its content.
        objectives: objectives to predict, such as accuracy,latency/pixel3. flops and params are exact. With
            --texts, by default all that the model has learnt.
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
    if out:
        check_csv_target(out)
    predict_inputs(
        Inputs(
            *(files, space, archs, model, ray, input_shape, limits.checked(), given, given_data),
            *(texts, text),
        ),
        objectives,
        quantiles,
        out,
    ).write(out)
