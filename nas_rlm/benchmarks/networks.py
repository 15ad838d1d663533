"""How well latencies of real networks are predicted: of known families, of others, and from few labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from nas_rlm.benchmarks.baselines import trees
from nas_rlm.benchmarks.baselines.layer_sums import fit_layer_sums, fit_sums
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import split
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.data.tables import Row, Table
from nas_rlm.devices.measurements import repeated_measurements
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.surrogates.latency.device_transfer import DeviceTransfer
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.layer_fitting import errors_of_left_out, families_and_folds, fit_layer_counts
from nas_rlm.surrogates.latency.layer_network import LayerCounts, terms_by_type
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS, LogTransform, PredictiveDistribution

# Protocols, beside numbers of labels of networks of all families.
KNOWN, FAMILIES, KINDS = "known families", "other families", "kinds of networks"
CONVOLUTIONAL, TRANSFORMER, HYBRID = "convolutional", "transformer", "hybrid"
MIN_ATTENTION, MIN_CONVOLUTIONS = 2, 4  # layers of a kind that make a network one of that kind
AGAIN, MEASUREMENT = "again", "second measurement"  # protocol and method of networks that were measured twice
VALIDATION_SHARE = 0.15
MAX_FOLDS = 12  # more families are left out in groups
NUM_TEST_NETWORKS = 1000  # of few labels
INTERVAL = (0.1, 0.9)
SURROGATE, LAYERS, MACS, TREES = METHODS = ("surrogate", "layer sums", "line in MACs", "trees")
WITH_DEVICES = "surrogate with known devices"  # method of few labels
KEY_NAMES = ("objective", "protocol", "case", "method", "seed")
Key = tuple[str, str, str, str, int]


@dataclass(frozen=True)
class LatencyResult:
    """How well a method predicts the latencies of test networks.

    Args:
        networks: number of test networks.
        mape: mean absolute error, relative to the measurement.
        within_5_percent: share of the predictions within 5 % of the measurement.
        within_10_percent: share within 10 %.
        within_20_percent: share within 20 %.
        spearman: Spearman correlation of predictions and measurements.
        kendall: Kendall's tau of them.
        coverage: share of the measurements within 80 % intervals; 0 where a method has none.
    """

    networks: int
    mape: float
    within_5_percent: float
    within_10_percent: float
    within_20_percent: float
    spearman: float
    kendall: float
    coverage: float

    @classmethod
    def of(cls, predicted: PredictiveDistribution | np.ndarray, true: np.ndarray) -> LatencyResult:
        """Return the result of predictions, float64 [N]."""
        covered, median = 0.0, predicted
        if isinstance(predicted, PredictiveDistribution):
            low, high = predicted.quantiles(INTERVAL).T
            covered, median = coverage(low, high, true), predicted.median
        assert isinstance(median, np.ndarray)
        errors = np.abs(median / true - 1)
        return cls(
            networks=len(true),
            mape=float(errors.mean()),
            within_5_percent=float((errors <= 0.05).mean()),
            within_10_percent=float((errors <= 0.1).mean()),
            within_20_percent=float((errors <= 0.2).mean()),
            spearman=spearman(median, true),
            kendall=kendall(median, true),
            coverage=covered,
        )


class NetworkLatencies:
    """Measured networks of several families.

    Args:
        rows: the networks, whose family is their group or their space; those without a latency are left out.
        objectives: names of the latencies.
        per_family: maximum number of networks of a family for training and for tests, except for known
            families, where all are used.
        known: latencies of known devices, which are learnt from half of the families. Few labels are then
            also predicted with their help, for networks of these families and of the others.

    Raises:
        ValueError: a latency is not measured.
    """

    def __init__(
        self, rows: Sequence[Row], objectives: Sequence[str], per_family: int, known: Sequence[str] = ()
    ) -> None:
        self.rows = [row for row in rows if any(row.is_measured(name) for name in objectives)]
        for name in (*objectives, *known):
            if not any(row.is_measured(name) for row in self.rows):
                raise ValueError(f"no network has {name}: expected latencies of the table")
        self.objectives, self.per_family = tuple(objectives), per_family
        table = Table("", self.rows)
        self.latencies = {name: table.column(name) for name in objectives}
        self._raw_features: dict[int, dict[str, float]] = {}  # of networks of few labels
        self.families = np.array([row.group or row.space for row in self.rows])
        self.known = {name: table.column(name) for name in known}
        names = np.random.default_rng(0).permutation(np.unique(self.families))
        self.is_known_family = np.isin(self.families, names[: len(names) // 2])

    @cached_property
    def known_devices(self) -> LayerSurrogate:
        """Surrogate of the known devices, fitted to the networks of half of the families."""
        own = np.flatnonzero(self.is_known_family)
        values = {name: latencies[own] for name, latencies in self.known.items()}
        return fit_layer_counts(self.counts.select(own), values, self.families[own].tolist())

    @cached_property
    def counts(self) -> LayerCounts:
        """Layers of the networks."""
        return LayerCounts.of_texts(texts_of_rows(self.rows))

    @cached_property
    def macs(self) -> np.ndarray:
        """Multiply-accumulates of the networks, float64 [N]."""
        return self.counts.sums(np.array([[layer.macs] for layer in self.counts.layers], float))[:, 0]

    @cached_property
    def _sums(self) -> np.ndarray:
        """Sums of the terms of each layer type, float64 [N, D]."""
        types = sorted({layer.type for layer in self.counts.layers})
        return self.counts.sums(terms_by_type(self.counts.layers, types))

    def run(
        self, protocols: Sequence[str], seeds: int, finished: Collection[Key]
    ) -> Iterator[tuple[Key, LatencyResult]]:
        """Yield the key and the result of each method.

        Args:
            protocols: `KNOWN`, `FAMILIES`, `KINDS`, or a number of labels.
            seeds: number of draws of few labels.
            finished: keys to skip.
        """
        for protocol in protocols:
            if protocol == KINDS:
                keys = [(o, KINDS, "", m, 0) for o in self.objectives for m in METHODS]
                yield from self._results_of_kinds() if not {*keys} <= {*finished} else ()
                continue
            for case, seed, train, test in self._splits(protocol, seeds):
                keys = [(o, protocol, case, m, seed) for o in self.objectives for m in METHODS]
                if not {*keys} <= {*finished}:
                    yield from self._results(protocol, case, seed, train, test)

    def _splits(self, protocol: str, seeds: int) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
        """Yield the name of a case, its seed, and the indices of its training and test networks."""
        if protocol == KNOWN:
            identifiers = {row.identifier for row in split(Table("", self.rows), VALIDATION_SHARE)[0].rows}
            is_train = np.array([row.identifier in identifiers for row in self.rows])
            yield "", 0, np.flatnonzero(is_train), np.flatnonzero(~is_train)
        elif protocol == FAMILIES:
            part = self._part_of_families()
            folds = self._folds()
            for name in dict.fromkeys(folds):
                yield name, 0, part[folds[part] != name], part[folds[part] == name]
        else:
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(self.rows))
                train, rest = np.split(order, [int(protocol)])
                if not self.known:
                    yield "", seed, train, rest[:NUM_TEST_NETWORKS]
                    continue
                for case, is_own in ((KNOWN, self.is_known_family), (FAMILIES, ~self.is_known_family)):
                    yield case, seed, train, rest[is_own[rest]][:NUM_TEST_NETWORKS]

    def _part_of_families(self) -> np.ndarray:
        """Return the indices of at most `per_family` networks of each family."""
        rng = np.random.default_rng(0)
        parts = [
            rng.permutation(np.flatnonzero(self.families == name))[: self.per_family]
            for name in np.unique(self.families)
        ]
        return np.concatenate(parts)

    def _folds(self) -> np.ndarray:
        """Return the fold of each network: its family, or a group of families if there are many."""
        names = np.unique(self.families)
        if len(names) <= MAX_FOLDS:
            return self.families
        order = np.random.default_rng(0).permutation(len(names)) % MAX_FOLDS
        fold_of = {name: f"fold {k + 1}" for name, k in zip(names, order, strict=True)}
        return np.array([fold_of[name] for name in self.families])

    def _results_of_kinds(self) -> Iterator[tuple[Key, LatencyResult]]:
        """Yield the results for all networks, and for those of each kind, predicted without their family.

        The surrogate's are those of its evidence, without intervals.
        """
        kinds = kinds_of(self.counts)
        _, folds = families_and_folds(self.families.tolist(), len(self.rows))
        errors = errors_of_left_out(self.counts, self.latencies, self.families.tolist())
        for k, name in enumerate(self.objectives):
            latencies = self.latencies[name]
            predicted = {method: np.full(len(latencies), np.nan) for method in METHODS}
            predicted[SURROGATE] = latencies * np.exp(errors[:, k])
            is_measured = np.isfinite(latencies)
            for fold in range(folds.max() + 1):
                used = np.flatnonzero(is_measured & (folds != fold))
                own = np.flatnonzero(is_measured & (folds == fold))
                if len(own) and len(used) >= MIN_LABELS:
                    labels = latencies[used]
                    predicted[LAYERS][own] = self.by_layers(used, own, labels)
                    for method, values in self.baselines(used, own, labels).items():
                        predicted[method][own] = values
            is_known = np.isfinite([*predicted.values()]).all(0)
            for kind in ("", *np.unique(kinds)):
                part = is_known & ((kinds == kind) | (not kind))
                for method in METHODS if part.sum() > 1 else ():
                    result = LatencyResult.of(predicted[method][part], latencies[part])
                    yield (name, KINDS, kind, method, 0), result

    def baselines(self, used: np.ndarray, own: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Return predictions by the costs of networks, from the labels of others.

        Args:
            used: indices of the labelled networks, int [M].
            own: indices of the networks to predict, int [N].
            labels: latencies of the labelled networks, float64 [M].

        Returns:
            float64 [N], by method.
        """
        return {
            MACS: fit_sums(self.macs[used, None], labels, self.macs[own, None]),
            TREES: np.exp(trees(np.log1p(self._sums[used]), np.log(labels), np.log1p(self._sums[own]))),
        }

    def by_layers(self, used: np.ndarray, own: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return predictions by sums over layers, from many labels of other networks, float64 [N].

        Arguments are those of `baselines`.
        """
        return fit_sums(self._sums[used], labels, self._sums[own])

    def _results(
        self, protocol: str, case: str, seed: int, train: np.ndarray, test: np.ndarray
    ) -> Iterator[tuple[Key, LatencyResult]]:
        """Yield the results of all methods for one split."""
        many = None
        if protocol in (KNOWN, FAMILIES):
            values = {name: self.latencies[name][train] for name in self.objectives}
            many = fit_layer_counts(self.counts.select(train), values, self.families[train].tolist())
            features = many.transform_counts(self.counts.select(test))
        else:
            new = [i for i in (*train, *test) if i not in self._raw_features]
            texts = texts_of_rows([self.rows[i] for i in new])
            features_of_new = graph_features_of_texts(texts, MAX_CHAIN_LENGTH, with_layers=True)
            self._raw_features.update(zip(new, features_of_new, strict=True))
        for name in self.objectives:
            latencies = self.latencies[name]
            own = test[np.isfinite(latencies[test])]
            used = train[np.isfinite(latencies[train])]
            if not len(own) or len(used) < MIN_LABELS:
                continue
            true, labels = latencies[own], latencies[used]
            predicted: dict[str, PredictiveDistribution | np.ndarray] = {**self.baselines(used, own, labels)}
            if many is not None:
                whole = many.predict(features, name)
                is_own = np.isin(test, own)
                predicted[SURROGATE] = PredictiveDistribution(
                    LogTransform(), whole.mean[is_own], whole.std[is_own]
                )
                predicted[LAYERS] = self.by_layers(used, own, labels)
            else:
                raw_train, raw_test = ([self._raw_features[i] for i in part] for part in (used, own))
                graph_features = LatencyFeatures.fit(raw_train)
                few = LatencySurrogate.fit(graph_features, graph_features.transform(raw_train), labels, name)
                inputs = graph_features.transform(raw_test)
                predicted[SURROGATE] = few.predict(inputs, name)
                if self.known:
                    predicted[WITH_DEVICES] = self._with_known_devices(few, used, inputs, own)
                predicted[LAYERS] = fit_layer_sums(raw_train, labels, raw_test)
            for method, values_of_method in predicted.items():
                yield (name, protocol, case, method, seed), LatencyResult.of(values_of_method, true)

    def _with_known_devices(
        self, few: LatencySurrogate, used: np.ndarray, inputs: Tensor, own: np.ndarray
    ) -> PredictiveDistribution:
        """Return the predictions of a surrogate with few labels and of known devices.

        Args:
            few: the surrogate.
            used: indices of its labelled networks, int [M].
            inputs: features of the networks to predict, float64 [N, D].
            own: indices of these networks, int [N].
        """
        transfer = DeviceTransfer.fit(few, self.counts.select(used), [self.known_devices])
        if transfer is None:
            return few.predict(inputs, few.objective)
        with_devices = transfer.with_devices(inputs, self.counts.select(own))
        return transfer.predict(with_devices, few.objective)


def kinds_of(counts: LayerCounts) -> np.ndarray:
    """Return the kind of each network by its layers: `CONVOLUTIONAL`, `TRANSFORMER` or `HYBRID`, str [N].

    Networks with attention are hybrid if they have several convolutions over images beside it.

    Args:
        counts: layers of the networks.
    """
    is_attention = [layer.type in ("Softmax", "Attention") for layer in counts.layers]
    is_spatial = [layer.type.startswith("Conv") and layer.kernel > 1 for layer in counts.layers]
    attention, spatial = counts.sums(np.array([is_attention, is_spatial], float).T).T
    with_attention = np.where(spatial >= MIN_CONVOLUTIONS, HYBRID, TRANSFORMER)
    return np.where(attention >= MIN_ATTENTION, with_attention, CONVOLUTIONAL)


def results_of_second_measurements(
    first: Table, second: Table, objectives: Sequence[str]
) -> Iterator[tuple[Key, LatencyResult]]:
    """Yield how well second measurements agree with the first ones, which no prediction can exceed.

    Args:
        first: measured networks.
        second: measurements of some of the same networks.
        objectives: names of the latencies.

    Raises:
        ValueError: no network has two measurements of a latency.
    """
    for name in objectives:
        true, repeated = repeated_measurements(first, second, name)
        if not len(true):
            raise ValueError(f"no network of {first.name} has a second {name} in {second.name}")
        yield (name, AGAIN, "", MEASUREMENT, 0), LatencyResult.of(repeated, true)


def format_results(results: Mapping[Key, LatencyResult]) -> str:
    """Return a table of each latency and protocol: mean over cases and seeds, and the worst case.

    Args:
        results: results by key.
    """
    columns = ("MAPE", "5 %", "10 %", "20 %", "Spearman", "Kendall", "interval", "worst case, 10 %")
    lines = [f"{'latency, protocol and method':<66}" + "".join(f"{name:>10}" for name in columns)]
    groups: dict[tuple[str, str, str], list[tuple[str, LatencyResult]]] = {}
    for (objective, protocol, case, method, _), result in results.items():
        part, case = (case or "all", "") if protocol == KINDS else (protocol, case)
        groups.setdefault((objective, part, method), []).append((case, result))
    for (objective, protocol, method), found in groups.items():
        numbers = np.mean([astuple(result)[1:] for _, result in found], axis=0)
        worst_case, worst = min(found, key=lambda item: item[1].within_10_percent)
        label = f"{objective}, {protocol}, {method}"
        cells = "".join(f"{number:>10.3f}" for number in (*numbers, worst.within_10_percent))
        lines.append(f"{label:<66}{cells} {worst_case}".rstrip())
    return "\n".join(lines)
