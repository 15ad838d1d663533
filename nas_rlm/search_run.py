"""Searches from start to end: run one, look at its result, write its run directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

import search_spaces
from nas_rlm.data.predictions import predictions_csv
from nas_rlm.data.tables import Row, read
from nas_rlm.files import exclusive_lock, write_text
from nas_rlm.plotting import front, hypervolume
from nas_rlm.plotting.style import check_picture_path, save_figure
from nas_rlm.search import run_directory
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.lookup import Labels, read_labels
from nas_rlm.search.loop import SamplingPredictor
from nas_rlm.search.objectives import NO_FUNCTIONS
from nas_rlm.search.reference_points import reference_point
from nas_rlm.search.report import render_report, report_info
from nas_rlm.search.result import PREDICTED, SearchResult
from nas_rlm.search.settings import Constraint, SearchSettings, check_measuring
from nas_rlm.utils.extras import require
from search_spaces import SearchSpace
from search_spaces.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nas_rlm.rlm import RLM
    from nas_rlm.search.runner import Functions

NETWORKS_MODULE = '''"""The networks of this front as torch modules with random weights, ready to be trained.

>>> module = network(0)  # 000.onnx
"""

import search_spaces
from nas_rlm.graph.torch_module import to_torch

SPACE = search_spaces.get({space!r})
ARCHITECTURES = {names!r}


def network(number):
    """Return one of ARCHITECTURES as a torch module in training mode, for batches of any size."""
    return to_torch(SPACE.to_onnx(SPACE.parse(ARCHITECTURES[number]), weights=True))
'''
SAMPLES_PER_ARCHITECTURE = 256  # joint samples of a highlighted architecture, enough for a smooth contour


@dataclass(frozen=True)
class SearchRun:
    """A search with its result; see `run_search`.

    Args:
        space: the search space.
        result: all evaluated architectures.
        evaluations: the log, from which `report` writes a run directory.
        samples: joint samples [S, K] of the highlighted architectures of the front.
        feasibility: estimate from before the search, if there is one.
        directory: run directory of the search, if it has one.
    """

    space: SearchSpace[Any]
    result: SearchResult
    evaluations: Sequence[run_directory.Evaluation] = ()
    samples: Mapping[str, np.ndarray] = field(default_factory=dict)
    feasibility: Feasibility | None = None
    directory: Path | None = None

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> SearchRun:
        """Load the search of a run directory, finished or not.

        Args:
            directory: the run directory.

        Raises:
            FileNotFoundError: the directory has no search.
            ValueError: a file is damaged, or nothing was evaluated yet.
        """
        directory = Path(directory)
        result = run_directory.read_result(directory)
        return cls(
            result.settings.load_space(),
            result,
            run_directory.read_evaluations(directory),
            run_directory.read_samples(directory, result),
            run_directory.read_feasibility(directory),
            directory,
        )

    def __repr__(self) -> str:
        settings = self.result.settings
        return (
            f"SearchRun({settings.space!r}, {list(settings.objectives)}: {len(self.result.architectures):,}"
            f" architectures evaluated, {len(self.result.front)} on the front)"
        )

    @property
    def settings(self) -> SearchSettings:
        """The settings of the search."""
        return self.result.settings

    @property
    def front(self) -> list[dict[str, Any]]:
        """The records of the Pareto front, best in the first objective first; see `to_records`."""
        records = self.to_records()
        return [records[i] for i in self.result.front]

    @property
    def measurements(self) -> list[Row]:
        """The networks that were measured during the search; a row without values is one that failed."""
        path = self.directory / run_directory.MEASUREMENTS if self.directory else None
        return read(path).rows if path and path.is_file() else []

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record per evaluated architecture, in order of evaluation, for example for pandas.

        Examples:
            >>> frame = pandas.DataFrame(run.to_records())  # doctest: +SKIP

        Returns:
            `architecture`; by the objective's name its median, and by `OBJECTIVE@LEVEL` its quantiles;
            `status` (`measured`, `predicted` or `failed`); `is_feasible`; `is_on_front`.
        """
        result, settings = self.result, self.settings
        is_on_front = np.isin(np.arange(len(result.architectures)), result.front).tolist()
        is_feasible, medians, values = (
            result.feasible.tolist(),
            result.medians.tolist(),
            result.values.tolist(),
        )
        records = []
        for i, name in enumerate(result.architectures):
            record: dict[str, Any] = {"architecture": name}
            record |= dict(zip(settings.all_objectives, medians[i], strict=True))
            for objective, quantiles in zip(settings.all_objectives, values[i], strict=True):
                levels = zip(settings.quantile_levels, quantiles, strict=True)
                record |= {f"{objective}@{level:g}": value for level, value in levels}
            record["status"] = result.status.get(name, PREDICTED)
            record["is_feasible"] = is_feasible[i]
            record["is_on_front"] = is_on_front[i]
            records.append(record)
        return records

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        pairs: Sequence[tuple[str, str]] = (),
        labels: Labels | None = None,
    ) -> Figure:
        """Draw the evaluated architectures and the front.

        Args:
            path: picture to write (.png, .svg, .pdf or .jpg); None writes none.
            pairs: x and y objective of each panel; by default each other objective against the first.
            labels: measured values to draw beside the predictions.

        Returns:
            The figure, which a notebook displays.

        Raises:
            ValueError: the path has another suffix, a pair has an unknown objective, or no label is of an
                evaluated architecture.
        """
        if path is not None:
            check_picture_path(Path(path))
        measured: dict[str, Mapping[str, float]] = {}
        if labels is not None:
            table = read_labels(labels)
            measured = {row.arch_str: row.targets for row in table.rows if row.space == self.settings.space}
            if not measured.keys() & set(self.result.architectures):
                num_architectures = len(self.result.architectures)
                raise ValueError(
                    f"{table.name} has none of the {counted(num_architectures, 'architecture')} of the search"
                )
        figure = front.draw_front(front.front_info(self.result, self.samples, pairs, measured))
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def report(self, directory: str | os.PathLike[str] | None = None) -> Path:
        """Write the run directory: front.csv, front/, report.html, pictures, samples, log and settings.

        Args:
            directory: a new directory; by default the one of the search, whose front and pictures are written
                again from its log.

        Returns:
            The directory.

        Raises:
            ValueError: the front is empty, there is no directory, or it holds other files.
        """
        if len(self.result.front) == 0:
            raise ValueError("no architecture meets the constraints so far: there is no front to write")
        target = Path(directory) if directory is not None else self.directory
        if target is None:
            raise ValueError("the search has no run directory: expected the path of a new one")
        if target != self.directory:
            with exclusive_lock(target):
                log = run_directory.open_log(target, self.settings, resume=False)
                run_directory.write_evaluations(log, self.evaluations)
                if self.feasibility:
                    run_directory.write_feasibility(target, self.feasibility)
        write_results(target, self.space, self.result, self.samples, self.feasibility)
        return target


def run_search(
    space: str | SearchSpace[Any],
    objectives: Sequence[str],
    *,
    constraints: Sequence[str | Constraint] = (),
    model: str | os.PathLike[str] | RLM = "nas",
    algorithm: str = "nsga2",
    population: int = 50,
    generations: int = 20,
    seed: int = 0,
    maximise: Sequence[str] = (),
    functions: Functions = NO_FUNCTIONS,
    labels: Labels | None = None,
    device: str = "",
    budget: int = 0,
    python: str = "",
    ray: str = "",
    candidates: Sequence[str] | None = None,
    feasibility_samples: int = 200,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
    on_feasibility: Callable[[Feasibility], object] | None = None,
) -> SearchRun:
    """Search a space for the architectures with the best predicted trade-offs.

    Examples:
        >>> run = run_search("nasbench201", ["accuracy", "latency/pixel3"], generations=3)
        >>> best = run.front[0]["architecture"]
        >>> path = run.report("runs/mine")  # doctest: +SKIP

    Args:
        space: the search space, or the name of a registered one.
        objectives: objectives to optimise. Kinds such as accuracy, throughput and IoU are maximised, and so
            are `maximise`, what the table of labels declares, and what the model's table declared; all others
            are minimised. `flops` and `params` are exact.
        constraints: bounds such as `latency/pixel3<=20`, or `latency/pixel3@0.9<=20` on a quantile, on these
            or on other objectives.
        model: the predictor: a model, a checkpoint directory, or the name of a shipped model.
        algorithm: one of `nas_rlm.search.settings.ALGORITHMS`.
        population: architectures per generation.
        generations: number of generations; with `device`, of each search.
        seed: seed of all random choices.
        maximise: objectives that are maximised although their kind is not.
        functions: user-defined objectives by name, functions from an architecture to a number; or texts such
            as `energy=mine.py:energy`.
        labels: measured architectures, as rows, a table or the path of one. The search starts with them, and
            their values replace predictions. With `device`, networks that have its values count as measured
            before.
        device: measure networks on this device during the search, such as `onnxruntime-cpu-1t`. Its latency
            or memory must be among the objectives or constraints.
        budget: number of networks to measure.
        python: command that starts Python where the networks run, such as `ssh box .venv/bin/python`.
        ray: address of a Ray cluster that predicts and measures, see `nas_rlm.search.ray_cluster`.
        candidates: search only these architectures; by default the complete space.
        feasibility_samples: random architectures that are evaluated before the search to check the
            constraints; 0 for none.
        directory: run directory, in which the search is logged and its results are written; None keeps all
            in memory.
        resume: continue the search of the run directory; without one, start it.
        progress: show progress bars.
        on_feasibility: is called with the feasibility estimate before the search starts.

    Returns:
        The finished search.

    Raises:
        ValueError: an argument is invalid, no architecture meets the constraints, or the directory holds
            another search.
    """
    from nas_rlm.devices.device import Device
    from nas_rlm.devices.runtimes import check as check_runtime
    from nas_rlm.search import runner  # imports torch
    from nas_rlm.search.ray_cluster import connect_workers
    from nas_rlm.study.measured_search import run_measured
    from nas_rlm.surrogates.registry import novelty_warnings_once

    run_path = None if directory is None else Path(directory)
    check_measuring(device, budget, python)
    if run_path is None and (device or resume):
        purpose = "a search that measures" if device else "resuming a search"
        raise ValueError(f"{purpose} needs a run directory")
    if feasibility_samples < 0:
        raise ValueError(f"{counted(feasibility_samples, 'sample')} for feasibility, expected at least 0")
    if ray:
        require("ray", "a cluster")
    elif device and not python:
        check_runtime(Device.parse(device))
    inputs = runner.prepare(
        *(space, objectives, constraints, model, functions, labels, maximise, device, candidates),
        algorithm=algorithm,
        population=population,
        generations=generations,
        seed=seed,
        budget=budget,
    )
    if run_path is not None:
        run_directory.check_search(run_path, inputs.settings, resume)
    lock = nullcontext() if run_path is None else exclusive_lock(run_path)
    with lock, connect_workers(ray) as workers, novelty_warnings_once():
        arguments = inputs, workers, run_path, resume, feasibility_samples, progress, on_feasibility
        outcome = run_measured(*arguments, python) if device else runner.run(*arguments)
        runner.check_front(outcome.result)
        samples = joint_samples(inputs.space, outcome.predictor, outcome.result)
        run = SearchRun(
            inputs.space, outcome.result, outcome.evaluations, samples, outcome.feasibility, run_path
        )
        if run_path is not None:
            run.report()
    return run


def joint_samples(
    space: SearchSpace[Any], predictor: SamplingPredictor, result: SearchResult
) -> dict[str, np.ndarray]:
    """Return joint samples [SAMPLES_PER_ARCHITECTURE, K] of the highlighted architectures of a front.

    Args:
        space: the search space.
        predictor: the predictor of the search.
        result: its result.
    """
    settings = result.settings
    names = [result.architectures[i] for i in front.highlights(result)]
    if not names:
        return {}
    samples = predictor.sample(
        space,
        [space.parse(name) for name in names],
        settings.all_objectives,
        num_samples=SAMPLES_PER_ARCHITECTURE,
        seed=settings.seed,
    )
    return dict(zip(names, samples, strict=True))


def write_results(
    directory: Path,
    space: SearchSpace[Any],
    result: SearchResult,
    samples: Mapping[str, np.ndarray],
    feasibility: Feasibility | None = None,
) -> None:
    """Write the results of a search: front/, samples.json, pictures, report.html and, last, front.csv.

    Args:
        directory: the run directory; its earlier results are replaced.
        space: the search space.
        result: result of the search.
        samples: see `joint_samples`.
        feasibility: estimate from before the search.
    """
    settings = result.settings
    names = [result.architectures[i] for i in result.front]
    _write_networks(directory, space, names)
    stored_samples = {name: rows.tolist() for name, rows in samples.items()}
    write_text(directory / "samples.json", json.dumps(stored_samples) + "\n")
    save_figure(front.draw_front(front.front_info(result, samples)), directory / "pareto.png")
    ranges = feasibility.ranges if feasibility else {}
    reference = reference_point(settings.space, settings.objectives, ranges, settings.maximised)
    curve = hypervolume.hypervolume_curve(result, reference) if reference else []
    if curve:
        title = f"{settings.space}: {', '.join(settings.objectives)}"
        save_figure(hypervolume.draw_hypervolume(curve, title), directory / "hypervolume.png")
    info = report_info(space, result, curve, reference, feasibility)
    write_text(directory / "report.html", render_report(info))
    status = [result.status.get(name, PREDICTED) for name in names] if settings.has_measurements else ()
    table = predictions_csv(
        names,
        settings.all_objectives,
        result.medians[result.front],
        settings.quantile_levels,
        result.values[result.front],
        status,
    )
    write_text(directory / "front.csv", table)


def _write_networks(directory: Path, space: SearchSpace[Any], names: Sequence[str]) -> None:
    """Write front/: an ONNX file for each architecture, and networks.py."""
    unfinished, finished = directory / ".front", directory / "front"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for i, name in enumerate(names):
        onnx.save(space.to_onnx(space.parse(name)), unfinished / f"{i:03d}.onnx")
    module = NETWORKS_MODULE.format(space=search_spaces.location_of(space) or space.name, names=list(names))
    write_text(unfinished / "networks.py", module)
    shutil.rmtree(finished, ignore_errors=True)
    unfinished.rename(finished)
