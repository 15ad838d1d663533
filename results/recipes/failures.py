"""Count the trainings that fail in a study, in spaces of which some networks cannot be trained.

    python results/recipes/failures.py TABLES results/benchmarks/failures.jsonl

A rule says which networks fail; no method knows it. Compared are studies that learn the probability of
failures, studies that avoid only operators that failed networks alone have, Optuna's TPE, and random choices.
TABLES is a directory with tables of measured networks; surrogates of the space in question are not used.
Results that the file has are not computed again.
"""

import itertools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.results import Results
from nas_rlm.benchmarks.search.gene_optimizers import ORDERED_SPACES, gene_optimizer, nearest_new
from nas_rlm.benchmarks.search.proposals import without_network
from nas_rlm.data import Row, read
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.improvement_search import select_by_improvement_and_cost
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.objectives import ObjectivePredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.registry import graph_surrogates
from search_spaces import SearchSpace, blocks

NUM_TRIALS, SEEDS = 40, range(5)
MAX_ROWS = 20_000  # of a table, drawn at random
NUM_IN_SHARE = 500  # architectures of which the share that fails is counted
WIDTHS, KERNELS = (4, 8, 12, 16, 24), (3, 5)
LEARNED, OPERATORS, TPE, RANDOM = METHODS = ("learned", "operators alone", "Optuna TPE", "random")
ACCURACY = "accuracy"
KEY_NAMES = ("space", "rule", "method", "seed")


@dataclass(frozen=True)
class Plain:
    """Width and kernel of each of four stages."""

    stages: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return "-".join(f"{width}x{kernel}" for width, kernel in self.stages)


class PlainStages(SearchSpace[Plain]):
    """Four convolutions, each with a width and a kernel."""

    name, size, input_shape = "plain_stages", 10**4, (3, 16, 16)
    genes = (len(WIDTHS), len(KERNELS)) * 4

    def decode(self, genome):
        genes = [int(gene) for gene in self.validate_genome(genome)]
        return Plain(tuple((WIDTHS[w], KERNELS[k]) for w, k in zip(genes[::2], genes[1::2], strict=True)))

    def encode(self, architecture):
        return np.array([i for w, k in architecture.stages for i in (WIDTHS.index(w), KERNELS.index(k))])

    def parse(self, text):
        return Plain(tuple((int(w), int(k)) for w, k in re.findall(r"(\d+)x(\d)", text)))

    def write(self, graph, architecture):
        x = graph.input
        for i, (width, kernel) in enumerate(architecture.stages):
            x = blocks.conv_norm(graph, x, width, kernel, stride=2 if i else 1)
        return blocks.classifier(graph, x, 10)


def accuracy(architecture: Plain) -> float:
    """A made-up accuracy, which grows with widths and kernels, most in the last stage."""
    of_widths = sum(4 * np.log2(w) * (0.4 + 0.2 * i) for i, (w, _) in enumerate(architecture.stages))
    return float(40 + of_widths + sum(0.8 * (kernel == 5) for _, kernel in architecture.stages))


@dataclass(frozen=True)
class Case:
    """A space, and the rule by which its networks fail.

    Args:
        space: its name.
        rule: what fails.
        fails: whether the network of an architecture fails, by the space and the architecture.
    """

    space: str
    rule: str
    fails: Callable[[SearchSpace, Any], bool]


CASES = (
    Case("plain_stages", "a last stage of 24x5", lambda space, a: a.stages[3] == (24, 5)),
    Case("plain_stages", "a first stage of 4x3", lambda space, a: a.stages[0] == (4, 3)),
    Case("plain_stages", "the largest fifth", lambda space, a: space.flops(a) > 6.3e5),
    Case("plain_stages", "a tenth by chance", lambda space, a: hash_of(a) % 10 == 0),
    Case("nasbench201", "3x3 on the first edge", lambda space, a: str(a).startswith("|nor_conv_3x3~0")),
    Case("nasbench201", "more than 120 million FLOPs", lambda space, a: space.flops(a) > 1.2e8),
    Case("nasbench201", "a tenth by chance", lambda space, a: hash_of(a) % 10 == 0),
    Case("nats_size", "a last width of 56 or 64", lambda space, a: str(a).split(":")[4] in ("56", "64")),
    Case("nats_size", "more than 40 million FLOPs", lambda space, a: space.flops(a) > 4e7),
    # Of spaces that were not looked at while the model of failures was designed:
    Case("nasbench101", "more than 1.2 billion FLOPs", lambda space, a: space.flops(a) > 1.2e9),
    Case("ofa_mbv3", "last value of the first gene", lambda space, a: space.encode(a)[0] == 2),
)


def hash_of(architecture: object) -> int:
    """A number that looks random, and is the same in each process."""
    return int(np.random.default_rng(list(str(architecture).encode())).integers(1000))


class WithoutProbability(OnlineSurrogate):
    """Avoids operators alone."""

    def success_probabilities(self, names):
        return np.ones(len(names))


class StudyChoice:
    """Chooses what a study trains next, and learns what it finds; None stands for a failure."""

    def __init__(self, kind: type[OnlineSurrogate], space: SearchSpace, rlm: RLM, features: dict, seed: int):
        predictor = CachedPredictor(ObjectivePredictor(rlm), space, False, features)
        self._surrogate = kind(predictor, [ACCURACY], graph_surrogates(rlm.surrogates))
        self._settings = SearchSettings(space.name, (ACCURACY,), seed=seed)
        self._pool, self._space = CandidatePool(space, seed), space.name

    def ask(self) -> str:
        (name,) = propose(self._surrogate, self._settings, 1, (), self._pool, select_by_improvement_and_cost)
        return name

    def tell(self, name: str, value: float | None) -> None:
        self._surrogate.update([Row(self._space, name, {} if value is None else {ACCURACY: value})])


class TPEChoice:
    """Chooses the new candidate nearest to a suggestion of Optuna's TPE; a failure has infinite cost."""

    def __init__(self, space: SearchSpace, candidates: Mapping[str, np.ndarray], seed: int):
        self._optimizer = gene_optimizer("tpe", space, 1, NUM_TRIALS, seed)
        self._names, self._genomes = [*candidates], np.array([*candidates.values()])
        self._is_new, self._is_ordered = np.ones(len(candidates), bool), space.name in ORDERED_SPACES

    def ask(self) -> str:
        genes = self._optimizer.ask()
        return self._names[nearest_new(self._genomes, genes, self._is_new, self._is_ordered)]

    def tell(self, name: str, value: float | None) -> None:
        self._optimizer.tell([np.inf if value is None else -value])


class RandomChoice:
    """Chooses candidates at random."""

    def __init__(self, candidates: Mapping[str, np.ndarray], seed: int):
        self._names = np.random.default_rng(seed).permutation([*candidates]).tolist()

    def ask(self) -> str:
        return self._names.pop()

    def tell(self, name: str, value: float | None) -> None:
        pass


@dataclass(frozen=True)
class Found:
    """What a search found: how many trainings failed, and the best accuracy."""

    failures: int
    best: float


class Runs:
    """Searches in a space, by all methods.

    Args:
        space: its name.
        values: accuracies of the architectures of a table; empty where all architectures of the space are
            candidates, of which a formula has the accuracy.
        rlm: the model, without what it has of this space.
    """

    def __init__(self, space: str, values: dict[str, float], rlm: RLM) -> None:
        self.full_space, self._values, self._rlm = search_spaces.get(space), values, rlm
        self._space = TableSpace(self.full_space, list(values)) if values else self.full_space
        self._features: dict = {}
        genomes = itertools.product(*map(range, self.full_space.genes)) if not values else ()
        self.candidates = {str(self.full_space.decode(genome)): np.array(genome) for genome in genomes}
        self.candidates |= {name: self.full_space.encode(self.full_space.parse(name)) for name in values}

    def run(self, case: Case, method: str, seed: int) -> Found:
        """Run one search."""
        choice = self._choice(method, seed)
        outcomes: list[float | None] = []
        for _ in range(NUM_TRIALS):
            name = choice.ask()
            architecture = self.full_space.parse(name)
            value = self._values[name] if self._values else accuracy(architecture)
            outcomes.append(None if case.fails(self.full_space, architecture) else value)
            choice.tell(name, outcomes[-1])
        found = [value for value in outcomes if value is not None]
        return Found(len(outcomes) - len(found), max(found))

    def _choice(self, method: str, seed: int) -> StudyChoice | TPEChoice | RandomChoice:
        if method == RANDOM:
            return RandomChoice(self.candidates, seed)
        if method == TPE:
            return TPEChoice(self.full_space, self.candidates, seed)
        kind = OnlineSurrogate if method == LEARNED else WithoutProbability
        return StudyChoice(kind, self._space, self._rlm, self._features, seed)


def failing_share(case: Case, runs: Runs) -> float:
    """The share of candidates that fails, of a random sample."""
    names = np.random.default_rng(0).permutation([*runs.candidates])[:NUM_IN_SHARE].tolist()
    fails = [case.fails(runs.full_space, runs.full_space.parse(name)) for name in names]
    return float(np.mean(fails))


def main(tables: str, output: str) -> None:
    """Run each case, method and seed, and print shares that fail, means and worst values."""
    search_spaces.register(PlainStages())
    results, shipped = Results(Path(output), Found, {}, KEY_NAMES, decimals=3), RLM.load("nas")
    shares: dict[Case, float] = {}
    for name in dict.fromkeys(case.space for case in CASES):
        values = {} if name == PlainStages.name else accuracies(Path(tables) / f"{name}.parquet")
        runs = Runs(name, values, without_network(shipped, name))
        of_space = [case for case in CASES if case.space == name]
        shares |= {case: failing_share(case, runs) for case in of_space}
        for case, method, seed in itertools.product(of_space, METHODS, SEEDS):
            if (key := (name, case.rule, method, seed)) not in results.records:
                results.add(key, runs.run(case, method, seed))
    for case, method in itertools.product(CASES, METHODS):
        found = [results.records[case.space, case.rule, method, seed] for seed in SEEDS]
        failures, best = [f.failures for f in found], [f.best for f in found]
        print(f"{case.space:13} {case.rule:28} {shares[case]:4.0%} {method:16}", end=" ")
        print(f"{np.mean(failures):5.1f} ({max(failures)})  {np.mean(best):.2f} ({min(best):.2f})")


def accuracies(table: Path) -> dict[str, float]:
    """The accuracies of random rows of a table, by architecture."""
    rows = read(table).where_measured(ACCURACY).sample(MAX_ROWS).rows
    return {row.arch_str: row.targets[ACCURACY] for row in rows}


if __name__ == "__main__":
    main(*sys.argv[1:])
