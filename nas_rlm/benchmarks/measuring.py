"""What measurements are select_candidates in a search: three ways to spend them, judged by a table that has them all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

import search_spaces
from nas_rlm.data.tables import Row, Table
from nas_rlm.plotting.style import HUES, INK, plot_mean_band, style_axis
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition import initial_design
from nas_rlm.search.active_search import MAX_INITIAL_MEASUREMENTS, active_search, current_result
from nas_rlm.search.algorithms import RandomSearch
from nas_rlm.search.lookup import TablePredictor, TableSpace
from nas_rlm.search.loop import search
from nas_rlm.search.online_surrogate import CachedPredictor, OnlineSurrogate
from nas_rlm.search.pareto import nondominated
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.graph_surrogate import GraphSurrogate
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.utils.progress import progress_bar

ACCURACY, WORST = "accuracy", 80.0  # below it no network is of use
POLICIES = ("where it pays", "front once", "random")


@dataclass(frozen=True)
class Judgement:
    """What a search found on a device of which nothing was known before.

    Args:
        measured: networks that were measured.
        front: networks that it ends with.
        confirmed: how many of them were measured.
        share: hypervolume of their true values, relative to that of the whole table.
        share_measured: the same of the measured ones that no other measured one beats.
    """

    measured: int
    front: int
    confirmed: int
    share: float
    share_measured: float


class Lookup:
    """A table as a device.

    Args:
        reader: of a space that it has.
        table: measurements of all its networks.
        target: the latency.
        surrogates: of the space, on other devices.
    """

    def __init__(self, reader: CachedPredictor, table: Table, target: str, surrogates: Sequence[GraphSurrogate]) -> None:
        self.reader, self.target = reader, target
        self.surrogates = {reader.space.name: surrogates}
        self.objectives = (ACCURACY, target)
        self.truth = TablePredictor(table, self.objectives)
        self.corner = (WORST, max(latency for _, latency in self.truth.values.values()))
        if not self.truth.max_hypervolume(self.objectives, self.corner):
            raise ValueError(f"{table.name} has no network with an {ACCURACY} above {WORST:g} and {target}")

    def measure(self, names: Sequence[str]) -> list[Row]:
        """Rows with what the table has of networks."""
        return [
            Row(self.reader.space.name, name, {self.target: self.truth.values[name][1]}) for name in names
        ]

    def judge(self, policy: str, budget: int, seed: int, population: int, generations: int) -> Judgement:
        """Search once.

        Args:
            policy: one of `POLICIES`.
            budget: of measurements.
            seed: of the search.
            population: see `SearchSettings`.
            generations: of each search.
        """
        device = self.target.split("/", 1)[1]
        settings = SearchSettings(
            *(self.reader.space.name, self.objectives, (), "nsga2", population, generations, seed),
            device=device,
            budget=budget,
        )
        learner = OnlineSurrogate(self.reader, [self.target], self.surrogates)
        if policy == "where it pays":
            result = active_search(learner, settings, self.measure)
        else:
            telling = min(MAX_INITIAL_MEASUREMENTS, max(MIN_LABELS, budget // 2))
            at_random = policy == "random"
            first = self._at_random(settings) if at_random else initial_design(learner, settings, telling)
            learner.update(self.measure(first))
            found = search(self.reader.space, learner, settings)
            result = current_result(learner, settings, [*dict.fromkeys([*found.architectures, *first])])
            if policy == "front once":
                learner.update(self.measure(_spread(result, budget - len(first))))
                result = current_result(learner, settings, result.architectures)
        return self._judged(result)

    def _at_random(self, settings: SearchSettings) -> list[str]:
        return [
            str(a) for a in RandomSearch(self.reader.space, replace(settings, population=settings.budget)).ask()
        ]

    def _judged(self, result: SearchResult) -> Judgement:
        front = [result.architectures[i] for i in result.front]
        some = np.flatnonzero(result.is_measured)
        ahead = np.flatnonzero(nondominated(result.medians[some], self.objectives))
        own = [result.architectures[some[k]] for k in ahead]
        confirmed = int(result.is_measured[result.front].sum())
        shares = [self.truth.relative_hypervolume(names, self.objectives, self.corner) for names in (front, own)]
        return Judgement(len(some), len(front), confirmed, *shares)


def _spread(result: SearchResult, most: int) -> list[str]:
    """Architectures of the front that were not measured, evenly along it where they are too many."""
    new = [name for i in result.front if (name := result.architectures[i]) not in result.status]
    positions = np.linspace(0, len(new) - 1, min(most, len(new))).round().astype(int)
    return [new[i] for i in np.unique(positions)]


def judged(
    rlm: RLM,
    table: Table,
    targets: Sequence[str],
    budgets: Sequence[int],
    seeds: Sequence[int],
    population: int = 50,
    generations: int = 20,
    done: Collection[tuple[str, str, int, int]] = (),
    progress: bool = False,
) -> Iterator[tuple[str, str, int, int, Judgement]]:
    """Search for accuracy and each latency, of which the model's surrogates are not asked, with each policy.

    Args:
        rlm: the model.
        table: of a space's networks, of which those count that have all targets.
        targets: latencies.
        budgets: of measurements.
        seeds: of the searches.
        population: see `SearchSettings`.
        generations: of each search.
        done: targets, policies, budgets and seeds that are left out.
        progress: show a bar.

    Returns:
        As each is done: target, policy, budget, seed and the judgement.

    Raises:
        ValueError: the table has no two networks with accuracy and all latencies.
    """
    needed = (ACCURACY, *targets)
    rows = [row for row in table.rows if all(row.is_measured(name) for name in needed)]
    if len(rows) < 2:
        raise ValueError(
            f"{table.name} has no two rows with {', '.join(needed)}: expected a space of which all are known,"
            " such as nasbench201"
        )
    space = search_spaces.get(rows[0].space)
    reader = CachedPredictor(rlm, TableSpace(space, [row.arch_str for row in rows]))
    held = Table(table.name, rows)
    known = graph_surrogates(rlm.surrogates).get(space.name, ())
    left = [
        key
        for target in targets
        for budget in budgets
        for seed in seeds
        for policy in POLICIES
        if (key := (target, policy, budget, seed)) not in done
    ]
    lookups: dict[str, Lookup] = {}
    for target, policy, budget, seed in progress_bar(left, unit="search", disable=not progress):
        if target not in lookups:
            others = [one for expert in known if (one := expert.without([target]))]
            lookups[target] = Lookup(reader, held, target, others)
        found = lookups[target].judge(policy, budget, seed, population, generations)
        yield target, policy, budget, seed, found


def means(
    found: Mapping[tuple[str, str, int, int], Judgement], figure: str
) -> dict[tuple[str, int], tuple[float, float]]:
    """Of each policy and budget the mean over devices and seeds, and how its means over devices deviate."""
    groups: dict[tuple[str, int], dict[int, list[float]]] = {}
    for (_, policy, budget, seed), one in found.items():
        groups.setdefault((policy, budget), {}).setdefault(seed, []).append(float(getattr(one, figure)))
    each = {key: [float(np.mean(of_seed)) for of_seed in seeds.values()] for key, seeds in groups.items()}
    return {key: (float(np.mean(values)), float(np.std(values))) for key, values in each.items()}


def draw(found: Mapping[tuple[str, str, int, int], Judgement]) -> Figure:
    """True hypervolume against measurements, for each policy: of the whole front, and of measured points."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = {"share": "front, measured or predicted", "share_measured": "measured networks alone"}
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        values = means(found, name)
        for policy, hue in zip(POLICIES, HUES, strict=False):
            budgets = sorted(budget for p, budget in values if p == policy)
            plot_mean_band(axis, budgets, [values[policy, budget] for budget in budgets], hue, policy)
        axis.set_title(title, fontsize=11, color=INK, loc="left")
        axis.set_xlabel("measurements", color=INK)
        style_axis(axis)
    axes[0].set_ylabel("true hypervolume, of the best possible", color=INK)
    axes[0].legend(frameon=False, fontsize=9.5, labelcolor=INK)
    return figure
