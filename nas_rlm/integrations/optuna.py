"""Optuna: a sampler that suggests architectures, and finished studies as labels.

An architecture is a set of integer parameters `gene0`, `gene1`, … in Optuna, see `suggest_architecture`.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

import search_spaces
from nas_rlm.data.objective_kinds import expected_value, kind_of
from nas_rlm.data.omissions import Omissions, describe_error, is_valid_target, to_number
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from nas_rlm.rlm import RLM
from nas_rlm.search.exact_constraints import exact_values
from nas_rlm.search.settings import Constraint, constraint_texts
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.suggestion import PoolSuggester
from nas_rlm.study.value_warnings import warn_of_minimised_scores
from nas_rlm.utils.validation import as_list, is_whole_number, listed
from search_spaces import SearchSpace
from search_spaces.wording import counted

SUGGESTING = threading.Lock()  # of the threads of Optuna's n_jobs; no attribute, since samplers are pickled
SUGGESTED = "nas_rlm:architecture"  # system attribute of a trial: the architecture that was suggested for it


def suggest_architecture(trial: optuna.trial.BaseTrial, space: str | SearchSpace[Any]) -> Any:
    """Return the architecture of an Optuna trial.

    Examples:
        >>> import optuna
        >>> def objective(trial):
        ...     cell = suggest_architecture(trial, "nasbench201")
        ...     return train(cell)  # doctest: +SKIP

    Args:
        trial: the trial, whose parameters `gene0`, `gene1`, … are suggested.
        space: the search space, or its name.

    Raises:
        optuna.TrialPruned: the genes are no architecture, as a sampler that does not know the space may
            suggest.
    """
    space = search_spaces.register(space)
    genes = [trial.suggest_int(f"gene{i}", 0, size - 1) for i, size in enumerate(space.genes)]
    try:
        return space.decode(np.array(genes))
    except ValueError as error:
        raise optuna.TrialPruned(str(error)) from None


class RLMSampler(BaseSampler):
    """An Optuna sampler that suggests architectures as `nas_rlm.Study` does.

    Surrogates learn the objectives from the trials that are complete; other parameters than genes are sampled
    at random. Several processes on one storage, and threads, get different architectures. If a trial leaves
    no further architecture, `optimize` of Optuna ends.

    Examples:
        >>> import optuna
        >>> sampler = RLMSampler("nasbench201", ["accuracy", "latency/mine"])
        >>> study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        >>> study.optimize(objective, n_trials=100)  # doctest: +SKIP

    Args:
        space: the search space, or its name.
        objectives: a name for each value that the objective function returns, in order. `flops` and `params`
            are counted.
        constraints: bounds such as `latency/mine<=20` on these objectives, or on `flops` or `params`.
        model: a model, a checkpoint directory, or the name of a shipped model. Its surrogates are sources of
            transfer.
        maximise: objectives that are maximised although their kind is not.
        seed: seed of all random choices.

    Raises:
        ValueError: an argument is invalid, or no architecture is found that meets the constraints on `flops`
            and `params`.
    """

    def __init__(
        self,
        space: str | SearchSpace[Any],
        objectives: Sequence[str],
        *,
        constraints: Sequence[str | Constraint] = (),
        model: str | os.PathLike[str] | RLM = "nas",
        maximise: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        self.space = search_spaces.register(space)  # surrogates know spaces by name
        self.settings = StudySettings(
            self.space.name,
            tuple(as_list(objectives, "objectives")),
            constraint_texts(constraints),
            tuple(as_list(maximise, "maximise")),
            seed=seed,
            location=search_spaces.location_of(self.space),
        )
        for name in self.settings.evaluated:
            if name not in self.settings.objectives:
                raise ValueError(
                    f"a constraint on {name}, which the objective function does not return: expected one of"
                    f" {', '.join(dict.fromkeys((*self.settings.objectives, *EXACT_OBJECTIVES)))}"
                )
        rlm = model if isinstance(model, RLM) else RLM.load(model)
        self._suggester = PoolSuggester(self.space, rlm, self.settings)
        self._suggester.check_constraints()
        self._random = RandomSampler(seed)
        self._genes = {f"gene{i}": IntDistribution(0, size - 1) for i, size in enumerate(self.space.genes)}
        self._candidates: list[str] = []  # of all suggestions
        self._has_warned = False
        self._warned: set[str] = set()
        warn_of_minimised_scores(self.settings, stacklevel=3)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the genes, after a check that the directions of the study are those of the objectives."""
        names = self.settings.objectives
        expected = [
            StudyDirection.MAXIMIZE if self.settings.search.is_maximised(name) else StudyDirection.MINIMIZE
            for name in names
        ]
        if study.directions != expected:
            directions = [direction.name.lower() for direction in expected]
            raise ValueError(
                f"directions of {list(names)} are {directions}: create the study with them, and give"
                " objectives that are maximised as maximise"
            )
        return {**self._genes}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the genes of the next architecture, those of the search space."""
        if self._genes.keys() <= trial.system_attrs.get("fixed_params", {}).keys():
            return {}  # an architecture that was enqueued
        with SUGGESTING:
            name = self._suggest(study, trial)
        genome = self.space.encode(self.space.parse(name))
        return {
            gene: int(value) for gene, value in zip(self._genes, genome, strict=True) if gene in search_space
        }

    def _suggest(self, study: optuna.Study, trial: FrozenTrial) -> str:
        """The next architecture, which no other trial has."""
        name, others = "", _others(study, trial)
        while not name or name in self._suggested_for(others):  # of another process meanwhile
            rows = self._rows(others)
            labelled = [row.select(self.settings.learned) for row in rows]
            finished = {row.arch_str for row in rows}
            # Suggestions that a trial did not follow, such as where a gene is fixed, are not made again.
            pending = [other for other in self._suggested_for(others) if other not in finished]
            suggestions = self._suggester.suggest(labelled, pending, 1, self._candidates)
            self._candidates += suggestions.candidates
            if not suggestions.trials:
                raise ValueError(f"{self.settings.exhausted}: there are no others")
            name = suggestions.trials[0].architecture
            # It is read after it was written, so that of two processes at least one notices the other.
            study._storage.set_trial_system_attr(trial._trial_id, SUGGESTED, name)
            others = _others(study, trial)
        return name

    def _rows(self, trials: Sequence[FrozenTrial]) -> list[Row]:
        """Finished trials as rows; a warning is shown once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = rows_of_trials(trials, self.space, self.settings.objectives, self._architecture)
        for message in dict.fromkeys(str(warning.message) for warning in caught):
            if message not in self._warned:
                self._warned.add(message)
                warnings.warn(message, stacklevel=2)
        return rows

    def _suggested_for(self, trials: Sequence[FrozenTrial]) -> list[str]:
        """The architectures of trials that run, and those that were suggested for finished ones.

        Those of finished trials that asked for no gene are left out, since nothing is known of them.
        """
        names = []
        for trial in trials:
            suggested = trial.system_attrs.get(SUGGESTED, "")
            if trial.state.is_finished() and not self._genes.keys() & trial.params.keys():
                continue
            names += [name for name in (self._name(trial.params), suggested) if name]
        return list(dict.fromkeys(names))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value of a parameter that is no gene."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Warn, once, of a trial that did not use the suggested architecture, or has counts of another.

        If there is no further architecture, `optimize` of Optuna ends.
        """
        if self._is_exhausted(study):
            with suppress(RuntimeError):  # of a trial of `ask`
                study.stop()
        if state != TrialState.COMPLETE or self._has_warned:
            return
        if message := self._misuse(trial, values or ()):
            self._has_warned = True
            warnings.warn(message, stacklevel=2)

    def _is_exhausted(self, study: optuna.Study) -> bool:
        """Whether each architecture that meets the exact constraints has a trial."""
        names = {self._name(trial.params) for trial in study.get_trials(deepcopy=False)} - {""}
        with SUGGESTING:  # the pool grows in suggestions of other threads
            return self._suggester.is_exhausted(names, self._candidates)

    def _misuse(self, trial: FrozenTrial, values: Sequence[float]) -> str:
        """What is wrong with the genes or counts of a complete trial; empty if nothing is."""
        missing = [gene for gene in self._genes if gene not in trial.params]
        advice = "get the architecture from suggest_architecture(trial, space) in the objective function"
        if len(missing) == len(self._genes):
            return (
                f"trial {trial.number} has the parameters {', '.join(trial.params) or 'none'}, which are"
                f" random: {advice}"
            )
        if missing:
            return f"trial {trial.number} has no {listed(missing)}, so that nothing is learnt: {advice}"
        for gene, expected in self._genes.items():
            if trial.distributions[gene] != expected:
                return (
                    f"trial {trial.number} has {gene} from {trial.distributions[gene]}, and {self.space.name}"
                    f" has {expected}: {advice}, with the space of the sampler"
                )
        if not (name := self._name(trial.params)):
            return ""
        try:
            targets = dict(zip(self.settings.objectives, values, strict=True))
            _check_counts(Row(self.space.name, name, targets), self.space)
        except ValueError as error:
            return f"trial {trial.number}: {error}; suggestions go by the counts of the space"
        return ""

    def _architecture(self, params: Mapping[str, Any]) -> Any:
        genes = [params[gene] for gene in self._genes]
        if not all(map(is_whole_number, genes)):
            raise ValueError(f"genes are {genes}, expected whole numbers")
        return self.space.decode(np.array(genes))

    def _name(self, params: Mapping[str, Any]) -> str:
        """The architecture of parameters; empty if they are none."""
        try:
            return str(self._architecture(params))
        except (ValueError, KeyError):
            return ""


def _others(study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
    """All trials of a study but one, as its storage has them now."""
    return [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]


def rows_of_trials(
    trials: Sequence[FrozenTrial],
    space: SearchSpace[Any],
    objectives: Sequence[str],
    architecture: Callable[[Mapping[str, Any]], Any],
    omissions: Omissions | None = None,
) -> list[Row]:
    """Return finished Optuna trials as rows; failed and pruned ones have no values.

    Optuna accepts infinite values, and does not know that an accuracy is a percentage: a trial with a value
    that its objective cannot have counts as failed.

    Args:
        trials: the trials.
        space: the search space.
        objectives: a name for each value of a trial.
        architecture: function from the parameters of a trial to an architecture of the space, or its text. A
            trial for which it raises a ValueError or KeyError is left out.
        omissions: counts the complete trials that are left out.

    Returns:
        One row per architecture, in the order in which the trials finished, with the means of its complete
        trials; without values if all failed.

    Warns:
        UserWarning: values are not those of their objectives.
    """
    values: dict[str, list[dict[str, float]]] = {}
    finished = [
        (trial.datetime_complete, trial.number, trial)
        for trial in trials
        if trial.state.is_finished() and trial.datetime_complete
    ]
    for _, _, trial in sorted(finished, key=lambda entry: entry[:2]):
        try:
            name = str(space.parse(str(architecture(trial.params))))
        except (ValueError, KeyError) as error:
            if omissions is not None and trial.state == TrialState.COMPLETE:
                omissions.add(f"trial {trial.number}", describe_error(error))
            continue
        except Exception as error:  # of the user's function
            raise ValueError(
                f"the function of parameters failed for trial {trial.number} with {dict(trial.params)}:"
                f" {describe_error(error)}"
            ) from error
        targets = _targets(trial, objectives) if trial.state == TrialState.COMPLETE else {}
        values.setdefault(name, []).extend([targets] if targets else [])
    means = {name: {key: fmean(t[key] for t in v) for key in objectives if v} for name, v in values.items()}
    return [Row(space.name, name, targets) for name, targets in means.items()]


def _targets(trial: FrozenTrial, objectives: Sequence[str]) -> dict[str, float]:
    """The values of a complete trial by objective; none if one of them is invalid."""
    targets = dict(zip(objectives, trial.values, strict=True))
    for name, value in targets.items():
        if to_number(value) is None or not is_valid_target(name, value):
            warnings.warn(
                f"trial {trial.number} of the Optuna study counts as failed: {name} is {value:g}, expected"
                f" {expected_value(name)}",
                stacklevel=2,
            )
            return {}
    return targets


def labels(
    study: optuna.Study,
    space: str | SearchSpace[Any],
    objectives: Sequence[str],
    architecture: Callable[[Mapping[str, Any]], Any],
) -> list[Row]:
    """Return the complete trials of an Optuna study as labels, for `Study.add_table` or a table.

    An architecture with several complete trials, such as with other learning rates, has their mean values.

    Examples:
        >>> rows = labels(optuna_study, "nasbench201", ["accuracy"], to_cell)  # doctest: +SKIP
        >>> study.add_table(rows)  # doctest: +SKIP

    Args:
        study: the study of Optuna.
        space: the search space, or its name.
        objectives: a name for each value of a trial, in order.
        architecture: function from the parameters of a trial to an architecture of the space, or its text. A
            trial for which it raises a ValueError or KeyError is left out.

    Raises:
        ValueError: the function raises another error, a trial has another number of values, none is complete
            and of the space, the study minimises an objective that is maximised, or `flops` or `params` are
            not those of an architecture.

    Warns:
        UserWarning: complete trials are left out, or the study maximises an objective of a kind that is not.
    """
    space = search_spaces.register(space)
    objectives = as_list(objectives, "objectives")
    if len(study.directions) != len(objectives):
        raise ValueError(
            f"the study has {counted(len(study.directions), 'value')} for {counted(len(objectives), 'name')}:"
            f" {', '.join(objectives)}"
        )
    for name, direction in zip(objectives, study.directions, strict=True):
        if kind_of(name).is_maximised and direction == StudyDirection.MINIMIZE:
            raise ValueError(
                f"{name} is maximised, and the Optuna study minimises it: expected the names of the values in"
                " their order, and for values to minimise the name of a cost, such as loss"
            )
        if not kind_of(name).is_maximised and direction == StudyDirection.MAXIMIZE:
            warnings.warn(
                f"the Optuna study maximises {name}, which a Study minimises: give it as maximise there",
                stacklevel=2,
            )
    omissions = Omissions()
    rows = rows_of_trials(study.trials, space, objectives, architecture, omissions)
    complete = [row for row in rows if row.targets]
    if not complete:
        reason = f": {omissions.first_reason}" if omissions else ""
        raise ValueError(
            f"none of {counted(len(study.trials), 'trial')} is complete, with valid values, and an"
            f" architecture of {space.name}{reason}"
        )
    omissions.warn(stacklevel=2)
    for row in complete:
        _check_counts(row, space)
    return complete


def _check_counts(row: Row, space: SearchSpace[Any]) -> None:
    """Refuse a label of `flops` or `params` that is not what the space counts."""
    counts = exact_values(space, space.parse(row.arch_str), list(row.targets))
    for name, count in counts.items():
        if not math.isclose(row.targets[name], count):
            raise ValueError(
                f"{name} of {row.arch_str} is {row.targets[name]:g}, and {space.name} counts {count:,.0f}:"
                " expected the names of the values in their order, and another name for other counts"
            )
