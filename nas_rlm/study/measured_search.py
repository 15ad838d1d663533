"""A search that measures networks on a device: a study, and a search by what its measurements taught."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from nas_rlm.devices.device import Device
from nas_rlm.devices.measurements import MeasureFunction
from nas_rlm.devices.profiler import measure
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.feasibility import Feasibility
from nas_rlm.search.loop import EvaluationLog
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.ray_cluster import LocalWorkers
from nas_rlm.search.result import SearchResult
from nas_rlm.search.run_directory import MEASUREMENTS
from nas_rlm.search.runner import SearchInputs, SearchOutcome, open_search
from nas_rlm.search.settings import SearchSettings
from nas_rlm.study.optimization import Limits, TrialsFailed
from nas_rlm.study.search_suggestion import SearchSuggester
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.study import Study
from nas_rlm.study.workers.device import DeviceWorkers
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.registry import graph_surrogates
from search_spaces.wording import counted

STUDY = "study"  # directory of the study in the run directory


def run_measured(
    inputs: SearchInputs,
    workers: LocalWorkers,
    directory: Path | None,
    resume: bool = False,
    feasibility_samples: int = 200,
    progress: bool = False,
    on_feasibility: Callable[[Feasibility], object] | None = None,
    python: str = "",
) -> SearchOutcome:
    """Run a search that measures: a study spends the budget, then a search evaluates architectures.

    Args:
        inputs: what to search.
        workers: predict and measure.
        directory: run directory.
        resume: continue the search of the directory.
        feasibility_samples: random architectures for the feasibility estimate; 0 for none.
        progress: show progress bars.
        on_feasibility: is called with the feasibility estimate before the search starts.
        python: command that starts Python where networks are measured.

    Raises:
        ValueError: no architecture meets the constraints, or too few networks run on the device.
    """
    if directory is None:
        raise ValueError("a search that measures needs a run directory")
    settings = inputs.settings
    workers.check_device(Device.parse(settings.device), python)
    predictor, feasibility, log = open_search(
        inputs, workers, directory, resume, feasibility_samples, on_feasibility
    )
    result, surrogate = measure_and_search(
        CachedPredictor(predictor, inputs.space),
        graph_surrogates(inputs.rlm.surrogates),
        settings,
        directory,
        log,
        inputs.known,
        workers.measure,
        python,
        progress,
    )
    log.finish()
    return SearchOutcome(result, log.evaluations, feasibility, surrogate)


def measure_and_search(
    cached_predictor: CachedPredictor,
    sources: Mapping[str, Sequence[GraphSurrogate]],
    settings: SearchSettings,
    directory: Path,
    log: EvaluationLog,
    known: Sequence[Row] = (),
    measure_function: MeasureFunction = measure,
    python: str = "",
    progress: bool = False,
) -> tuple[SearchResult, OnlineSurrogate]:
    """Spend the budget of a search on measurements, which a study records.

    Args:
        cached_predictor: predicts the objectives that are not measured.
        sources: existing surrogates by space, sources of transfer.
        settings: settings of the search.
        directory: run directory, in which the study and the table of measurements are.
        log: is replayed and records the final predictions.
        known: networks that were measured before, beside the budget.
        measure_function: function that measures, see `nas_rlm.devices.measurements.profile`.
        python: command that starts Python where networks are measured.
        progress: show progress bars.

    Returns:
        The architectures of the last search and the measured ones, as they are predicted in the end, and the
        surrogate that learnt from the measurements.

    Raises:
        ValueError: too few networks run on the device.
    """
    limits = Limits(settings.budget + len(known))
    suggester = SearchSuggester(
        cached_predictor,
        sources,
        study_settings(settings),
        settings,
        directory / STUDY,
        limits.trials,
        progress,
    )
    study = Study.of_suggester(suggester, directory / STUDY, python)
    existing = {trial.architecture for trial in study.trials}
    for row in known:
        if row.arch_str not in existing:
            study.add(row.arch_str, row.targets)
    table = directory / MEASUREMENTS
    pool = DeviceWorkers(study.settings, table, len(study.rows), python, measure_function)
    try:
        study.run_workers(pool, limits, progress=progress)
    except TrialsFailed as error:
        raise ValueError(str(error)) from None
    surrogate = suggester.surrogate(study.rows)
    if not surrogate.is_ready:
        raise ValueError(
            f"{len(surrogate.successful_rows)} of {counted(len(surrogate.measurements), 'network')} could be"
            " measured on"
            f" {settings.device}: expected at least {MIN_LABELS} with {' and '.join(surrogate.objectives)}"
        )
    result = suggester.result(study.rows, log)
    return result, suggester.surrogate(study.rows)


def study_settings(settings: SearchSettings) -> StudySettings:
    """Return the settings of the study of a search that measures."""
    others = (*EXACT_OBJECTIVES, *settings.measured_objectives)
    return StudySettings(
        settings.space,
        settings.objectives,
        settings.constraints,
        settings.maximised,
        settings.device,
        tuple(name for name in settings.all_objectives if name not in others),
        settings.seed,
        settings.model,
        location=settings.location,
    )
