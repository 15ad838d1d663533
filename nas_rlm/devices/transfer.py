"""How well a new device is known from a few networks that were measured on it, and from other devices.

Source: the protocol of HELP (Lee et al. 2021) and NASFLAT (Akhauri and Abdelfattah 2024); here nothing is
known of the networks that are asked, on no device.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from torch import Tensor
from tqdm import tqdm

from nas_rlm.baselines import flops
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import Row, Table
from nas_rlm.devices.choice import choose, profiles_of
from nas_rlm.expert import LATENCY, Expert, experts_of
from nas_rlm.features import CHAINS
from nas_rlm.metrics import kendall, spearman

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
        spearman, kendall: over the held-out networks.
        flops: Spearman of multiply-accumulates over the same ones.
        best: Spearman of the known device that is most like it on the samples.
        seconds: to learn it.
    """

    spearman: float
    kendall: float
    flops: float
    best: float
    seconds: float


class Transfer:
    """Devices of one table, some of them known.

    Args:
        table: of one space, in which each network was measured on every device.
        held: share of its networks that are asked.
        seed: which ones.
    """

    def __init__(self, table: Table, held: float = 0.1, seed: int = 0) -> None:
        devices = [name for name in table.objectives if name.startswith(LATENCY)]
        rows = [row for row in table.rows if devices and all(row.measured(name) for name in devices)]
        spaces = {row.space for row in rows}
        if len(spaces) != 1 or len(devices) < 2:
            raise ValueError(
                f"{table.name} has {len(rows)} rows of {', '.join(sorted(spaces)) or 'no space'} measured on"
                f" each of {len(devices)} devices: expected one space, and two devices at least"
            )
        self.space, self.devices = spaces.pop(), devices
        self.known, self.asked = tables.split(Table(table.name, rows), held, seed)

    def split(self) -> tuple[list[str], list[str]]:
        """The known and the new devices of HELP and NASFLAT.

        Raises:
            ValueError: the table does not have them.
        """
        largest = LARGEST.get(self.space, "1")
        parts = [[f"{LATENCY}{name.format(largest)}" for name in part] for part in (SOURCES, TARGETS)]
        for name in (*parts[0], *parts[1]):
            if name not in self.devices:
                raise ValueError(f"{self.known.name} has no {name}: that split is of HW-NAS-Bench and HELP")
        return parts[0], parts[1]

    @cached_property
    def counted(self) -> list[Mapping[str, float]]:
        """What is counted in those that are asked."""
        return [*synthetic.counted(tables.texts(self.asked.rows), CHAINS)]

    @cached_property
    def pool(self) -> Table:
        """Those that can be measured."""
        return self.known.sampled(POOL)

    @cached_property
    def pool_counted(self) -> list[Mapping[str, float]]:
        """What is counted in these."""
        return [*synthetic.counted(tables.texts(self.pool.rows), CHAINS)]

    @cached_property
    def costs(self) -> np.ndarray:
        """Multiply-accumulates of those that are asked."""
        return flops(self.asked.rows)

    def scores(
        self,
        experts: Sequence[Expert],
        targets: Sequence[str],
        samples: int,
        seeds: Sequence[int],
        done: Collection[tuple[str, str, int]] = (),
        progress: bool = False,
    ) -> Iterator[tuple[str, str, int, Score]]:
        """Learn each new device from few networks, drawn at random or chosen.

        Args:
            experts: on other devices.
            targets: new devices; what experts know of a target itself is not used.
            samples: networks that are measured on it.
            seeds: of the draws and choices.
            done: targets, selections and seeds that are left out.
            progress: show a bar.

        Returns:
            As each is done: the target, how samples were selected, the seed and the score.
        """
        left = [
            (target, selection, seed)
            for target in targets
            for selection in SELECTIONS
            for seed in seeds
            if (target, selection, seed) not in done
        ]
        bar = tqdm(left, unit="fit", disable=not progress)
        for target, group in groupby(bar, lambda one: one[0]):
            others = [one for e in experts if (one := e.without([target]))]
            profiles = profiles_of(others, self.space, self.pool_counted)
            for _, selection, seed in group:
                if selection == "chosen":
                    some = choose(profiles, samples, seed)
                else:
                    some = (
                        np.random.default_rng([seed, samples]).permutation(len(profiles))[:samples].tolist()
                    )
                rows = [_alone(self.pool.rows[i], target) for i in some]
                yield target, selection, seed, self._score(others, rows, target)

    def _score(self, others: Sequence[Expert], rows: Sequence[Row], target: str) -> Score:
        start = time.perf_counter()
        (own,) = experts_of(rows, [target], {self.space: others})[self.space]
        seconds = time.perf_counter() - start
        features = own.counts.features(self.counted)
        found, true = own.believe(features, target).median, self.asked.column(target)
        best = _best(own, features, rows, target)
        return Score(
            spearman(found, true),
            kendall(found, true),
            spearman(self.costs, true),
            spearman(best.numpy(), true),
            seconds,
        )


def _alone(row: Row, target: str) -> Row:
    return Row(row.space, row.arch_str, {target: row.targets[target]}, row.input)


def _best(own: Expert, features: Tensor, rows: Sequence[Row], target: str) -> Tensor:
    """What the adviser says of those asked whose device is most like the target on the measured rows."""
    count = len(own.counts.advisers)
    measured = own.counts.read(tables.texts(rows))[:, -count:]
    true = np.array([row.targets[target] for row in rows])
    alike = [spearman(told.numpy(), true) for told in measured.T]
    return features[:, -count:][:, int(np.argmax(alike))]


def summary(
    scores: Mapping[tuple[str, str, int], Score], targets: Sequence[str], seeds: Sequence[int]
) -> str:
    """Spearman of each target and their mean, by how samples were selected: mean and deviation over seeds."""
    kinds = [(selection, figure) for selection in SELECTIONS for figure in ("best", "spearman")]
    heads = [f"{s}: {'best other' if figure == 'best' else 'learnt'}" for s, figure in kinds]
    lines = [f"{'Spearman':<30}{'FLOPs':>8}" + "".join(f"{head:>20}" for head in heads)]
    for name, some in (*((t, [t]) for t in targets), (f"mean of {len(targets)}", targets)):
        costs = np.mean([scores[t, SELECTIONS[0], seeds[0]].flops for t in some])
        told = ""
        for selection, figure in kinds:
            of_seeds = [np.mean([getattr(scores[t, selection, s], figure) for t in some]) for s in seeds]
            told += f"{np.mean(of_seeds):>13.3f} ±{np.std(of_seeds):.3f}"
        lines.append(f"{name:<30}{costs:>8.3f}{told}")
    seconds = np.median([score.seconds for score in scores.values()])
    return "\n".join([*lines, f"median time to learn a device: {seconds:.1f} seconds"])
