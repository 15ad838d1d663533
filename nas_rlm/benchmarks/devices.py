"""How well a new device is known from a few networks that were measured on it, and from other devices.

Source: the protocol of HELP (Lee et al. 2021) and NASFLAT (Akhauri and Abdelfattah 2024); here nothing is
known of the networks that are asked, on no device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from nas_rlm.benchmarks.baselines import flops
from nas_rlm.data import synthetic
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.data.splits import is_held_out
from nas_rlm.data.tables import Row, Table
from nas_rlm.devices.measurements import network_key
from nas_rlm.devices.sample_selection import select_samples, selection_features
from nas_rlm.metrics import kendall, spearman
from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH
from nas_rlm.surrogates.fitting import fit_graph_surrogates, zero_label_surrogate
from nas_rlm.surrogates.graph_surrogate import LATENCY_PREFIX, GraphSurrogate
from nas_rlm.utils.progress import progress_bar

POOL = 1000  # networks that can be measured
SELECTIONS = ("random", "chosen")

# The devices of HELP and NASFLAT; the largest batch is another one in each table.
SOURCES = (
    *("1080ti_1", "1080ti_32", "1080ti_{}", "silver_4114", "silver_4210r"),
    *("samsung_a50", "pixel3", "essential_ph_1", "samsung_s7"),
)
TARGETS = ("titan_rtx_{}", "gold_6226", "fpga", "pixel2", "raspi4", "eyeriss")
LARGEST = {"nasbench201": "256", "fbnet": "64"}


@dataclass(frozen=True)
class Score:
    """How a device is told from few samples.

    Args:
        spearman, kendall: over the networks that are asked.
        error: median of the absolute errors, relative to what was measured.
        flops: Spearman of multiply-accumulates over the same ones.
        best: Spearman of the known device that is most like it on the samples; of a cost where none is known.
        seconds: to learn it.
    """

    spearman: float
    kendall: float
    error: float
    flops: float
    best: float
    seconds: float


class Transfer:
    """Devices on which the networks of one table were measured, some of them known.

    Args:
        table: of one space.
        held: share of its networks that are asked, and are not among those that can be measured; with 0 all
            are asked that were not measured to learn from.
        seed: which ones.
    """

    def __init__(self, table: Table, held: float = 0.1, seed: int = 0) -> None:
        self.devices = [name for name in table.objectives if name.startswith(LATENCY_PREFIX)]
        self.rows = [row for row in table.rows if any(row.is_measured(name) for name in self.devices)]
        spaces = {row.space for row in self.rows}
        if len(spaces) != 1:
            raise ValueError(
                f"{table.name} has {len(self.rows)} rows of {', '.join(sorted(spaces)) or 'no space'} with a"
                " latency: expected rows of one space"
            )
        self.name, self.space = table.name, spaces.pop()
        is_held = [held > 0 and is_held_out(key, held, seed) for key in keys_of_rows(self.rows)]
        able = np.random.default_rng(0).permutation([i for i, h in enumerate(is_held) if not h])
        self.pool = sorted(able[:POOL].tolist())
        self.asked = [i for i, h in enumerate(is_held) if h or not held]

    def split(self) -> tuple[list[str], list[str]]:
        """The known and the new devices of HELP and NASFLAT.

        Raises:
            ValueError: the table does not have them.
        """
        largest = LARGEST.get(self.space, "1")
        parts = [[f"{LATENCY_PREFIX}{name.format(largest)}" for name in part] for part in (SOURCES, TARGETS)]
        for name in (*parts[0], *parts[1]):
            if name not in self.devices:
                raise ValueError(f"{self.name} has no {name}: that split is of HW-NAS-Bench and HELP")
        return parts[0], parts[1]

    @cached_property
    def counted(self) -> dict[int, Mapping[str, float]]:
        """What is counted in those that can be measured or are asked, by position."""
        some = sorted({*self.pool, *self.asked})
        found = synthetic.graph_features_of_texts(texts_of_rows([self.rows[i] for i in some]), MAX_CHAIN_LENGTH)
        return dict(zip(some, found, strict=True))

    def scores(
        self,
        surrogates: Mapping[str, Sequence[GraphSurrogate]],
        targets: Sequence[str],
        samples: int,
        seeds: Sequence[int],
        done: Collection[tuple[str, str, int]] = (),
        progress: bool = False,
    ) -> Iterator[tuple[str, str, int, Score]]:
        """Learn each new device from few networks, drawn at random or chosen.

        Args:
            surrogates: on devices, of this space or of others.
            targets: new devices; what surrogates of this space know of a target itself is not used.
            samples: networks that are measured on it; with 0 only surrogates of other spaces tell of it.
            seeds: of the draws and choices.
            done: targets, selections and seeds that are left out.
            progress: show a bar.

        Returns:
            As each is done: the target, how samples were selected, the seed and the score.

        Raises:
            ValueError: too few networks were measured on a target, or without samples nobody knows it.
        """
        left = [
            (target, selection, seed)
            for target in targets
            for selection in (SELECTIONS if samples else SELECTIONS[:1])
            for seed in seeds
            if (target, selection, seed) not in done
        ]
        for target in targets:
            count = sum(self.rows[i].is_measured(target) for i in self.pool)
            if count < samples + 2:
                raise ValueError(f"{count} networks have {target}: expected {samples + 2} at least")
        bar = progress_bar(left, unit="fit", disable=not progress)
        for target, group in groupby(bar, lambda one: one[0]):
            own = [one for e in surrogates.get(self.space, ()) if (one := e.without([target]))]
            others = {**surrogates, self.space: own}
            able = [i for i in self.pool if self.rows[i].is_measured(target)]
            profiles = selection_features(own, self.space, [self.counted[i] for i in able])
            for _, selection, seed in group:
                drawn = np.random.default_rng([seed, samples]).permutation(len(able))[:samples].tolist()
                some = select_samples(profiles, samples, seed) if selection == "chosen" else drawn
                yield target, selection, seed, self._score(others, [able[k] for k in some], target)

    def _score(self, others: Mapping[str, Sequence[GraphSurrogate]], measured: Sequence[int], target: str) -> Score:
        rows = [self.rows[i].select([target]) for i in measured]
        asked = [i for i in self.asked if i not in measured and self.rows[i].is_measured(target)]
        start = time.perf_counter()
        own = (
            fit_graph_surrogates(rows, [target], others)[self.space][0]
            if rows
            else zero_label_surrogate(self.space, others, target)
        )
        seconds = time.perf_counter() - start
        features = own.graph_features.transform([self.counted[i] for i in asked])
        found, true = own.predict(features, target).median, _values(self.rows, asked, target)
        advice = own.graph_features.transform([self.counted[i] for i in measured])[:, len(own.graph_features.names) :]
        alike = [spearman(told.numpy(), _values(self.rows, measured, target)) for told in advice.T if rows]
        first = len(own.graph_features.names)  # of the advisers; before it are costs
        nearest = first + int(np.argmax(alike)) if alike else 0 if rows else first
        return Score(
            spearman(found, true),
            kendall(found, true),
            float(np.median(np.abs(found / true - 1))),
            spearman(flops([self.rows[i] for i in asked]), true),
            spearman(features[:, nearest].numpy(), true),
            seconds,
        )


def agreement(one: Table, other: Table, target: str) -> tuple[int, float, float]:
    """How well two measurements of the same networks agree, which no prediction can better.

    Returns:
        So many networks, Spearman, and the median of the absolute differences relative to the first one.
    """
    first = {network_key(row): row for row in one.where_measured(target).rows}
    again = [row for row in other.where_measured(target).rows if network_key(row) in first]
    a = np.array([first[network_key(row)].targets[target] for row in again])
    b = np.array([row.targets[target] for row in again])
    return len(a), spearman(a, b), float(np.median(np.abs(b / a - 1))) if len(a) else math.nan


def _values(rows: Sequence[Row], some: Sequence[int], target: str) -> np.ndarray:
    return np.array([rows[i].targets[target] for i in some])


def summary(
    scores: Mapping[tuple[str, str, int], Score], targets: Sequence[str], seeds: Sequence[int]
) -> str:
    """Figures of each target and their mean, by how samples were selected: mean and deviation over seeds."""
    selections = [how for how in SELECTIONS if any(selection == how for _, selection, _ in scores)]
    kinds = [(selection, figure) for selection in selections for figure in ("best", "spearman", "error")]
    names = {"best": "best other", "spearman": "learnt", "error": "error"}
    heads = "".join(f"{s + ': ' + names[figure]:>20}" for s, figure in kinds)
    lines = [f"{'Spearman, relative error':<30}{'FLOPs':>8}{heads}"]
    for name, some in (*((t, [t]) for t in targets), (f"mean of {len(targets)}", targets)):
        costs = np.mean([scores[t, SELECTIONS[0], seeds[0]].flops for t in some])
        told = ""
        for selection, figure in kinds:
            of_seeds = [np.mean([getattr(scores[t, selection, s], figure) for t in some]) for s in seeds]
            told += f"{np.mean(of_seeds):>13.3f} ±{np.std(of_seeds):.3f}"
        lines.append(f"{name:<30}{costs:>8.3f}{told}")
    seconds = np.median([score.seconds for score in scores.values()])
    return "\n".join([*lines, f"median time to learn a device: {seconds:.1f} seconds"])
