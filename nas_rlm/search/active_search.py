"""A search that measures where it pays: it learns a device while it looks for the networks that suit it.

First a few networks are measured that together tell most of the others. Then, in turns, the space is searched
with what has been learnt, and half of the measurements that are left go to networks that may be on the front.
The last ones confirm it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import moocore
import numpy as np
import torch
from torch import Tensor

from nas_rlm.data import synthetic
from nas_rlm.data.tables import Row
from nas_rlm.devices.sample_selection import choose, profiles_of
from nas_rlm.search.algorithms import Random
from nas_rlm.search.lookup import put_measured
from nas_rlm.search.loop import Log, Sampler, search
from nas_rlm.search.result import FAILED, MEASURED, Result
from nas_rlm.search.settings import QUANTILES, Settings
from nas_rlm.surrogates.features import CHAINS, Counts, usual_counts
from nas_rlm.surrogates.fitting import VIEWS, advisers, devices
from nas_rlm.surrogates.graph_surrogate import ADVISED, ALL, LATENCY, Expert
from nas_rlm.surrogates.predictive import LEAST, Belief
from nas_rlm.surrogates.transfer import Adviser
from nas_rlm.text import from_architectures
from search_spaces import SearchSpace

FIRST = 20  # networks, at most, that are measured before any is predicted
POOL = 500  # of so many at random
TURNS = 3  # of searching; in each, half of the measurements that are left are spent
STEP = 5  # measurements at a time that confirm the front in the end
FAILURES = 3  # networks with an operator that no running one has tell that it does not run
MARGIN = 0.1  # of the front, beyond it, within which networks count

Measure = Callable[[Sequence[str]], Sequence[Row]]  # from architectures to rows with what was measured


class Reader:
    """What a model tells of architectures and what is counted in them, each of them once.

    Args:
        model: what tells.
        space: of the architectures.
    """

    def __init__(self, model: Sampler, space: SearchSpace[Any]) -> None:
        self.model, self.space = model, space
        self._told: dict[tuple[str, str], np.ndarray] = {}
        self._counted: dict[str, Mapping[str, float]] = {}

    def told(self, names: Sequence[str], objectives: Sequence[str], quantiles: Sequence[float]) -> np.ndarray:
        """Quantiles of objectives, float64 [N, K, Q]."""
        key = _key(objectives, quantiles)
        new = [name for name in dict.fromkeys(names) if (key, name) not in self._told]
        if new:
            values = self.model.predict(self.space, new, objectives, quantiles)
            self._told.update(((key, name), of_one) for name, of_one in zip(new, values, strict=True))
        return np.stack([self._told[key, name] for name in names])

    def remember(
        self,
        names: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float],
        values: np.ndarray,
    ) -> None:
        """Take what the model said, [N, K, Q], as a log has it, to tell the same again."""
        key = _key(objectives, quantiles)
        for name, of_one in zip(names, values, strict=True):
            self._told.setdefault((key, name), of_one)

    def counted(self, names: Sequence[str]) -> list[Mapping[str, float]]:
        """What is counted in architectures."""
        new = [name for name in dict.fromkeys(names) if name not in self._counted]
        texts = from_architectures(self.space, [self.space.parse(name) for name in new])
        self._counted.update(zip(new, synthetic.counted(texts, CHAINS), strict=True))
        return [self._counted[name] for name in names]


def _key(objectives: Sequence[str], quantiles: Sequence[float]) -> str:
    return ",".join((*objectives, *map(str, quantiles)))


class Learner:
    """A predictor that learns a device from rows, and tells other numbers as a model does.

    Args:
        reader: of the space whose networks are measured.
        names: the numbers of the device, such as `latency/onnxruntime-cpu-1t`.
        experts: of each space; they advise, and what they know of a device of this name is advice as well,
            since it may be another machine.

    Attributes:
        measured: a row of each network that was to be measured.
        own: an expert on each number, once there are enough rows.
    """

    def __init__(self, reader: Reader, names: Sequence[str], experts: Mapping[str, Sequence[Expert]]) -> None:
        self.reader, self.names = reader, tuple(names)
        self.space = reader.space
        before = {name: f"{name} before" for name in self.names}
        self.others = [one.called(before) for one in experts.get(self.space.name, ())]
        self.advising = {**experts, self.space.name: self.others}
        self.own: dict[str, Expert] = {}
        self.measured: dict[str, Row] = {}
        self._features: dict[tuple[str, str], Tensor] = {}

    @property
    def is_ready(self) -> bool:
        """Whether it knows enough of the device to predict."""
        return bool(self.own)

    @property
    def run(self) -> list[Row]:
        """The rows of networks that have all numbers."""
        return [row for row in self.measured.values() if all(row.measured(name) for name in self.names)]

    def learn(self, rows: Sequence[Row]) -> None:
        """Learn what was measured; a row without a number is a network that the device cannot run.

        Which of the other devices advise is settled the first time.
        """
        self.measured |= {row.arch_str: row for row in rows}
        some = self.run
        if len(some) >= LEAST:
            self.own = {name: self._learnt(name, some) for name in self.names}

    def _learnt(self, name: str, rows: Sequence[Row]) -> Expert:
        """An expert on a number, from these rows."""
        counts = self.own[name].counts if name in self.own else self._counts(name, rows)
        features = self._read(counts, name, [row.arch_str for row in rows])
        values = np.array([[row.targets[name]] for row in rows])
        views = VIEWS if name.startswith(LATENCY) and counts.advisers else (ALL,)
        return Expert.fitted(counts, features, values, [name], views)

    def _counts(self, name: str, rows: Sequence[Row]) -> Counts:
        """What is counted, and who advises: for a latency other devices, for accuracy other spaces."""
        advice: tuple[Adviser, ...] = ()
        if name.startswith(LATENCY):
            advice = devices(self.space.name, rows, name, self.advising)
        elif name == ADVISED:
            advice = advisers(self.space.name, rows, self.advising)
        return replace(usual_counts(self.space.name), advisers=advice)

    def _read(self, counts: Counts, objective: str, names: Sequence[str]) -> Tensor:
        """Features of architectures, which are remembered, float64 [N, D]."""
        new = [name for name in dict.fromkeys(names) if (objective, name) not in self._features]
        found = counts.features(self.reader.counted(new))
        self._features.update(zip(((objective, name) for name in new), found, strict=True))
        return torch.stack([self._features[objective, name] for name in names])

    def status(self, names: Sequence[str]) -> dict[str, str]:
        """Which architectures were measured, and which fail: they did, or they have what only such have.

        What that is, layers or kinds of operators, is told by `FAILURES` networks that failed at least.
        """
        ran = {row.arch_str for row in self.run}
        failed = [name for name in self.measured if name not in ran]
        counts = Counter(part for name in failed for part in self._parts(name))
        suspect = {part for part, count in counts.items() if count >= FAILURES}
        if suspect:
            suspect = suspect.difference(*map(self._parts, ran))
        found = {}
        for name in names:
            if name in ran:
                found[name] = MEASURED
            elif name in self.measured or (suspect and suspect & self._parts(name)):
                found[name] = FAILED
        return found

    def _parts(self, name: str) -> set[str]:
        """The kinds of operators and of layers that an architecture has."""
        (counted,) = self.reader.counted([name])
        return {part for part, count in counted.items() if count and not {"-", "/"} & set(part)}

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] = QUANTILES,
    ) -> np.ndarray:
        """Quantiles of each objective, float64 [N, K, Q]; what was measured is all of its quantiles."""
        names = [str(a) for a in architectures]
        found = np.empty((len(names), len(objectives), len(quantiles)))
        told = self._of_model(objectives)
        if told:
            found[:, told] = self.reader.told(names, [objectives[k] for k in told], quantiles)
        for k, name in enumerate(objectives):
            if name in self.names:
                found[:, k] = self._belief(names, name).quantiles(quantiles)
                put_measured(found[:, k], names, name, self.measured)
        return found

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Joint draws of what the model tells, and by themselves of what was learnt: float64 [N, S, K]."""
        names = [str(a) for a in architectures]
        found = np.empty((len(names), num_samples, len(objectives)))
        told = self._of_model(objectives)
        if told:
            some = [objectives[k] for k in told]
            found[:, :, told] = self.reader.model.sample(space, architectures, some, num_samples, seed)
        rng = np.random.default_rng(seed)
        for k, name in enumerate(objectives):
            if name in self.names:
                held = self._belief(names, name)
                found[:, :, k] = np.stack([held.draw(rng) for _ in range(num_samples)], axis=1)
                put_measured(found[:, :, k], names, name, self.measured)
        return found

    def _belief(self, names: Sequence[str], objective: str) -> Belief:
        own = self.own[objective]
        return own.believe(self._read(own.counts, objective, names), objective)

    def _of_model(self, objectives: Sequence[str]) -> list[int]:
        """The positions of the numbers that the model tells."""
        return [k for k, name in enumerate(objectives) if name not in self.names]

    def remember(self, result: Result) -> None:
        """Take what the model said from a result, so that a log which was replayed tells the same again."""
        objectives = result.settings.predicted
        told = self._of_model(objectives)
        if told:
            some = [objectives[k] for k in told]
            quantiles, values = result.settings.quantiles, result.values[:, told]
            self.reader.remember(result.architectures, some, quantiles, values)


def explore(
    learner: Learner,
    settings: Settings,
    measure: Measure,
    log: Log | None = None,
    progress: bool = False,
) -> Result:
    """Search a space and measure `settings.budget` networks where it pays.

    Args:
        learner: what judges architectures of its space, and learns.
        settings: of each search; its budget is of measurements in all.
        measure: the device.
        log: receives all evaluations, in the end once more those of all architectures as they then are told.
        progress: show bars.

    Returns:
        All architectures that were evaluated, as they are told in the end.

    Raises:
        ValueError: too few networks run on the device.
    """
    left = settings.budget
    seen: dict[str, None] = {}
    first = min(FIRST, max(LEAST, left // 2))
    while left and not learner.is_ready and (some := first_of(learner, settings, first)[:left]):
        learner.learn(measure(some))
        left -= len(some)
    if not learner.is_ready:
        raise ValueError(
            f"{len(learner.run)} of {len(learner.measured)} networks could be measured on {settings.device}:"
            f" expected {LEAST} at least that have {' and '.join(learner.names)}"
        )
    for turn in range(TURNS):
        of_turn = replace(settings, seed=_seed(settings.seed, turn))
        found = search(learner.space, learner, of_turn, log, progress, learner.status)
        learner.remember(found)
        seen |= dict.fromkeys([*found.architectures, *learner.measured])
        result = as_told(learner, settings, list(seen))
        wanted = worth(result, learner.names, left // 2)
        if wanted:
            learner.learn(measure(wanted))
            left -= len(wanted)
    while True:
        result = as_told(learner, settings, list(seen))
        wanted = worth(result, learner.names, min(left, STEP), confirming=True)
        if not wanted:
            break
        learner.learn(measure(wanted))
        left -= len(wanted)
    if log and log.replay(result.architectures) is None:
        log.append(result.architectures, result.values, result.status)
    return result


def propose(learner: Learner, settings: Settings, count: int, progress: bool = False) -> list[str]:
    """Architectures to be measured next: those that may add most to the front of the measured ones.

    Args:
        learner: what it has measured is known; as long as that is too little to predict, those are proposed
            that together tell most of the others.
        settings: of the search for them.
        count: at most so many; fewer where no others may add anything.
        progress: show a bar.
    """
    if not learner.is_ready:
        return first_of(learner, settings, count)[:count]
    found = search(learner.space, learner, settings, None, progress, learner.status)
    seen = dict.fromkeys([*found.architectures, *learner.measured])
    return worth(as_told(learner, settings, list(seen)), learner.names, count)


def first_of(learner: Learner, settings: Settings, count: int) -> list[str]:
    """Networks that together tell most of the others, by what is known of other devices.

    Args:
        learner: knows too little of the device.
        settings: of the search.
        count: of networks, where none was measured yet.
    """
    space = learner.space
    if learner.measured:  # too few of the first ones run
        count = 2 * (LEAST - len(learner.run))
    pool = replace(settings, population=min(POOL, space.size or POOL))
    drawn = [str(a) for a in Random(space, pool).ask()]
    status = learner.status(drawn)
    some = [name for name in drawn if name not in status]
    if not some:
        return []
    profiles = profiles_of(learner.others, space.name, learner.reader.counted(some))
    count = min(count, len(np.unique(profiles, axis=0)))
    return [some[i] for i in choose(profiles, count, settings.seed)]


def _seed(seed: int, turn: int) -> int:
    """Another seed for each turn but the first."""
    return int(np.random.SeedSequence([seed, turn]).generate_state(1)[0]) if turn else seed


def as_told(learner: Learner, settings: Settings, names: Sequence[str]) -> Result:
    """Architectures as they are told now."""
    space = learner.space
    architectures = [space.parse(name) for name in names]
    values = learner.predict(space, architectures, settings.predicted, settings.quantiles)
    return Result(settings, list(names), values, learner.status(names))


def worth(result: Result, names: Sequence[str], count: int, confirming: bool = False) -> list[str]:
    """Architectures that should be measured next: those that may add most to the measured front.

    Each is taken for as good as its measured numbers may well be, so that of two equals the less certain one
    is measured, and one after the other is chosen by the hypervolume that it then adds.

    Args:
        result: all that is known now.
        names: the numbers that are measured.
        count: at most so many.
        confirming: only those that are on the front.

    Returns:
        Their names, the most worth first.
    """
    settings = result.settings
    hoped = result.values.copy()
    for name in names:
        k = settings.predicted.index(name)
        hoped[:, k] = hoped[:, k, -1:] if settings.is_maximised(name) else hoped[:, k, :1]
    costs = settings.costs(settings.medians(hoped))
    excess = settings.violations(hoped).clip(min=0).sum(1)
    new = np.array([name not in result.status for name in result.architectures], dtype=bool)
    known = costs[result.is_measured & result.feasible]
    able = np.flatnonzero(new & (excess <= 0))
    if confirming:
        able = np.intersect1d(able, result.front)
    elif not len(able):  # what misses the constraints least may meet them
        nearest = [i for i in np.argsort(excess, kind="stable") if new[i]]
        return [result.architectures[i] for i in nearest[: max(count, 0)]]
    if count < 1 or not len(able):
        return []
    if not confirming:  # of the others none adds anything
        able = able[moocore.is_nondominated(costs[able], keep_weakly=True)]
    compared = np.concatenate([known, costs[able]])
    ahead = compared[moocore.is_nondominated(compared)]
    low, high = ahead.min(0), ahead.max(0)
    reach = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    corner = high + MARGIN * reach
    chosen: list[int] = []
    while len(chosen) < min(count, len(able)):
        held = np.concatenate([known, costs[chosen]])
        left = [i for i in able.tolist() if i not in chosen]
        volumes = [moocore.hypervolume(np.concatenate([held, costs[i : i + 1]]), ref=corner) for i in left]
        if len(held) and max(volumes) <= moocore.hypervolume(held, ref=corner):
            break
        chosen.append(left[int(np.argmax(volumes))])
    return [result.architectures[i] for i in chosen]
