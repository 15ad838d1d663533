"""Predictions of the architectures and files of a command line, for `predict` and `rank`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import search_spaces
from nas_rlm.cli.app import check_files, check_model, connect_workers, load
from nas_rlm.cli.given import GivenOption, given_numbers
from nas_rlm.cli.texts import check_reads_texts, read_texts_of_model, saved_targets
from nas_rlm.files import read_text, write_text
from nas_rlm.utils.extras import require
from nas_rlm.utils.faults import Faults

if TYPE_CHECKING:
    from nas_rlm.graph.limits import Limits
    from nas_rlm.rlm import RLM
    from search_spaces import SearchSpace

SHOWN_DIGITS = 5  # of predictions on a terminal; their errors are larger


@dataclass(frozen=True)
class Inputs:
    """What a command line predicts.

    Args:
        files: ONNX files or programs.
        space: space of the architectures, or the space as part of which files are predicted: its name, or the
            location of a user's own, see `search_spaces.get`.
        archs: a file with one architecture per line, instead of files.
        model: directory or name of the model; empty for the shipped one.
        ray: address of a Ray cluster; empty for this process.
        shapes: shapes of inputs of ONNX files, as pairs of a name and a shape.
        limits: limits on each ONNX file; None for the defaults.
        given: measured numbers on which predictions are conditioned, see `nas_rlm.cli.given`.
        given_data: table with those of the numbers that have no value.
        texts: a file of texts, see `nas_rlm.data.text_files`, instead of files and architectures.
        text: column of the texts; empty for that of the fit of the model.
    """

    files: Sequence[Path]
    space: str | None
    archs: Path | None
    model: str
    ray: str
    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    limits: Limits | None = None
    given: GivenOption = ()
    given_data: Path | None = None
    texts: Path | None = None
    text: str = ""

    def check(self, out: Path | None) -> None:
        """Refuse incomplete or contradictory inputs.

        Args:
            out: the output file.

        Raises:
            ValueError: the inputs are neither files nor architectures of a space, or one of them is the
                output file.
        """
        if self.texts is not None:
            self._check_texts(self.texts)
        if self.text and self.texts is None:
            raise ValueError(f"--text {self.text} without --texts: give the file of the texts too")
        if self.archs is not None and self.space is None:
            raise ValueError(f"--archs {self.archs} without --space: give both, or ONNX files instead")
        if self.shapes and not self.files:
            raise ValueError("--input-shape is for ONNX files: architectures have fixed shapes")
        if self.texts is None and bool(self.files) == (self.archs is not None):
            files = ", ".join(map(str, self.files))
            inputs = f"{files} and --archs {self.archs}" if files else "nothing to read"
            raise ValueError(
                f"{inputs}: give either ONNX files or programs, or both --space and --archs, or both --texts"
                " and --model (and write lists as a,b)"
            )
        self._check_kinds_of_files()
        paths = (*self.files, *filter(None, (self.archs, self.given_data, self.texts)))
        if out and any(path.exists() and out.exists() and path.samefile(out) for path in paths):
            raise ValueError(f"--out {str(out)!r} is one of the files to read: choose another")

    def _check_kinds_of_files(self) -> None:
        """Refuse directories and tables."""
        from nas_rlm.data.text_data import SUFFIXES

        for file in self.files:
            if file.is_dir():
                raise ValueError(
                    f"{str(file)!r} is a directory: expected ONNX files or programs, such as {file}/*"
                )
            if file.suffix.lower() in SUFFIXES:
                raise ValueError(
                    f"{str(file)!r} is a table: expected ONNX files or programs, or --texts {file} for a"
                    " model that fit wrote"
                )

    def _check_texts(self, path: Path) -> None:
        """Refuse what does not go with texts."""
        others = {
            "ONNX files or programs": self.files,
            "--archs": self.archs,
            "--space": self.space,
            "--given": self.given,
            "--ray": self.ray,
        }
        if used := [name for name, value in others.items() if value]:
            raise ValueError(f"--texts {path} and {used[0]}: give one of them")
        check_reads_texts(self.model, path)


@dataclass(frozen=True)
class Predictions:
    """Predictions of N architectures or files.

    Args:
        names: architectures, or paths of files.
        objectives: K objectives.
        medians: [N, K].
        levels: Q quantile levels.
        quantiles: [N, K, Q].
        maximised: objectives that the model declares to be maximised.
        name_column: name of the column of the names in a CSV file.
    """

    names: list[str]
    objectives: Sequence[str]
    medians: np.ndarray
    levels: Sequence[float]
    quantiles: np.ndarray
    maximised: Sequence[str] = ()
    name_column: str = "arch"

    def select(self, indices: Sequence[int] | np.ndarray) -> Predictions:
        """Return the predictions with these indices, in their order."""
        names = [self.names[i] for i in indices]
        return replace(self, names=names, medians=self.medians[indices], quantiles=self.quantiles[indices])

    def write(self, out: Path | None) -> None:
        """Write the predictions as CSV to a file, or to stdout: rounded, if it is a terminal."""
        from nas_rlm.data.predictions import MAX_DIGITS, predictions_csv

        text = predictions_csv(
            *(self.names, self.objectives, self.medians, self.levels, self.quantiles),
            name_column=self.name_column,
            digits=SHOWN_DIGITS if out is None and sys.stdout.isatty() else MAX_DIGITS,
        )
        if out:
            write_text(out, text)
        else:
            print(text, end="")


def predict_inputs(
    inputs: Inputs, objectives: Sequence[str], quantile_levels: Sequence[float], out: Path | None
) -> Predictions:
    """Predict the architectures or files of a command line.

    Args:
        inputs: what to predict, and with which model.
        objectives: the objectives.
        quantile_levels: levels of quantiles to predict besides the median.
        out: the output file, which must not be an input.

    Raises:
        ValueError: the inputs are invalid, no objective is named, or the model does not have it.
    """
    from nas_rlm.model.onnx_runtime import OnnxPredictor, is_exported
    from nas_rlm.search.objectives import ObjectivePredictor

    inputs.check(out)
    if not objectives and inputs.texts is None:
        raise ValueError("no --objectives: expected names such as accuracy,latency/pixel3")
    if inputs.texts is not None:
        return _predict_texts(inputs, inputs.texts, objectives, quantile_levels)
    _check_other_files(inputs)
    model = inputs.model or _shipped_model(inputs.files)
    if is_exported(model):
        require("onnxruntime", "an exported model")
    if inputs.ray:
        require("ray", "--ray")
    if is_exported(model) and (inputs.archs is None or inputs.ray):
        raise ValueError(f"{model} is an exported model: it predicts --archs of a --space here")
    check_files(inputs.files)
    has_programs = _check_costs(inputs.files, objectives)
    check_model(model, objectives, for_programs=has_programs)
    contents = _read_files(inputs)
    levels = tuple(sorted({*quantile_levels, 0.5}))
    space, lines = None, []
    if inputs.archs is not None and inputs.space is not None:
        space = search_spaces.get(inputs.space)
        lines = read_architectures(space, inputs.archs)
    architectures = [architecture for _, architecture in lines]
    names = [line for line, _ in lines] or [str(file) for file in inputs.files]
    given = given_numbers(inputs.given, inputs.given_data, names, space)
    if given and is_exported(model):
        raise ValueError(f"{model} is an exported model, without --given: expected a checkpoint")
    if space and is_exported(model):
        exported = cast("RLM", OnnxPredictor.load(model))  # has what an ObjectivePredictor needs
        predictor = ObjectivePredictor(exported)
        predictor.check(objectives)
        values = predictor.predict(space, architectures, objectives, levels, progress=True)
    else:
        with connect_workers(inputs.ray) as workers:
            rlm = workers.distribute(load(model))
            predictor = ObjectivePredictor(rlm)
            predictor.check(objectives)
            if space:
                values = predictor.predict(
                    space, architectures, objectives, levels, progress=True, given=given
                )
            else:
                values = _predict_files(rlm, inputs, contents, objectives, levels, given)
    indices = [levels.index(level) for level in quantile_levels]
    medians, quantiles = values[:, :, levels.index(0.5)], values[:, :, indices]
    maximised = predictor.model.maximised
    return Predictions(names, objectives, medians, quantile_levels, quantiles, maximised)


def _predict_texts(
    inputs: Inputs, path: Path, objectives: Sequence[str], quantile_levels: Sequence[float]
) -> Predictions:
    """Predictions of the texts of a file, by a model that `fit` wrote."""
    check_model(inputs.model, objectives, for_programs=True)
    names = objectives or saved_targets(inputs.model)
    file = read_texts_of_model(inputs.model, path, inputs.text)
    rlm = load(inputs.model)
    levels = tuple(sorted({*quantile_levels, 0.5}))
    values = rlm.predict_text(file.texts, names, levels, progress=True)
    indices = [levels.index(level) for level in quantile_levels]
    medians, quantiles = values[:, :, levels.index(0.5)], values[:, :, indices]
    return Predictions(file.texts, names, medians, quantile_levels, quantiles, rlm.maximised, "text")


def _read_files(inputs: Inputs) -> list[tuple[str, tuple[str, ...]]]:
    """Text of each file, and names of the spaces of programs that are similar to it.

    Raises:
        ValueError: a file is neither a network nor a program.
    """
    from nas_rlm.graph.limits import DEFAULT_LIMITS
    from nas_rlm.programs.source import is_program, read_program
    from nas_rlm.text.canonical import costed_texts

    programs = {file: read_program(file) for file in inputs.files if is_program(file)}
    networks = [file for file in inputs.files if file not in programs]
    texts = costed_texts(networks, dict(inputs.shapes), inputs.limits or DEFAULT_LIMITS)
    text_of = dict(zip(networks, texts, strict=True))
    return [programs[file] if file in programs else (text_of[file], ()) for file in inputs.files]


def _predict_files(
    rlm: RLM,
    inputs: Inputs,
    contents: Sequence[tuple[str, tuple[str, ...]]],
    objectives: Sequence[str],
    levels: Sequence[float],
    given: Mapping[str, float | np.ndarray],
) -> np.ndarray:
    """Quantiles [N, K, Q] of ONNX files and programs, each predicted as part of its space."""
    from nas_rlm.cli.programs import check_programs, warn_of_configurations
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.model.batching import named_texts
    from nas_rlm.programs.source import is_program
    from nas_rlm.search.objectives import ObjectivePredictor

    if rlm.network.config.reads_any_text:
        raise ValueError(f"--model {inputs.model} was fitted to texts: give --texts FILE instead of files")
    learned = [name for name in objectives if name not in EXACT_OBJECTIVES]
    networks = [file for file in inputs.files if not is_program(file)]
    texts = [text for text, _ in contents]
    space = search_spaces.name_of(inputs.space) if inputs.space else ""
    file_spaces = [space or _most_similar_space(rlm, names, learned) for _, names in contents]
    distinct = list(dict.fromkeys(file_spaces))
    if learned:
        check_programs(rlm.trained_on, inputs.files, texts, file_spaces, learned)
        for name in distinct:
            rlm.check_space(name, learned)
        if not networks and len(distinct) == 1:
            warn_of_configurations(rlm.surrogates, distinct[0], texts)
    values = np.empty((len(texts), len(objectives), len(levels)))
    for name in distinct:
        uses_transfer = learned and networks
        indices = [i for i, file_space in enumerate(file_spaces) if file_space == name]
        space_texts = [texts[i] for i in indices]
        file_names = [str(inputs.files[i]) for i in indices]
        if uses_transfer:
            rlm.check_task(name, learned, space_texts)
        predictor = ObjectivePredictor(rlm.transferred_to(name, learned) if uses_transfer else rlm)
        of_files = {n: v[indices] if isinstance(v, np.ndarray) else v for n, v in given.items()}
        with named_texts(file_names):
            values[indices] = predictor.predict_text(
                space_texts, objectives, levels, progress=True, space=name, given=of_files
            )
    return values


def _check_other_files(inputs: Inputs) -> None:
    """Refuse existing files that are no networks, which their endings do not say they are.

    The model and the objectives that are checked later would be those of networks.

    Raises:
        ValueError: one is none; the message names what it may be instead.
    """
    from nas_rlm.cli.app import check_networks
    from nas_rlm.data.text_data import JSON_SUFFIX
    from nas_rlm.graph.limits import DEFAULT_LIMITS
    from nas_rlm.graph.onnx_graphs.loading import NotOnnxError
    from nas_rlm.programs.languages import NETWORK_SUFFIXES
    from nas_rlm.programs.source import is_program

    program = "a program with an ending such as .py"
    for file in filter(Path.is_file, inputs.files):
        suffix = file.suffix.lower()
        is_json = suffix == JSON_SUFFIX
        if (suffix in NETWORK_SUFFIXES and not is_json) or is_program(file):
            continue
        try:
            check_networks([file], inputs.limits or DEFAULT_LIMITS)
        except NotOnnxError as error:
            texts = f", {program}, or texts as JSON lines (--texts FILE.jsonl)"
            others = texts if is_json else f", or {program}"
            raise ValueError(f"{error}; expected an ONNX file{others}") from None


def _check_costs(files: Sequence[Path], objectives: Sequence[str]) -> bool:
    """Return whether there are programs, for which costs of networks are refused."""
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.programs.source import is_program

    programs = [file for file in files if is_program(file)]
    exact = [name for name in objectives if name in EXACT_OBJECTIVES]
    if exact and programs:
        raise ValueError(f"{programs[0]} is a program: {exact[0]} is computed for networks only")
    return bool(programs)


def _shipped_model(files: Sequence[Path]) -> str:
    """The shipped model for files: of programs, or of networks, also without files.

    Raises:
        ValueError: there are programs and networks.
    """
    from nas_rlm.programs.source import is_program

    programs = [path for path in files if is_program(path)]
    if programs and len(programs) < len(files):
        network = next(path for path in files if path not in programs)
        raise ValueError(
            f"{programs[0]} is a program and {network} a network, and no shipped model predicts both:"
            " expected files of one kind, or --model"
        )
    return "programs" if programs else "nas"


def _most_similar_space(rlm: RLM, spaces: Sequence[str], objectives: Sequence[str]) -> str:
    """The first space in which the model was trained on the objectives, or on others; empty without any."""
    trained = [name for name in spaces if name in rlm.trained_on]
    complete = [name for name in trained if set(objectives) <= set(rlm.trained_on[name].objectives)]
    return next(iter(complete + trained), "")


def read_architectures(space: SearchSpace[Any], path: Path) -> list[tuple[str, Any]]:
    """Return the lines of a file, each with its architecture.

    Args:
        space: the search space.
        path: a file with one architecture per line.

    Raises:
        ValueError: a line is not an architecture of the space, or there are none.
    """
    return [(line, architecture) for _, line, architecture in _read_numbered(space, path)]


def read_candidates(space: SearchSpace[Any], path: Path | None) -> list[str] | None:
    """Return the architectures of a file in the space's notation, one a line; None without a file.

    Args:
        space: the search space.
        path: the file.

    Raises:
        ValueError: a line is not an architecture of the space, or one of an earlier line, or there are none.
    """
    if path is None:
        return None
    number_of: dict[str, int] = {}
    faults = Faults()
    for number, _, architecture in _read_numbered(space, path):
        name = str(architecture)
        if name in number_of:
            faults.add(f"lines {number_of[name]} and {number} are the same architecture: {name}")
        number_of.setdefault(name, number)
    faults.check(f"{path} ")
    return list(number_of)


def _read_numbered(space: SearchSpace[Any], path: Path) -> list[tuple[int, str, Any]]:
    """The lines of a file that are not blank, each with its number and its architecture."""
    lines = []
    faults = Faults()
    for number, line in enumerate(read_text(path, "an architecture a line").splitlines(), 1):
        if text := line.strip():
            try:
                lines.append((number, text, space.parse(text)))
            except ValueError as error:
                faults.add(f"line {number}: {error}")
    faults.check(f"{path} ")
    if not lines:
        raise ValueError(f"{path} has no architectures: expected one per line")
    return lines
