"""Surrogate of configurations of programs: programs that are equal but for their numbers.

A kernel with other block sizes, or a loop with another bound, shares nearly all its n-grams with labelled
programs. Its numbers alone tell it from them, and a Gaussian process on their logarithms predicts it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import tensors_with_prefix
from nas_rlm.surrogates.configuration_process import (
    MAX_NUMBER,
    ConfigurationProcess,
    LogTransform,
    NumberScaling,
)
from nas_rlm.surrogates.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    MIN_LABELS,
    PredictiveDistribution,
    temperatures_from_saved,
)
from nas_rlm.surrogates.program_surrogate import HeldOutPrograms

_NUMBER = re.compile(r"(?<![\w.])(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
MAX_CONFIGURATIONS = 1000  # of a program, that a Gaussian process is fitted to
MIN_SHARE = 0.9  # of programs that are configurations of one with MIN_LABELS of them
UNKNOWN_STD = 2.0  # of programs that are no configurations of a labelled one, relative to all labels


def split_numbers(program: str) -> tuple[str, list[float]]:
    """Return a program with a mark in the place of each number, and the numbers.

    Examples:
        >>> split_numbers("for i in range(1_000): x2 += 0.5 * i")
        ('for i in range(#): x2 += # * i', [1000.0, 0.5])

    Args:
        program: source of the program.
    """
    numbers = [min(float(found.replace("_", "")), MAX_NUMBER) for found in _NUMBER.findall(program)]
    return _NUMBER.sub("#", program), numbers


def are_configurations(programs: Sequence[str]) -> bool:
    """Return whether nearly all programs are equal to many others but for their numbers.

    Examples:
        >>> are_configurations([f"for i in range({n}): print(i)" for n in range(20)])
        True

    Args:
        programs: sources of the programs.
    """
    groups = _grouped(map(split_numbers, programs))
    shared = sum(len(rows) for rows in groups.values() if len({programs[i] for i in rows}) >= MIN_LABELS)
    return bool(programs) and shared >= MIN_SHARE * len(programs)


def differ_in_numbers_only(programs: Sequence[str]) -> bool:
    """Return whether programs differ, and are all equal but for their numbers.

    Examples:
        >>> differ_in_numbers_only(["print(1)", "print(2)"]), differ_in_numbers_only(["print(1)", "x = 2"])
        (True, False)

    Args:
        programs: sources of the programs.
    """
    return len(set(programs)) > 1 and len(_grouped(map(split_numbers, programs))) == 1


def _grouped(split_programs: Iterable[tuple[str, list[float]]]) -> dict[str, list[int]]:
    """Return the positions of split programs that are equal but for numbers, by the hash of the rest."""
    groups: dict[str, list[int]] = {}
    for i, (rest, numbers) in enumerate(split_programs):
        groups.setdefault(_key(rest, numbers), []).append(i)
    return groups


def _key(rest: str, numbers: Sequence[float]) -> str:
    """Return a hash of a program without its numbers, and of how many they are: it may have marks itself."""
    return hashlib.sha256(f"{len(numbers)} {rest}".encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True)
class ConfigurationSurrogate:
    """Gaussian processes on the numbers of programs that are equal otherwise.

    Examples:
        >>> import numpy as np
        >>> programs = [f"for i in range({n}): print(i)" for n in range(10, 40)]
        >>> surrogate = ConfigurationSurrogate.fit(programs, {"time": np.arange(10.0, 40.0) ** 2})
        >>> surrogate.predict(surrogate.transform(["for i in range(20): print(i)"]), "time").median.round(-1)
        array([400.])

    Args:
        scalings: standardisation of the numbers of each labelled program, by the hash of its other text.
        transforms: transform between values and scores of each objective.
        processes: by objective, the Gaussian process of each labelled program.
        held_out: how well the labelled configurations of a program are ranked without their labels: the mean
            of the programs.
        temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
    """

    scalings: Mapping[str, NumberScaling]
    transforms: Mapping[str, LogTransform]
    processes: Mapping[str, Mapping[str, ConfigurationProcess]]
    held_out: Mapping[str, HeldOutPrograms]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives."""
        return tuple(self.processes)

    @property
    def label_quantiles(self) -> dict[str, np.ndarray]:
        """The smallest and the largest label of each objective."""
        return {name: np.array([found.smallest, found.largest]) for name, found in self.transforms.items()}

    @classmethod
    def fit(
        cls, programs: Sequence[str], values: Mapping[str, np.ndarray], seed: int = 0
    ) -> ConfigurationSurrogate:
        """Fit a surrogate to M programs.

        Args:
            programs: sources of the programs, see `are_configurations`.
            values: labels of each objective above 0, float64 [M], NaN where a program has none.
            seed: seed of the order of the programs, of which at most `MAX_CONFIGURATIONS` are used.
        """
        order = np.random.default_rng(seed).permutation(len(programs)).tolist()
        split = [split_numbers(program) for program in programs]
        numbers = [found for _, found in split]
        groups = _grouped(split[i] for i in order)
        rows_of = {key: np.array(order)[rows] for key, rows in groups.items() if len(rows) >= MIN_LABELS}
        scalings = {
            key: NumberScaling.fit(np.array([numbers[i] for i in rows])) for key, rows in rows_of.items()
        }
        scalings = {key: scaling for key, scaling in scalings.items() if len(scaling.positions)}
        transforms, processes, held_out = {}, {}, {}
        for name, column in values.items():
            is_labelled = np.isfinite(column)
            transform = LogTransform.fit(column[is_labelled])
            fitted, correlations, count = {}, [], 0
            for key, scaling in scalings.items():
                rows = rows_of[key]
                rows = rows[is_labelled[rows]][:MAX_CONFIGURATIONS]
                if len(rows) >= MIN_LABELS:
                    scores = transform.forward(column[rows])
                    standardised = scaling.transform(np.array([numbers[i] for i in rows]))
                    fitted[key], left_out = ConfigurationProcess.fit(standardised, scores)
                    correlations.append(spearman(left_out, scores))
                    count += len(rows)
            if fitted:
                transforms[name], processes[name] = transform, fitted
                held_out[name] = HeldOutPrograms(count, float(np.mean(correlations)), None)
        return cls(scalings, transforms, processes, held_out)

    def transform(self, programs: Sequence[str]) -> list[tuple[str, np.ndarray | None]]:
        """Return for each of N programs the hash of its text without numbers, and its standardised numbers.

        The numbers, float64 [1, D], are None for a program that is no configuration of a labelled one.
        """
        features: list[tuple[str, np.ndarray | None]] = []
        for program in programs:
            rest, numbers = split_numbers(program)
            key = _key(rest, numbers)
            scaling = self.scalings.get(key)
            features.append((key, None if scaling is None else scaling.transform(np.array([numbers]))))
        return features

    def predict(
        self, features: Sequence[tuple[str, np.ndarray | None]], objective: str
    ) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N programs.

        Programs that are no configurations of a labelled one have the distribution of all labels, widened.

        Args:
            features: features of the programs.
            objective: one of this surrogate's objectives.
        """
        means, stds = np.zeros(len(features)), np.full(len(features), UNKNOWN_STD)
        novelty = np.full(len(features), 2 * MAX_NOVELTY)
        for key, process in self.processes[objective].items():
            rows = [i for i, (other, _) in enumerate(features) if other == key]
            if rows:
                numbers = np.concatenate([values for i in rows if (values := features[i][1]) is not None])
                means[rows], stds[rows] = process.posterior(numbers)
                novelty[rows] = 0.0
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        weight = np.zeros(len(features))
        return PredictiveDistribution(self.transforms[objective], means, stds, temperature, novelty, weight)

    def without(self, objectives: Sequence[str]) -> ConfigurationSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        left = {name: found for name, found in self.processes.items() if name not in objectives}
        return replace(self, processes=left) if left else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        tensors: dict[str, Tensor] = {}
        for j, scaling in enumerate(self.scalings.values()):
            tensors |= {f"scaling{j}.{name}": tensor for name, tensor in scaling.tensors().items()}
        positions = {key: j for j, key in enumerate(self.scalings)}
        for k, processes in enumerate(self.processes.values()):
            for key, process in processes.items():
                prefix = f"process{k}.{positions[key]}."
                tensors |= {f"{prefix}{part}": tensor for part, tensor in process.tensors().items()}
        return tensors

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and scalars."""
        return {
            "kind": "configurations",
            "objectives": self.objectives,
            "programs": list(self.scalings),
            "transforms": {name: asdict(self.transforms[name]) for name in self.processes},
            "processes": {
                name: {key: process.description() for key, process in processes.items()}
                for name, processes in self.processes.items()
            },
            "held_out": {name: asdict(self.held_out[name]) for name in self.processes},
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
        }

    @classmethod
    def from_saved(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
    ) -> ConfigurationSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        keys = list(map(str, description["programs"]))
        scalings = {
            key: NumberScaling.from_saved(tensors_with_prefix(tensors, f"scaling{j}."))
            for j, key in enumerate(keys)
        }
        transforms, processes, held_out = {}, {}, {}
        for k, name in enumerate(map(str, description["objectives"])):
            transforms[name] = LogTransform.from_saved(description["transforms"][name])
            held_out[name] = HeldOutPrograms(**description["held_out"][name])
            processes[name] = {
                key: ConfigurationProcess.from_saved(
                    tensors_with_prefix(tensors, f"process{k}.{keys.index(key)}."),
                    saved,
                    len(scalings[key].positions),
                )
                for key, saved in description["processes"][name].items()
            }
        return cls(scalings, transforms, processes, held_out, *temperatures_from_saved(description))
