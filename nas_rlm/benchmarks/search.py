"""What ways of searching find, in true values: a model's search, and searches that may ask for true values.

All of them choose among the architectures that a table has, so that none is lost on what nobody measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

import search_spaces
from nas_rlm.data.tables import Row, Table
from nas_rlm.plotting.style import HUES, INK, plot_mean_band, style_axis
from nas_rlm.search.active_search import propose
from nas_rlm.search.lookup import LabelledPredictor, TablePredictor, TableSpace
from nas_rlm.search.loop import Predictor, SamplingPredictor, search
from nas_rlm.search.online_surrogate import CachedPredictor, OnlineSurrogate
from nas_rlm.search.reference_points import published_reference_values
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.utils.progress import progress_bar

SETS = (
    ("accuracy", "latency/pixel3"),
    ("accuracy", "latency/eyeriss"),
    ("accuracy", "latency/gold_6226", "latency/titan_rtx_256"),
)
MARKS = (50, 100, 200, 500, 1000, 2000, 5000, 10000)  # evaluations after which a search is judged
FEW = 10  # architectures a generation where each costs a true value
SHORTLIST = 100
TURNS = 4  # in which labels are chosen
# Name to whether it goes by true values, and the algorithm.
METHODS = {
    "model": (False, "nsga2"),
    "model, random": (False, "random"),
    "nsga2 on truth": (True, "nsga2"),
    "evolution on truth": (True, "evolution"),
    "random on truth": (True, "random"),
}
Key = tuple[str, str, int, int]
KEYS = ("objectives", "method", "seed", "evaluations")


@dataclass(frozen=True)
class Judgement:
    """What a search had found after some evaluations.

    Args:
        front: architectures on its front.
        share: hypervolume of their true values, relative to that of the whole table.
        share_shortlist: the same of the `SHORTLIST` best, see `SearchResult.shortlist`.
        seconds: that the search took in all.
    """

    front: int
    share: float
    share_shortlist: float
    seconds: float


def contest(
    table: Table,
    model_of: Callable[[Sequence[Row], Sequence[str], int], SamplingPredictor],
    labels: int = 0,
    chosen: bool = False,
    sets: Sequence[tuple[str, ...]] = SETS,
    population: int = 50,
    generations: int = 20,
    seeds: Sequence[int] = range(5),
    done: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, Judgement]]:
    """Search by each method for each set of objectives.

    Args:
        table: measurements of one space, of which those rows count that have all objectives.
        model_of: from labelled rows, objectives and a seed to a model that has learnt these rows, if any.
        labels: rows that it is given: random ones, or chosen ones. They are known, and count as they are.
        chosen: for each set of objectives those that pay, a quarter at a time, see
            `nas_rlm.search.active_search.propose`.
        sets: of objectives, each with a published reference point.
        population: architectures a generation of a search by the model.
        generations: of them; searches by true values may ask for as many values.
        seeds: of the labels, the learning and the searches.
        done: what is left out.
        progress: show a bar.

    Returns:
        As each is done: objectives, method, seed and evaluations, and what was found after these.

    Raises:
        ValueError: fewer rows than labels, or an objective without a reference.
    """
    needed = tuple(dict.fromkeys(name for objectives in sets for name in objectives))
    truth = TablePredictor(table, needed)
    names = list(truth.values)
    if labels and not 2 <= labels < len(names):
        raise ValueError(f"{labels} labels of {len(names):,} rows: expected 2 at least, and fewer than rows")
    space = search_spaces.get(table.rows[0].space)
    known = TableSpace(space, names)
    total = population * generations
    marks = [mark for mark in MARKS if mark < total] + [total]
    left = [
        (seed, objectives, method)
        for seed in seeds
        for objectives in sets
        for method in METHODS
        if any((" x ".join(objectives), method, seed, mark) not in done for mark in marks)
    ]
    held: dict[tuple[int, tuple[str, ...]], tuple[list[Row], SamplingPredictor]] = {}
    for seed, objectives, method in progress_bar(left, unit="search", disable=not progress):
        is_true, algorithm = METHODS[method]
        each = FEW if is_true else population
        settings = SearchSettings(*(space.name, objectives, (), algorithm, each, total // each, seed))
        rows: list[Row] = []
        predictor: Predictor = truth
        if not is_true:
            key = seed, objectives if chosen else needed
            if key not in held:
                if chosen:
                    rows = _chosen(known, model_of([], objectives, seed), truth, labels, settings)
                else:
                    rows = _drawn(table, truth, labels, seed)
                held = {key: (rows, model_of(rows, key[1], seed))}
            rows, model = held[key]
            predictor = LabelledPredictor(model, rows)
        start = time.perf_counter()
        result = search(known, predictor, settings)
        seconds = time.perf_counter() - start
        for mark in marks:
            found = _knowing(result.truncated(mark), rows)
            yield (" x ".join(objectives), method, seed, mark), judged(found, truth, seconds)


def _chosen(known: TableSpace, model: SamplingPredictor, truth: TablePredictor, labels: int, settings: SearchSettings) -> list[Row]:
    """Rows that pay, with the objectives alone."""
    objectives = settings.objectives
    learner = OnlineSurrogate(CachedPredictor(model, known), objectives, {})
    for turn in range(TURNS):
        count = (labels - len(learner.measurements)) // (TURNS - turn)
        names = propose(learner, settings, count)
        rows = [
            Row(known.name, name, dict(zip(objectives, values, strict=True)))
            for name, values in zip(names, truth.measured_values(names, objectives).tolist(), strict=True)
        ]
        learner.update(rows)
    return [*learner.measurements.values()]


def _knowing(result: SearchResult, rows: Sequence[Row]) -> SearchResult:
    """A result with the rows that were known before, where it has not come upon them."""
    objectives = result.settings.objectives
    new = [row for row in rows if row.arch_str not in set(result.architectures)]
    if new:
        true = np.array([[row.targets[name] for name in objectives] for row in new])
        result.add([row.arch_str for row in new], np.repeat(true[:, :, None], result.values.shape[2], 2))
    return result


def _drawn(table: Table, truth: TablePredictor, labels: int, seed: int) -> list[Row]:
    """Random rows, with the numbers that are searched for alone."""
    rows = [row for row in table.rows if row.arch_str in truth.values]
    chosen = np.random.default_rng([seed, labels]).permutation(len(rows))[:labels]
    return [rows[i].select(list(truth.objectives)) for i in chosen]


def judged(result: SearchResult, truth: TablePredictor, seconds: float) -> Judgement:
    """What a result is select_candidates in true values."""
    objectives = result.settings.objectives
    corner = [published_reference_values(result.settings.space)[name] for name in objectives]

    def share(positions: np.ndarray) -> float:
        names = [result.architectures[i] for i in positions]
        return truth.relative_hypervolume(names, objectives, corner)

    front = result.front
    return Judgement(len(front), share(front), share(result.shortlist(SHORTLIST)), seconds)


def means(found: Mapping[Key, Judgement], figure: str) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Of objectives, method and evaluations the mean over seeds and the deviation."""
    groups: dict[tuple[str, str, int], list[float]] = {}
    for (objectives, method, _, evaluations), one in found.items():
        groups.setdefault((objectives, method, evaluations), []).append(float(getattr(one, figure)))
    return {key: (float(np.mean(values)), float(np.std(values))) for key, values in groups.items()}


def draw(found: Mapping[Key, Judgement]) -> Figure:
    """Share of the best possible hypervolume against evaluations, a panel for each set of objectives."""
    values = means(found, "share")
    sets = list(dict.fromkeys(objectives for objectives, *_ in values))
    figure = Figure(figsize=(5 * len(sets), 4.2), layout="constrained")
    axes = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, objectives in zip(axes, sets, strict=True):
        for method, hue in zip(METHODS, HUES, strict=True):
            marks = sorted(mark for o, m, mark in values if (o, m) == (objectives, method))
            if not marks:
                continue
            plot_mean_band(axis, marks, [values[objectives, method, mark] for mark in marks], hue, method)
        axis.set_xscale("log")
        axis.set_title(objectives, fontsize=10, color=INK, loc="left")
        axis.set_xlabel("evaluations, or true values", color=INK)
        style_axis(axis)
    axes[0].set_ylabel("true hypervolume, of the best possible", color=INK)
    axes[0].legend(frameon=False, fontsize=9.5, labelcolor=INK)
    return figure
