"""Optimisers of other packages, which suggest genomes: Optuna's samplers and SMAC.

A suggestion that is not in a table or was evaluated before is replaced by the nearest new genome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nas_rlm.benchmarks.schedule import POPULATION
from nas_rlm.utils.extras import require
from search_spaces import SearchSpace

if TYPE_CHECKING:
    import optuna

OPTUNA, SMAC = ("tpe", "gp", "optuna_nsga2"), "smac"
GENE_OPTIMIZERS = (*OPTUNA, SMAC)
ORDERED_SPACES = ("nats_size", "ofa_mbv3", "ofa_proxyless", "ofa_resnet50")  # whose genes are numbers


class GeneOptimizer(Protocol):
    """Suggests genomes, and learns from their costs."""

    def ask(self) -> list[int]:
        """Return the next genome."""

    def tell(self, costs: Sequence[float]) -> None:
        """Give the costs of the last genome, which are minimised."""


def gene_optimizer(
    method: str, space: SearchSpace[Any], num_objectives: int, count: int, seed: int
) -> GeneOptimizer:
    """Return an optimiser.

    Args:
        method: one of `GENE_OPTIMIZERS`.
        space: the search space.
        num_objectives: number of costs of a genome.
        count: number of genomes that are asked for.
        seed: its seed.

    Raises:
        ValueError: its package is not installed.
    """
    if method == SMAC:
        return _Smac(space, num_objectives, count, seed)
    return _Optuna(method, space, num_objectives, seed)


class _Optuna:
    """A sampler of Optuna."""

    def __init__(self, method: str, space: SearchSpace[Any], num_objectives: int, seed: int) -> None:
        require("optuna", "a comparison with Optuna")
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers: dict[str, Callable[..., optuna.samplers.BaseSampler]] = {
            "tpe": optuna.samplers.TPESampler,
            "gp": optuna.samplers.GPSampler,
            "optuna_nsga2": partial(optuna.samplers.NSGAIISampler, population_size=POPULATION),
        }
        directions = [optuna.study.StudyDirection.MINIMIZE] * num_objectives
        self._study = optuna.create_study(directions=directions, sampler=samplers[method](seed=seed))
        self._space = space

    def ask(self) -> list[int]:
        self._trial = self._study.ask()
        return optuna_genes(self._trial, self._space)

    def tell(self, costs: Sequence[float]) -> None:
        self._study.tell(self._trial, list(costs))


class _Smac:
    """SMAC with random forests; several objectives are scalarised as in ParEGO."""

    def __init__(self, space: SearchSpace[Any], num_objectives: int, count: int, seed: int) -> None:
        require("smac", "a comparison with SMAC")
        import ConfigSpace
        from smac import HyperparameterOptimizationFacade, Scenario
        from smac.multi_objective.parego import ParEGO

        self._names = {f"gene{i}": size for i, size in enumerate(space.genes)}
        configurations = ConfigSpace.ConfigurationSpace(seed=seed)
        for name, size in self._names.items():
            if size > 1:
                gene = (
                    ConfigSpace.Integer(name, (0, size - 1))
                    if space.name in ORDERED_SPACES
                    else ConfigSpace.Categorical(name, list(range(size)))
                )
                configurations.add(gene)
        self._directory = TemporaryDirectory()  # it writes its history
        scenario = Scenario(
            configurations,
            objectives=[f"cost{k}" for k in range(num_objectives)],
            n_trials=count,
            deterministic=True,
            seed=seed,
            output_directory=Path(self._directory.name),
        )
        self._facade = HyperparameterOptimizationFacade(
            scenario,
            lambda config, seed=0: 0.0,  # is not called
            multi_objective_algorithm=ParEGO(scenario) if num_objectives > 1 else None,
            overwrite=True,
            logging_level=False,
        )

    def ask(self) -> list[int]:
        self._trial = self._facade.ask()
        suggested = dict(self._trial.config)
        return [int(suggested.get(name, 0)) for name in self._names]

    def tell(self, costs: Sequence[float]) -> None:
        from smac.runhistory.dataclasses import TrialValue

        cost = [float(value) for value in costs]
        self._facade.tell(self._trial, TrialValue(cost=cost if len(cost) > 1 else cost[0]))


def optuna_genes(trial: optuna.Trial, space: SearchSpace[Any]) -> list[int]:
    """Return the genome that Optuna suggests."""
    is_ordered = space.name in ORDERED_SPACES
    return [_suggest(trial, i, size, is_ordered) for i, size in enumerate(space.genes)]


def nearest_new(
    genomes: np.ndarray, genes: Sequence[int], is_new: np.ndarray, is_ordered: bool = False
) -> int:
    """Return the index of the nearest genome that is new, and mark it as not new.

    Args:
        genomes: int [N, G].
        genes: the genome to which it is near.
        is_new: bool [N], changed in place.
        is_ordered: whether genes are numbers.
    """
    differences = np.abs(genomes - np.array(genes)) if is_ordered else genomes != np.array(genes)
    nearest = int(np.where(is_new, differences.sum(1), np.inf).argmin())
    is_new[nearest] = False
    return nearest


def _suggest(trial: optuna.Trial, gene: int, size: int, is_ordered: bool) -> int:
    """The value of a gene that Optuna suggests."""
    name = f"gene{gene}"
    if size == 1:
        return 0
    if is_ordered:
        return int(trial.suggest_int(name, 0, size - 1))
    return int(trial.suggest_categorical(name, list(range(size))))
