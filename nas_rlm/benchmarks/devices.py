"""How well a new device is predicted from a few networks measured on it, and from other devices.

Source: the protocol of HELP (Lee et al. 2021) and NASFLAT (Akhauri and Abdelfattah 2024); here the test
networks are not measured on any device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.benchmarks.baselines import flops
from nas_rlm.benchmarks.baselines.device_samples import (
    bayesian_ridge,
    components,
    live_counts,
    one_hot_genes,
)
from nas_rlm.benchmarks.baselines.layer_sums import fit_layer_sums
from nas_rlm.data import synthetic
from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.data.splits import is_held_out
from nas_rlm.data.tables import Row, Table
from nas_rlm.devices.measurements import repeated_measurements
from nas_rlm.devices.sample_selection import select_samples, selection_features
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.calibration import INTERVAL
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, graph_features_of_space, random_raw_features
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.zero_label import AnyZeroLabelSurrogate, zero_label_surrogate
from nas_rlm.utils.progress import progress_bar
from search_spaces.wording import counted

POOL_SIZE = 1000  # networks from which samples are drawn
MAX_KNOWN_LABELS = 300  # of each device of a table that is known by its other devices
SELECTIONS = ("random", "chosen")  # at random, or by `nas_rlm.devices.sample_selection`

# The devices of HELP and NASFLAT; the largest batch size differs between tables.
SOURCES = (
    *("1080ti_1", "1080ti_32", "1080ti_{}", "silver_4114", "silver_4210r"),
    *("samsung_a50", "pixel3", "essential_ph_1", "samsung_s7"),
)
TARGETS = ("titan_rtx_{}", "gold_6226", "fpga", "pixel2", "raspi4", "eyeriss")
LARGEST_BATCH = {"nasbench201": "256", "fbnet": "64"}

Key = tuple[str, str, int]
KEY_NAMES = ("target", "selection", "seed")


@dataclass(frozen=True)
class DeviceResult:
    """How well a device is predicted from a few samples.

    Args:
        spearman: Spearman correlation of predictions and measurements of the test networks.
        kendall: Kendall's tau of them.
        mape: mean absolute error, relative to the measurement.
        within_10_percent: share of the predictions within 10 % of the measurement.
        coverage: share of the measurements between the quantiles at 0.1 and 0.9.
        spearman_flops: Spearman correlation of multiply-accumulates and measurements.
        seconds: time to fit the surrogate.
        spearman_layers: Spearman correlation of non-negative least squares on the costs of the layers, which
            like the following baselines learns from the same samples; 0 without samples.
        mape_layers: mean absolute relative error of that baseline; 0 without samples.
        spearman_nearest: Spearman correlation of the predictions of the known device that is most similar on
            the samples; of multiply-accumulates if no device is known; 0 without samples.
        spearman_counts: of a Bayesian ridge on the counts of live operators.
        spearman_counts_known: of the same with principal components of all known devices.
        spearman_genes: of a Bayesian ridge on the one-hot genome; 0 for networks without a space.
        kendall_costs: Kendall's tau of multiply-accumulates or parameters, whichever is higher.
    """

    spearman: float
    kendall: float
    mape: float
    within_10_percent: float
    coverage: float
    spearman_flops: float
    seconds: float
    spearman_layers: float = 0.0
    mape_layers: float = 0.0
    spearman_nearest: float = 0.0
    spearman_counts: float = 0.0
    spearman_counts_known: float = 0.0
    spearman_genes: float = 0.0
    kendall_costs: float = 0.0


class DeviceTransfer:
    """A table of networks that were measured on several devices, split for the prediction of a new device.

    Args:
        table: rows of one space.
        test_share: share of the networks that are test networks, from which no samples are drawn; with 0 all
            networks but the samples are test networks.
        seed: seed of the split.

    Attributes:
        devices: names of the latencies of the table.
        rows: rows with a latency.
        pool_indices: indices of the networks from which samples are drawn.
        test_indices: indices of the test networks.

    Raises:
        ValueError: the table does not have rows of exactly one space with a latency.
    """

    def __init__(self, table: Table, test_share: float = 0.1, seed: int = 0) -> None:
        self.devices = [name for name in table.objectives if name.startswith(LATENCY_PREFIX)]
        self.rows = [row for row in table.rows if any(row.is_measured(name) for name in self.devices)]
        self._known_predictions: dict[str, np.ndarray] = {}
        spaces = {row.space for row in self.rows}
        if len(spaces) != 1:
            raise ValueError(
                f"{table.name} has {counted(len(self.rows), 'row')} of"
                f" {', '.join(sorted(spaces)) or 'no space'} with a"
                " latency: expected rows of one space"
            )
        self.name, self.space = table.name, spaces.pop()
        is_test = [test_share > 0 and is_held_out(key, test_share, seed) for key in keys_of_rows(self.rows)]
        candidates = np.random.default_rng(0).permutation([i for i, test in enumerate(is_test) if not test])
        self.pool_indices = sorted(candidates[:POOL_SIZE].tolist())
        self.test_indices = [i for i, test in enumerate(is_test) if test or not test_share]

    def help_devices(self) -> tuple[list[str], list[str]]:
        """Return the latencies of the known and of the new devices of HELP and NASFLAT.

        Raises:
            ValueError: the table does not have one of them.
        """
        largest = LARGEST_BATCH.get(self.space, "1")
        sources, targets = (
            [f"{LATENCY_PREFIX}{name.format(largest)}" for name in names] for names in (SOURCES, TARGETS)
        )
        for name in (*sources, *targets):
            if name not in self.devices:
                raise ValueError(f"{self.name} has no {name}: that split is of HW-NAS-Bench and HELP")
        return sources, targets

    def fit_known_devices(self) -> list[GraphSurrogate]:
        """Fit a surrogate of all devices of the table to networks of the pool; none without a space."""
        if self.space not in search_spaces.names():
            return []
        rows = [self.rows[i] for i in self.pool_indices[:MAX_KNOWN_LABELS]]
        return [fit_graph_surrogate(graph_features_of_space(self.space), rows, self.devices)]

    @cached_property
    def raw_features(self) -> dict[int, Mapping[str, float]]:
        """Graph features of the pool and the test networks, by index."""
        indices = sorted({*self.pool_indices, *self.test_indices})
        texts = texts_of_rows([self.rows[i] for i in indices])
        features = synthetic.graph_features_of_texts(texts, MAX_CHAIN_LENGTH, with_layers=True)
        return dict(zip(indices, features, strict=True))

    def run(
        self,
        surrogates: Mapping[str, Sequence[GraphSurrogate]],
        targets: Sequence[str],
        num_samples: int,
        seeds: Sequence[int],
        finished: Collection[Key] = (),
        progress: bool = False,
    ) -> Iterator[tuple[Key, DeviceResult]]:
        """Predict each new device from a few samples, drawn at random or chosen.

        Args:
            surrogates: surrogates of known devices, by space: of this space or of others.
            targets: latencies of the new devices; surrogates of this space do not use what they know of them.
            num_samples: networks measured on the new device; with 0 only costs predict.
            seeds: seeds of the selections.
            finished: keys to skip.
            progress: show a progress bar.

        Yields:
            Target, selection and seed, and the result, as soon as each is available.

        Raises:
            ValueError: too few networks were measured on a target, or there are no samples and no surrogate
                of another space predicts it.
        """
        remaining = [
            (target, selection, seed)
            for target in targets
            for selection in (SELECTIONS if num_samples else SELECTIONS[:1])
            for seed in seeds
            if (target, selection, seed) not in finished
        ]
        for target in targets:
            count = sum(self.rows[i].is_measured(target) for i in self.pool_indices)
            if count < num_samples + 2:
                raise ValueError(
                    f"{counted(count, 'network has', 'networks have')} {target}: expected {num_samples + 2}"
                    " at least"
                )
        bar = progress_bar(remaining, "devices", unit="fit", disable=not progress)
        for target, keys in groupby(bar, lambda key: key[0]):
            own = [s for e in surrogates.get(self.space, ()) if (s := e.without([target]))]
            sources = {**surrogates, self.space: own}
            candidates = [i for i in self.pool_indices if self.rows[i].is_measured(target)]
            features = selection_features(own, [self.raw_features[i] for i in candidates])
            for _, selection, seed in keys:
                if selection == "chosen":
                    selected = select_samples(features, num_samples, seed)
                else:
                    order = np.random.default_rng([seed, num_samples]).permutation(len(candidates))
                    selected = order[:num_samples].tolist()
                samples = [candidates[k] for k in selected]
                yield (target, selection, seed), self._evaluate(sources, samples, target)

    def _evaluate(
        self, sources: Mapping[str, Sequence[GraphSurrogate]], samples: Sequence[int], target: str
    ) -> DeviceResult:
        """Fit a surrogate of the target to the samples, and evaluate it on the test networks."""
        rows = [self.rows[i].select([target]) for i in samples]
        test = [i for i in self.test_indices if i not in samples and self.rows[i].is_measured(target)]
        start = time.perf_counter()
        surrogate = (
            fit_latency_surrogate(self.space, rows, target, sources)
            if rows
            else self._zero_label_surrogate(sources, target)
        )
        seconds = time.perf_counter() - start
        graph_features = surrogate.graph_features
        features = graph_features.transform([self.raw_features[i] for i in test])
        distribution, true = surrogate.predict(features, target), _values(self.rows, test, target)
        errors = np.abs(distribution.median / true - 1)
        low, high = distribution.quantiles(INTERVAL).T
        result = DeviceResult(
            spearman=spearman(distribution.median, true),
            kendall=kendall(distribution.median, true),
            mape=float(errors.mean()),
            within_10_percent=float((errors <= 0.1).mean()),
            coverage=coverage(low, high, true),
            spearman_flops=spearman(flops([self.rows[i] for i in test]), true),
            seconds=seconds,
            kendall_costs=max(
                kendall(np.array([self.raw_features[i][cost] for i in test]), true)
                for cost in ("flops", "params")
            ),
        )
        if not rows:
            return result
        return replace(result, **self._baselines(sources, samples, test, target))

    def _baselines(
        self,
        sources: Mapping[str, Sequence[GraphSurrogate]],
        samples: Sequence[int],
        test: Sequence[int],
        target: str,
    ) -> dict[str, float]:
        """Return the fields of `DeviceResult` for methods that learn from the same samples."""
        indices = [*samples, *test]
        raw_features = [self.raw_features[i] for i in indices]
        values, true = _values(self.rows, samples, target), _values(self.rows, test, target)
        count, train = len(samples), np.arange(len(samples))
        by_layers = fit_layer_sums(raw_features[:count], values, raw_features[count:])
        counts, genes = live_counts(raw_features), one_hot_genes([self.rows[i] for i in indices])
        known = [values for name, values in self._known(sources).items() if name != target]
        if known:
            position = {i: k for k, i in enumerate(self.raw_features)}
            predictions = np.stack(known, 1)[[position[i] for i in indices]]
            similarities = [spearman(column, values) for column in predictions[:count].T]
            nearest = predictions[:, int(np.argmax(similarities))]
            with_known = np.concatenate([counts, components(predictions)], axis=1)
        else:
            nearest, with_known = flops([self.rows[i] for i in indices]), counts
        ridges = {"counts": counts, "counts_known": with_known, "genes": genes}
        found = {
            f"spearman_{name}": spearman(bayesian_ridge(features, train, values)[count:], true)
            for name, features in ridges.items()
        }
        return found | {
            "spearman_layers": spearman(by_layers, true),
            "mape_layers": float(np.abs(by_layers / true - 1).mean()),
            "spearman_nearest": spearman(nearest[count:], true),
        }

    def _known(self, sources: Mapping[str, Sequence[GraphSurrogate]]) -> dict[str, np.ndarray]:
        """Return what surrogates of this space predict for each known device, for all `raw_features`."""
        predictions: dict[str, np.ndarray] = {}
        for surrogate in sources.get(self.space, ()):
            names = [name for name in surrogate.objectives if name.startswith(LATENCY_PREFIX)]
            new = [name for name in names if name not in self._known_predictions]
            if new:
                features = surrogate.graph_features.transform([*self.raw_features.values()])
                found = {name: surrogate.predict(features, name).mean for name in new}
                self._known_predictions.update(found)
            predictions |= {name: self._known_predictions[name] for name in names}
        return predictions

    def _zero_label_surrogate(
        self, sources: Mapping[str, Sequence[GraphSurrogate]], target: str
    ) -> AnyZeroLabelSurrogate:
        """Return a surrogate of the target without samples."""
        raw_features = random_raw_features(search_spaces.get(self.space), with_layers=True)
        surrogate = zero_label_surrogate(self.space, raw_features, sources, target)
        if surrogate is None:
            raise ValueError(f"no surrogate of another space can predict {target}: expected samples")
        return surrogate


def repeatability(first: Table, second: Table, target: str) -> tuple[int, float, float]:
    """Return how well two measurements of the same networks agree, which no prediction can exceed.

    Args:
        first: the first measurements.
        second: measurements of some of the same networks.
        target: the latency.

    Returns:
        The number of networks, the Spearman correlation, and the median absolute difference relative to the
        first measurement; NaN without networks.
    """
    a, b = repeated_measurements(first, second, target)
    return len(a), spearman(a, b), float(np.median(np.abs(b / a - 1))) if len(a) else math.nan


def _values(rows: Sequence[Row], indices: Sequence[int], target: str) -> np.ndarray:
    """Measured values of some rows."""
    return np.array([rows[i].targets[target] for i in indices])


def _has(results: Mapping[Key, DeviceResult], field: str) -> bool:
    """Return whether a result has a field that is not 0."""
    return any(getattr(result, field) for result in results.values())


def format_results(results: Mapping[Key, DeviceResult], targets: Sequence[str], seeds: Sequence[int]) -> str:
    """Return a text table with a line for each target, and their mean, minimum and maximum.

    Each number is the mean and the standard deviation over seeds.

    Args:
        results: see `DeviceTransfer.run`.
        targets: the targets to show.
        seeds: the seeds to show.
    """
    selections = [s for s in SELECTIONS if any(selection == s for _, selection, _ in results)]
    baselines = {
        **{"spearman_nearest": "nearest", "spearman_layers": "layers", "spearman_counts": "operators"},
        **{"spearman_counts_known": "op.+devices", "spearman_genes": "genes"},
    }
    of_samples = {name: title for name, title in baselines.items() if _has(results, name)}
    fields = {
        **of_samples,
        **{"spearman": "predicted", "kendall_costs": "costs, Kendall", "kendall": "Kendall", "mape": "MAPE"},
        **{"within_10_percent": "within 10 %", "coverage": "coverage"},
    }
    columns = [(selection, field) for selection in selections for field in fields]
    header = "".join(f"{selection + ': ' + fields[field]:>21}" for selection, field in columns)
    lines = [f"{'Spearman, MAPE, shares':<30}{'FLOPs':>8}{header}"]
    summaries: list[tuple[str, Callable[[Any], Any], Sequence[str]]] = [
        *((target, np.mean, [target]) for target in targets),
        (f"mean of {len(targets)}", np.mean, targets),
        ("minimum", np.min, targets),
        ("maximum", np.max, targets),
    ]
    for name, summary, group in summaries:
        costs = summary([results[t, SELECTIONS[0], seeds[0]].spearman_flops for t in group])
        cells = ""
        for selection, field in columns:
            by_seed = [summary([getattr(results[t, selection, s], field) for t in group]) for s in seeds]
            cells += f"{np.mean(by_seed):>14.3f} ±{np.std(by_seed):.3f}"
        lines.append(f"{name:<30}{costs:>8.3f}{cells}")
    seconds = np.median([result.seconds for result in results.values()])
    return "\n".join([*lines, f"median time to fit a device: {seconds:.1f} seconds"])
