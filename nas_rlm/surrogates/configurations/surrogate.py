"""Surrogate of configurations of programs: programs that are equal but for their numbers and some words.

A kernel with other block sizes, or a loop with another bound, shares nearly all its n-grams with labelled
programs. Its numbers and flags alone tell it from them, and a Gaussian process on these predicts it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import tensors_with_prefix
from nas_rlm.surrogates.configurations.features import ConfigurationFeatures
from nas_rlm.surrogates.configurations.process import ConfigurationProcess, LogTransform
from nas_rlm.surrogates.configurations.text import Configuration, configuration_of, grouped
from nas_rlm.surrogates.latency.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    PredictiveDistribution,
    temperatures_from_saved,
)
from nas_rlm.surrogates.programs.surrogate import HeldOutPrograms

MAX_CONFIGURATIONS = 1000  # of a program, that a Gaussian process is fitted to
MIN_CONFIGURATIONS = 5  # of a program that is learnt
MIN_SHARE = 0.7  # of programs that are configurations of such a program
UNKNOWN_STD = 2.0  # of programs that are no configurations of a labelled one, relative to all labels


def are_configurations(programs: Sequence[str]) -> bool:
    """Return whether most programs are equal to several others but for numbers and words.

    Examples:
        >>> are_configurations([f"for i in range({n}): print(i)" for n in range(20)])
        True

    Args:
        programs: sources of the programs.
    """
    found = [configuration_of(program) for program in programs]
    shared = sum(len(rows) for rows, _ in _learnable(found).values())
    return bool(programs) and shared >= MIN_SHARE * len(programs)


def _learnable(
    configurations: Sequence[Configuration],
) -> dict[str, tuple[list[int], ConfigurationFeatures]]:
    """Return the positions and the features of each form with several configurations that differ."""
    features_of = {
        form: (rows, ConfigurationFeatures.fit([configurations[i] for i in rows]))
        for form, rows in grouped(configurations).items()
        if len({configurations[i] for i in rows}) >= MIN_CONFIGURATIONS
    }
    return {form: found for form, found in features_of.items() if found[1].count}


@dataclass(frozen=True)
class ConfigurationSurrogate:
    """Gaussian processes on the numbers and words in which programs differ that are equal otherwise.

    Examples:
        >>> import numpy as np
        >>> programs = [f"for i in range({n}): print(i)" for n in range(10, 40)]
        >>> surrogate = ConfigurationSurrogate.fit(programs, {"time": np.arange(10.0, 40.0) ** 2})
        >>> surrogate.predict(surrogate.transform(["for i in range(20): print(i)"]), "time").median.round(-1)
        array([400.])

    Args:
        features: features of the configurations of each labelled program, by its form.
        transforms: transform between values and scores of each objective.
        processes: by objective, the Gaussian process of each labelled program.
        held_out: how well the labelled configurations of a program are ranked without their labels: the mean
            of the programs.
        temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
    """

    features: Mapping[str, ConfigurationFeatures]
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
        configurations = [configuration_of(programs[i]) for i in order]
        learnable = _learnable(configurations)
        standardised = {
            form: features.transform([configurations[i] for i in rows])
            for form, (rows, features) in learnable.items()
        }
        transforms, processes, held_out = {}, {}, {}
        for name, column in values.items():
            is_labelled = np.isfinite(column)
            transform = LogTransform.fit(column[is_labelled])
            fitted, correlations, count = {}, [], 0
            for form, (rows, _) in learnable.items():
                labels = column[[order[i] for i in rows]]
                labelled = np.flatnonzero(np.isfinite(labels))[:MAX_CONFIGURATIONS]
                if len(labelled) >= MIN_CONFIGURATIONS:
                    scores = transform.forward(labels[labelled])
                    fitted[form], left_out = ConfigurationProcess.fit(standardised[form][labelled], scores)
                    correlations.append(spearman(left_out, scores))
                    count += len(labelled)
            if fitted:
                transforms[name], processes[name] = transform, fitted
                held_out[name] = HeldOutPrograms(count, float(np.mean(correlations)), None)
        features_of = {form: features for form, (_, features) in learnable.items()}
        return cls(features_of, transforms, processes, held_out)

    def transform(self, programs: Sequence[str]) -> list[Configuration]:
        """Return each of N programs as its form, its numbers and its words."""
        return [configuration_of(program) for program in programs]

    def predict(self, features: Sequence[Configuration], objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N programs.

        Programs that are no configurations of a labelled one have the distribution of all labels, widened.
        Those of configurations with a number or a word that no labelled one has are wider, too.

        Args:
            features: the configurations.
            objective: one of this surrogate's objectives.
        """
        means, stds = np.zeros(len(features)), np.full(len(features), UNKNOWN_STD)
        novelty = np.full(len(features), 2 * MAX_NOVELTY)
        transform = self.transforms[objective]
        for form, process in self.processes[objective].items():
            rows = [i for i, found in enumerate(features) if found.form == form]
            if rows:
                own = [features[i] for i in rows]
                unknown = self.features[form].unknown_std(own)
                means[rows], known = process.posterior(self.features[form].transform(own))
                stds[rows] = np.hypot(known, unknown / transform.std)
                novelty[rows] = np.where(unknown > 0, novelty[rows], 0.0)
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(transform, means, stds, temperature, novelty, np.zeros(len(features)))

    def with_other_programs(self, former: ConfigurationSurrogate) -> ConfigurationSurrogate:
        """Return a copy that also predicts what an earlier surrogate has learnt of other programs.

        Args:
            former: the earlier surrogate.

        Warns:
            UserWarning: it has more labels of a program, which those of this surrogate replace.
        """
        features, merged = dict(self.features), {}
        for name, processes in self.processes.items():
            merged[name] = dict(processes)
            for form, process in former.processes.get(name, {}).items():
                count = len(processes[form].scores) if form in processes else 0
                if form not in self.features:
                    features[form] = former.features[form]
                    merged[name][form] = process.with_scores_of(
                        former.transforms[name], self.transforms[name]
                    )
                elif len(process.scores) > count:
                    warnings.warn(
                        f"{count} labels of {name} replace {len(process.scores)} that"
                        " the model had learnt of the same program: give all of them in one table",
                        stacklevel=6,
                    )
        return replace(self, features=features, processes=merged)

    def without(self, objectives: Sequence[str]) -> ConfigurationSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        left = {name: found for name, found in self.processes.items() if name not in objectives}
        return replace(self, processes=left) if left else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        tensors: dict[str, Tensor] = {}
        for j, features in enumerate(self.features.values()):
            tensors |= {f"features{j}.{name}": tensor for name, tensor in features.tensors().items()}
        positions = {form: j for j, form in enumerate(self.features)}
        for k, processes in enumerate(self.processes.values()):
            for form, process in processes.items():
                prefix = f"process{k}.{positions[form]}."
                tensors |= {f"{prefix}{part}": tensor for part, tensor in process.tensors().items()}
        return tensors

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and scalars."""
        return {
            "kind": "configurations",
            "objectives": self.objectives,
            "programs": list(self.features),
            "transforms": {name: asdict(self.transforms[name]) for name in self.processes},
            "processes": {
                name: {form: process.description() for form, process in processes.items()}
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
        forms = list(map(str, description["programs"]))
        features = {
            form: ConfigurationFeatures.from_saved(tensors_with_prefix(tensors, f"features{j}."))
            for j, form in enumerate(forms)
        }
        transforms, processes, held_out = {}, {}, {}
        for k, name in enumerate(map(str, description["objectives"])):
            transforms[name] = LogTransform.from_saved(description["transforms"][name])
            held_out[name] = HeldOutPrograms(**description["held_out"][name])
            processes[name] = {
                form: ConfigurationProcess.from_saved(
                    tensors_with_prefix(tensors, f"process{k}.{forms.index(form)}."),
                    saved,
                    features[form].count,
                )
                for form, saved in description["processes"][name].items()
            }
        return cls(features, transforms, processes, held_out, *temperatures_from_saved(description))
