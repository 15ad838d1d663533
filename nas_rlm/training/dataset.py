"""What training reads: rows as tokens and numbers, drawn into batches, some numbers of each row at a time.

Everything random is drawn from (seed, epoch, batch), so that a resumed run meets the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.tables import Row
from nas_rlm.model.batching import pad
from nas_rlm.model.network import Config
from nas_rlm.model.numbers import TOKENS
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.training.recipe import Recipe, TableRecipe

IGNORED = -100
WITHOUT_ACCURACY = 0.5  # share of sequences that leave accuracy out, since quantiles are asked alone
WIDE = 4  # times a quarter's value is another quarter's: noise is by factors then
QUARTILES = 1.349  # standard deviations of a normal distribution between its quartiles


@dataclass
class Examples:
    """Rows of one table.

    Args:
        recipe: how the table is used.
        ids: the tokens of each row's text.
        numbers: for each row, objective token to value.
        spread: objective token to the standard deviation of its values, told from their quartiles; of those
            that range over orders of magnitude, `wide`, to that of their logarithms.
    """

    recipe: TableRecipe
    ids: list[np.ndarray]
    numbers: list[dict[int, float]]
    spread: dict[int, float] = field(init=False)
    wide: set[int] = field(init=False)

    def __post_init__(self) -> None:
        columns: dict[int, list[float]] = {}
        for numbers in self.numbers:
            for token, value in numbers.items():
                columns.setdefault(token, []).append(value)
        quartiles = {t: np.quantile(c, (0.25, 0.75)) for t, c in columns.items()}
        self.wide = {t for t, (low, high) in quartiles.items() if 0 < WIDE * low < high}
        self.spread = {
            t: float(np.diff(np.log(ends) if t in self.wide else ends)[0]) / QUARTILES
            for t, ends in quartiles.items()
        }

    def shaken(self, objective: int, value: float, amount: float) -> float:
        """A number with noise: so many times its objective's spread."""
        noise = amount * self.spread[objective]
        return value * math.exp(noise) if objective in self.wide else value + noise

    def __len__(self) -> int:
        return len(self.ids)


Batch = list[tuple[Examples, int]]


def examples_of(rlm: Ensemble, rows: Sequence[Row], recipe: TableRecipe, texts: Sequence[str]) -> Examples:
    """Tokenise rows and those of their numbers that the model knows."""
    position = {name: TOKENS + i for i, name in enumerate(rlm.objectives)}
    numbers = [
        {position[k]: v for k, v in row.targets.items() if k in position and row.measured(k)} for row in rows
    ]
    return Examples(recipe, [np.array(rlm.token_ids(t), dtype=np.int64) for t in texts], numbers)


def batches(examples: list[Examples], recipe: Recipe, epoch: int) -> Iterator[Batch]:
    """An epoch's batches: rows drawn and shuffled by (seed, epoch), batches of texts of similar length."""
    rng = np.random.default_rng([recipe.seed, epoch])
    drawn: Batch = []
    for e in examples:
        rows = [i for i in range(len(e)) if e.numbers[i]]
        if not rows:
            continue
        wanted = e.recipe.rows or len(rows)
        passes = [rng.permutation(rows) for _ in range(-(-wanted // len(rows)))]
        drawn += [(e, int(i)) for i in np.concatenate(passes)[:wanted]]
    pool = [drawn[i] for i in rng.permutation(len(drawn))]
    size, window = recipe.batch_size, recipe.batch_size * 32
    found = []
    for start in range(0, len(pool), window):
        near = sorted(pool[start : start + window], key=lambda p: len(p[0].ids[p[1]]))
        found += [near[i : i + size] for i in range(0, len(near), size)]
    for b in rng.permutation(len(found)):
        yield found[b]


def collate(
    batch: Batch, rng: np.random.Generator, config: Config, noise: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch as tensors: accuracy first in a half of the sequences, then others in random order.

    Accuracy weighs as much as all other numbers of its sequence together: with equal weights it drowns among
    many devices' latencies. Noise tells the digits, which the loss takes for unrelated classes, which
    numbers are near each other.

    Args:
        batch: B rows.
        rng: source of randomness.
        config: of the network.
        noise: standard deviation of what is added to each number, relative to its objective's spread.

    Returns:
        Text ids [B, T]; decoder tokens [B * n, t], the n sequences of one text together; the token after
        each, with the objectives' places ignored; the weight of each in the loss.
    """
    accuracy = config.objective_ids(["accuracy"])[0] if "accuracy" in config.objectives else -1
    drawn = [_sequences(e, i, accuracy, config.numbers, rng) for e, i in batch]
    most = max(map(len, drawn))
    given, wanted, weights = [], [], []
    for (e, i), sequences in zip(batch, drawn, strict=True):
        numbers = e.numbers[i]
        for chosen in sequences + [[]] * (most - len(sequences)):
            shaken = noise * rng.standard_normal(len(chosen))
            written = [
                config.scheme.encode(e.shaken(k, numbers[k], x)) for k, x in zip(chosen, shaken, strict=True)
            ]
            share = 1.0 / max(1, len(chosen) - (accuracy in chosen))
            given.append([t for k, digits in zip(chosen, written, strict=True) for t in (k, *digits)])
            wanted.append([t for digits in written for t in (*digits, IGNORED)])
            each = [1.0 if k == accuracy else share for k in chosen]
            weights.append([w for w in each for _ in range(1 + config.scheme.length)])
    return (
        torch.from_numpy(pad([e.ids[i].tolist() for e, i in batch])),
        _filled(given, 0),
        _filled(wanted, IGNORED),
        _filled(weights, 0.0),
    )


def _sequences(e: Examples, row: int, accuracy: int, most: int, rng: np.random.Generator) -> list[list[int]]:
    """Which numbers of a row the decoder writes, in sequences that do not know of each other.

    All but accuracy are dealt out without repetition, few or many to a sequence: in a long one most numbers
    are told from those before them instead of from the text.
    """
    numbers = e.numbers[row]
    others = [k for k in numbers if k != accuracy]
    dealt = [others[j] for j in rng.permutation(len(others))]
    found: list[list[int]] = []
    while len(found) < e.recipe.sequences and (dealt or not found):
        alone = len(numbers) > 1 and rng.random() < WITHOUT_ACCURACY
        first = [accuracy] if accuracy in numbers and not alone else []
        length = int(rng.integers(1, most - len(first), endpoint=True))
        found.append(first + dealt[:length])
        dealt = dealt[length:]
    return found


def _filled(rows: Sequence[Sequence[float]], filler: float) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
