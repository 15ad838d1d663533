"""A search from its arguments to its result: models, labels, feasibility, log and measurements."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import search_spaces
from nas_rlm.data.objective_kinds import unit_warnings
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.devices.device import Device
from nas_rlm.rlm import RLM
from nas_rlm.search import run_directory
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.exact_constraints import ExactConstraints
from nas_rlm.search.feasibility import Feasibility, estimate_feasibility
from nas_rlm.search.lookup import (
    ROWS_IN_MEMORY,
    LabelledPredictor,
    Labels,
    check_candidates,
    read_labels,
    select_labels,
)
from nas_rlm.search.loop import SamplingPredictor, search
from nas_rlm.search.objectives import (
    ObjectiveFunction,
    ObjectivePredictor,
    check_function_name,
    load_function,
)
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.ray_cluster import LocalWorkers
from nas_rlm.search.reference_points import reference_point
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import Constraint, SearchSettings, constraint_texts
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.registry import graph_surrogates, without_novelty_warnings
from nas_rlm.surrogates.zero_label import NUM_LABELS_TO_LEARN
from nas_rlm.utils.validation import as_list
from search_spaces import SearchSpace
from search_spaces.loading import fingerprint
from search_spaces.wording import counted

Functions = Mapping[str, ObjectiveFunction] | Sequence[str]  # by objective, or texts as of `load_function`


@dataclass(frozen=True)
class SearchInputs:
    """Checked inputs of a search.

    Args:
        space: the search space.
        rlm: the model.
        predictor: the model together with exact objectives and user functions.
        settings: settings of the search.
        labels: architectures with labels of predicted objectives.
        known: networks that were measured on the device before.
    """

    space: SearchSpace[Any]
    rlm: RLM
    predictor: ObjectivePredictor
    settings: SearchSettings
    labels: Sequence[Row]
    known: Sequence[Row] = ()


@dataclass(frozen=True)
class SearchOutcome:
    """What a search returns.

    Args:
        result: all evaluated architectures.
        evaluations: the log.
        feasibility: estimate from before the search, if there is one.
        predictor: the predictor in its final state.
    """

    result: SearchResult
    evaluations: Sequence[run_directory.Evaluation]
    feasibility: Feasibility | None
    predictor: SamplingPredictor


def prepare(
    space: str | SearchSpace[Any],
    objectives: Sequence[str],
    constraints: Sequence[str | Constraint],
    model: str | os.PathLike[str] | RLM,
    functions: Functions,
    labels: Labels | None,
    maximise: Sequence[str],
    device: str,
    candidates: Sequence[str] | None = None,
    **sizes: Any,
) -> SearchInputs:
    """Load a model, functions and labels, and check them against the settings of a search.

    Args:
        space: the search space, or its name.
        objectives: objectives to optimise.
        constraints: bounds on objectives.
        model: a model, a checkpoint directory, or the name of a shipped model.
        functions: user-defined objectives.
        labels: measured architectures.
        maximise: objectives that are maximised although their kind is not.
        device: device on which networks are measured, or empty.
        candidates: search only these architectures; by default the complete space.
        sizes: `algorithm`, `population`, `generations`, `seed` and `budget`, see `SearchSettings`.

    Raises:
        ValueError: an argument is invalid.
    """
    search_space = search_spaces.register(space)
    if candidates is not None:
        search_space = TableSpace(search_space, check_candidates(search_space, candidates))
    rlm = _load_model(model)
    function_texts, loaded_functions = _load_functions(functions)
    predictor = ObjectivePredictor(rlm, loaded_functions)
    table = None if labels is None else read_labels(labels)
    settings = SearchSettings(
        search_space.name,
        tuple(as_list(objectives, "objectives")),
        constraint_texts(constraints),
        **sizes,
        model=_fingerprint(rlm, search_space, function_texts, labels),
        device=str(Device.parse(device)) if device else "",
        maximised=_maximised(objectives, as_list(maximise, "maximise"), rlm, table),
        functions=function_texts,
        data=_labels_name(labels) if labels is not None else "",
        location=search_spaces.location_of(search_space),
    ).for_space(search_space)
    predicted = [name for name in settings.all_objectives if name not in settings.measured_objectives]
    if predicted:
        predictor.check(predicted)
    labelled = [name for name in predicted if name not in loaded_functions]
    rows = _select_rows(table, search_space, labelled, settings.measured_objectives)
    return SearchInputs(search_space, rlm, predictor, settings, *rows)


def _select_rows(
    table: Table | None, space: SearchSpace[Any], labelled: Sequence[str], measured: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Labels of predicted objectives, and networks with all objectives that a device measures.

    Raises:
        ValueError: the table has neither.
    """
    if table is None:
        return [], []
    of_space = [row for row in table.rows if row.space == space.name]
    if not measured or not any(all(map(row.is_measured, measured)) for row in of_space):
        return select_labels(table, space, labelled), []
    has_labels = any(row.is_measured(name) for row in of_space for name in labelled)
    labels = select_labels(table, space, labelled) if has_labels else []
    return labels, select_labels(table, space, measured)


def open_search(
    inputs: SearchInputs,
    workers: LocalWorkers,
    directory: Path | None,
    resume: bool,
    feasibility_samples: int,
    on_feasibility: Callable[[Feasibility], object] | None,
) -> tuple[LabelledPredictor, Feasibility | None, run_directory.SearchLog | run_directory.MemoryLog]:
    """Return the predictor of a search, the estimate of its feasibility, and its log; see `run`.

    Raises:
        ValueError: no architecture meets the constraints, or the directory holds another search.
    """
    settings = inputs.settings
    inputs.predictor.model = workers.distribute(inputs.rlm)
    predictor = LabelledPredictor(inputs.predictor, inputs.labels)
    feasibility = run_directory.read_feasibility(directory) if directory else None
    known = settings.without_measured
    if not feasibility and feasibility_samples and known:
        feasibility = estimate_feasibility(inputs.space, predictor, known, feasibility_samples)
    if feasibility and on_feasibility:
        on_feasibility(feasibility)
    log = run_directory.open_log(directory, settings, resume) if directory else run_directory.MemoryLog()
    if feasibility and directory:
        run_directory.write_feasibility(directory, feasibility)
    return predictor, feasibility, log


def run(
    inputs: SearchInputs,
    workers: LocalWorkers,
    directory: Path | None,
    resume: bool = False,
    feasibility_samples: int = 200,
    progress: bool = False,
    on_feasibility: Callable[[Feasibility], object] | None = None,
) -> SearchOutcome:
    """Run a search by predictions: estimate its feasibility, then evaluate architectures and log them.

    Args:
        inputs: what to search.
        workers: predict.
        directory: run directory, or None for a log in memory.
        resume: continue the search of the directory.
        feasibility_samples: random architectures for the feasibility estimate; 0 for none.
        progress: show progress bars.
        on_feasibility: is called with the feasibility estimate before the search starts.

    Raises:
        ValueError: no architecture meets the constraints.
    """
    space, settings = inputs.space, inputs.settings
    predictor, feasibility, log = open_search(
        inputs, workers, directory, resume, feasibility_samples, on_feasibility
    )
    ranges = feasibility.ranges if feasibility else {}
    reference = reference_point(space.name, settings.objectives, ranges, settings.maximised)
    initial = [space.parse(row.arch_str) for row in inputs.labels]
    with without_novelty_warnings():
        result = search(space, predictor, settings, log, progress, predictor.status, reference, initial)
    log.finish()
    front = [result.architectures[i] for i in result.front]
    _warn_of_novel(inputs.rlm, space, front, settings.all_objectives)
    return SearchOutcome(result, log.evaluations, feasibility, predictor)


def _warn_of_novel(
    rlm: RLM, space: SearchSpace[Any], names: Sequence[str], objectives: Sequence[str]
) -> None:
    """Warn of architectures that are unlike all labelled networks of a latency.

    Args:
        rlm: the model.
        space: the search space.
        names: the architectures.
        objectives: predicted objectives.

    Warns:
        NoveltyWarning: an architecture is unlike them.
    """
    latencies = [name for name in objectives if name in rlm.latencies_of_any_network]
    if names and latencies:
        rlm.predict(space, names, latencies)


def check_front(result: SearchResult) -> None:
    """Refuse a finished search whose front is empty.

    Raises:
        ValueError: no evaluated architecture is feasible.
    """
    if len(result.front):
        return
    constraints = " and ".join(result.settings.constraints)
    reason = f"none meets {constraints}: loosen a constraint" if constraints else "none runs on the device"
    raise ValueError(f"{len(result.architectures):,} architectures evaluated, {reason}")


def _maximised(
    objectives: Sequence[str], maximise: Sequence[str], rlm: RLM, table: Table | None
) -> tuple[str, ...]:
    """The objectives to maximise: those named, and those that the model or the table of labels declares."""
    declared = (*rlm.maximised, *(table.maximised if table else ()))
    return tuple(dict.fromkeys([*maximise, *(name for name in declared if name in objectives)]))


def _load_model(model: str | os.PathLike[str] | RLM) -> RLM:
    return model if isinstance(model, RLM) else RLM.load(model)


def _labels_name(labels: Labels) -> str:
    is_path = isinstance(labels, str | os.PathLike)
    return str(labels) if is_path else ROWS_IN_MEMORY


def _load_functions(functions: Functions) -> tuple[tuple[str, ...], dict[str, ObjectiveFunction]]:
    """User-defined objectives as texts for the settings, and as functions by name."""
    if not isinstance(functions, Mapping):
        texts = tuple(as_list(functions, "functions"))
        return texts, dict(map(load_function, texts))
    for name, function in functions.items():
        check_function_name(name)
        if not callable(function):
            raise ValueError(f"function {name!r} is {function!r}, expected a function of an architecture")
    return tuple(f"{name}={_qualified_name(f)}" for name, f in functions.items()), dict(functions)


def _qualified_name(function: ObjectiveFunction) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}:{name}"


def _fingerprint(
    rlm: RLM, space: SearchSpace[Any], function_texts: Sequence[str], labels: Labels | None
) -> str:
    """Hash of the model, of the file of a user's own space, of files with user functions, and of labels.

    A function of a module or of this process is hashed by its name only.
    """
    digest = hashlib.sha256(fingerprint(space).encode())
    if isinstance(space, TableSpace):
        digest = hashlib.sha256("\n".join([fingerprint(space.full_space), *space.names]).encode())
    for source in [text.partition("=")[2].rpartition(":")[0] for text in function_texts]:
        digest.update(Path(source).read_bytes() if source.endswith(".py") else source.encode())
    if isinstance(labels, str | os.PathLike):
        digest.update(Path(labels).read_bytes())
    elif labels is not None:
        rows = [(row.space, row.arch_str, sorted(row.targets.items())) for row in read_labels(labels).rows]
        digest.update(json.dumps(rows).encode())
    digest.update(rlm.fingerprint.encode())
    return digest.hexdigest()[:16]


def propose_architectures(
    space: str | SearchSpace[Any],
    objectives: Sequence[str],
    *,
    max_architectures: int = 10,
    labels: Labels | None = None,
    constraints: Sequence[str | Constraint] = (),
    model: str | os.PathLike[str] | RLM = "nas",
    seed: int = 0,
    maximise: Sequence[str] = (),
    candidates: Sequence[str] | None = None,
) -> list[str]:
    """Select the architectures to train or measure next: those that may add most to the front.

    Surrogates learn the labelled objectives. With fewer than ten labels, architectures that the model ranks
    high and random ones are returned.

    Examples:
        >>> names = propose_architectures("nasbench201", ["accuracy", "latency/mine"], max_architectures=5)

    Args:
        space: the search space, or the name of a registered one.
        objectives: objectives to optimise.
        max_architectures: select as many; fewer only where all others have labels or break a constraint on
            `flops` or `params`.
        labels: measured architectures; the model predicts the objectives that they lack.
        constraints: bounds such as `latency/pixel3<=20`.
        model: a model, a checkpoint directory, or the name of a shipped model.
        seed: seed of all random choices.
        maximise: objectives that are maximised although their kind is not.
        candidates: select among these architectures; by default among all of the space.

    Returns:
        Architectures in the space's notation, the most promising first.

    Raises:
        ValueError: an argument is invalid, no architecture that was examined meets the constraints on
            `flops` and `params`, or each one has a label.
    """
    if max_architectures < 1:
        raise ValueError(f"the number of architectures is {max_architectures}, expected at least 1")
    if not {*as_list(objectives, "objectives")}.difference(EXACT_OBJECTIVES):
        raise ValueError(
            f"{' and '.join(objectives)} need no measurements: expected an objective that does, such as"
            " accuracy, or a search (nas-rlm search) instead of proposals"
        )
    search_space = search_spaces.register(space)
    table = None if labels is None else read_labels(labels)
    rlm = _load_model(model)
    settings = SearchSettings(
        search_space.name,
        tuple(as_list(objectives, "objectives")),
        constraint_texts(constraints),
        seed=seed,
        maximised=_maximised(objectives, as_list(maximise, "maximise"), rlm, table),
    )
    rows: list[Row] = []
    if table is not None:
        rows = select_labels(table, search_space, settings.all_objectives)
    learned = list(rows[0].targets) if rows else []
    predictor = ObjectivePredictor(rlm)
    own = learned or settings.objectives
    if predicted := [name for name in settings.all_objectives if name not in own]:
        predictor.check(predicted)
    surrogate = OnlineSurrogate(
        CachedPredictor(predictor, search_space),
        own,
        graph_surrogates(rlm.surrogates),
    )
    surrogate.update(rows)
    columns = {name: [row.targets[name] for row in rows] for name in learned}
    equal = [
        f"the {len(rows)} labels of {name} are equal: its predictions rank nothing"
        for name, values in columns.items()
        if surrogate.is_ready and len({*values}) == 1
    ]
    for message in (*unit_warnings(columns), *equal):
        warnings.warn(message, stacklevel=2)
    if candidates is not None:
        search_space = TableSpace(search_space, check_candidates(search_space, candidates))
    if not surrogate.is_ready:
        warnings.warn(
            f"{len(rows)} labels of {','.join(surrogate.objectives)} for {search_space.name}: the"
            " architectures are a first design, of which half are those that the model ranks high and half"
            " are random. Add their labels to a table and give it with --data: surrogates learn from"
            f" {MIN_LABELS} labels, better from {NUM_LABELS_TO_LEARN}",
            stacklevel=2,
        )
    with without_novelty_warnings():
        exact = ExactConstraints(search_space, settings)
        pool = CandidatePool(search_space, seed, constraints=exact)
        if exact and not pool.candidates((), 1):
            raise ValueError(exact.refusal())
        names = propose(surrogate, settings, max_architectures, pool=pool)
    bounds = f" and meet {exact}" if exact else ""
    if not names:
        kind = "candidate" if candidates is not None else f"architecture of {search_space.name}"
        met = f" that meets {exact}" if exact else ""
        raise ValueError(f"each {kind}{met} has a label: there are no others to propose")
    if len(names) < max_architectures:
        found = counted(len(names), "architecture is", "architectures are")
        warnings.warn(
            f"{max_architectures:,} architectures were asked for, and only {found} left that have no"
            f" labels{bounds}",
            stacklevel=2,
        )
    _warn_of_novel(rlm, search_space, names, [o for o in settings.all_objectives if o not in learned])
    return names
