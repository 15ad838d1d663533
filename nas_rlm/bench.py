"""How good and how fast: fronts looked up in a table of measurements, texts a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.data import Table
from nas_rlm.data.foreign import exports
from nas_rlm.pareto import hypervolume, nondominated
from nas_rlm.references import published
from nas_rlm.search import Predictor, search
from nas_rlm.settings import Settings
from nas_rlm.text import Tokenizer, from_architectures, from_onnx
from nas_rlm.text.memory import undisturbed
from search_spaces import SearchSpace

PAIRS = (("accuracy", "latency/pixel3"), ("accuracy", "latency/eyeriss"))


@dataclass(frozen=True)
class Judgement:
    """What one way of searching found, in true values.

    Args:
        evaluations: architectures that were looked at.
        chosen: architectures that the method would hand over.
        known: how many of them the table has; the others count for nothing.
        share: hypervolume of their true values, relative to that of the whole table.
        share_within: the same, had the method chosen among the evaluated architectures of the table alone, so
            that those without measurements cannot crowd out others.
    """

    evaluations: int
    chosen: int
    known: int
    share: float
    share_within: float


def judge_search(
    space: SearchSpace[Any],
    predictor: Predictor,
    table: Table,
    pairs: Sequence[tuple[str, ...]] = PAIRS,
    population: int = 50,
    generations: int = 20,
    seeds: int = 1,
    progress: bool = False,
) -> dict[tuple[tuple[str, ...], str], list[Judgement]]:
    """Search for each set of objectives, beside random search with as many evaluations.

    The methods are `nsga2`; `random`, the model's front of a random sample; and `measured`, that sample
    itself, as if every one of its architectures had been trained and timed.

    Args:
        space: of the table's architectures.
        predictor: the model; the table's true values are used for the judgement alone.
        table: measurements.
        pairs: sets of objectives, each with a published reference point.
        population: architectures a generation.
        generations: rounds of evaluation.
        seeds: so many searches of each kind, with seeds from 0.
        progress: show bars.

    Returns:
        Objectives and method to a judgement for each seed.
    """
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected at least 1")
    found: dict[tuple[tuple[str, ...], str], list[Judgement]] = {}
    for objectives in pairs:
        true = _true_values(table, objectives)
        corner = [published(space.name)[name] for name in objectives]
        for seed in range(seeds):
            for method in ("nsga2", "random"):
                settings = Settings(space.name, objectives, (), method, population, generations, seed)
                result = search(space, predictor, settings, progress=progress)
                names = result.architectures
                known = [i for i, name in enumerate(names) if name in true]
                within = np.flatnonzero(nondominated(result.medians[known], objectives))
                judgement = _judge(
                    true,
                    objectives,
                    corner,
                    len(names),
                    [names[i] for i in result.front],
                    [names[known[i]] for i in within],
                )
                found.setdefault((objectives, method), []).append(judgement)
            found.setdefault((objectives, "measured"), []).append(
                _judge(true, objectives, corner, len(names), names, names)
            )
    return found


@dataclass(frozen=True)
class TextSpeed:
    """What texts of a space cost.

    Args:
        tokens: of a network, the median.
        most: of the longest.
        per_second: networks from genotype to token ids on one core, once as many have been read before.
    """

    tokens: float
    most: int
    per_second: float


def text_speed(space: SearchSpace[Any], tokenizer: Tokenizer, count: int, seed: int = 0) -> TextSpeed:
    """Measure the way from random genotypes to token ids.

    Args:
        space: where the genotypes come from.
        tokenizer: whose tokens are counted.
        count: of networks.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    warm, architectures = ([space.sample(rng) for _ in range(count)] for _ in range(2))
    for text in from_architectures(space, warm):
        tokenizer.encode(text)
    with undisturbed():  # as `RLM.predict` does
        start = time.perf_counter()
        lengths = [len(tokenizer.encode(t)) for t in from_architectures(space, architectures)]
        elapsed = time.perf_counter() - start
    return TextSpeed(float(np.median(lengths)), max(lengths), count / elapsed)


@dataclass(frozen=True)
class ForeignTokens:
    """What the text of an exported network costs.

    Args:
        exporter: "dynamo" or "torchscript".
        operators: of the exported graph.
        flat: tokens without functions.
        outlined: tokens of the text that a model reads.
        unknown: bytes for which the tokenizer has no piece, in the latter.
    """

    exporter: str
    operators: int
    flat: int
    outlined: int
    unknown: int


def foreign_tokens(name: str, tokenizer: Tokenizer) -> list[ForeignTokens]:
    """Measure a reference network of `nas_rlm.data.foreign`, by each exporter that can write it."""
    found = []
    for exporter, model in exports(name):
        flat, outlined = (tokenizer.encode(from_onnx(model, outlined=o)) for o in (False, True))
        unknown = tokenizer.unknown(outlined)
        found.append(ForeignTokens(exporter, len(model.graph.node), len(flat), len(outlined), unknown))
    return found


def _judge(
    true: dict[str, list[float]],
    objectives: tuple[str, ...],
    corner: Sequence[float],
    evaluations: int,
    chosen: Sequence[str],
    within: Sequence[str],
) -> Judgement:
    best = hypervolume(np.array(list(true.values())), objectives, corner)

    def share(names: Sequence[str]) -> float:
        known = np.array([true[name] for name in names if name in true]).reshape(-1, len(objectives))
        return hypervolume(known, objectives, corner) / best

    known = sum(name in true for name in chosen)
    return Judgement(evaluations, len(chosen), known, share(chosen), share(within))


def _true_values(table: Table, objectives: Sequence[str]) -> dict[str, list[float]]:
    rows = [r for r in table.rows if all(o in r.targets for o in objectives)]
    if not rows:
        raise ValueError(f"no row of {table.name} has both {' and '.join(objectives)}")
    return {r.arch_str: [r.targets[o] for o in objectives] for r in rows}
