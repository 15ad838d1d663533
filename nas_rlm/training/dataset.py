"""Training data: rows as token ids and numbers, drawn into batches of decoder sequences.

All randomness is drawn from (seed, epoch, batch), so that a resumed run sees the same batches.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.tables import Row
from nas_rlm.model.batching import TruncationWarning, pad
from nas_rlm.model.network import Config
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.training.recipe import Recipe, TableRecipe
from search_spaces.wording import counted

MAX_TRAINED_TOKENS = 2048  # of a text; attention over longer ones does not fit into the memory of a batch
IGNORED = -100  # target that the loss leaves out
WITHOUT_ACCURACY_SHARE = 0.5  # of sequences, since quantiles are predicted without accuracy before them
WIDE_QUARTILE_RATIO = 4  # of the upper to the lower quartile, above which noise is multiplicative
WIDE_MAGNITUDE_RATIO = 100  # the same of magnitudes, for values of both signs
MAX_LOG = math.log(sys.float_info.max)
IQR_PER_STD = 1.349  # interquartile range of a normal distribution
BATCHES_PER_WINDOW = 32  # rows are sorted by length within a window


@dataclass
class Dataset:
    """Training rows of one table, as token ids and numbers.

    Args:
        recipe: settings of the table.
        ids: token ids of each row's text, int64 [T].
        numbers: value of each objective of each row, by the token of the objective.

    Attributes:
        spread: standard deviation of the values of each objective, by its token, estimated from their
            quartiles; that of the logarithms for objectives in `wide`.
        wide: tokens of the objectives whose values vary by a large factor, all of one sign or not.
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
                if math.isfinite(value):
                    columns.setdefault(token, []).append(value)
        quartiles = {t: np.quantile(c, (0.25, 0.75)) for t, c in columns.items()}
        magnitudes = {t: np.quantile(np.abs(c), (0.25, 0.75)) for t, c in columns.items()}
        self.wide = {t for t, (low, high) in quartiles.items() if 0 < low < high / WIDE_QUARTILE_RATIO}
        self.wide |= {t for t, (low, high) in magnitudes.items() if 0 < low < high / WIDE_MAGNITUDE_RATIO}
        ends = {t: np.log(magnitudes[t]) if t in self.wide else quartiles[t] for t in columns}
        with np.errstate(over="ignore"):  # of differences of the largest floats
            self.spread = {t: float(np.diff(e)[0]) / IQR_PER_STD for t, e in ends.items()}

    def with_noise(self, objective: int, value: float, amount: float) -> float:
        """Return a value with label noise, multiplicative for objectives in `wide`.

        Args:
            objective: token of the objective.
            value: label in units of the objective.
            amount: noise in units of the objective's `spread`.
        """
        noise = amount * self.spread.get(objective, 0.0)  # no spread without finite values
        changed = value * math.exp(min(noise, MAX_LOG)) if objective in self.wide else value + noise
        return changed if math.isfinite(changed) else value

    def __len__(self) -> int:
        return len(self.ids)


Batch = list[tuple[Dataset, int]]  # datasets with row indices


def make_dataset(rlm: Ensemble, rows: Sequence[Row], recipe: TableRecipe, texts: Sequence[str]) -> Dataset:
    """Tokenize rows, and keep their values of objectives that the model has.

    Args:
        rlm: model with the tokenizer and the objectives.
        rows: N rows.
        recipe: settings of the rows' table.
        texts: text of each row.
    """
    token = {name: NUM_DIGIT_TOKENS + i for i, name in enumerate(rlm.objectives)}
    numbers = [
        {token[name]: v for name, v in row.targets.items() if name in token and row.is_measured(name)}
        for row in rows
    ]
    ids = [rlm.token_ids(text)[:MAX_TRAINED_TOKENS] for text in texts]
    return Dataset(recipe, [np.array(tokens, dtype=np.int64) for tokens in ids], numbers)


@contextmanager
def truncation_reported(rlm: Ensemble, texts: Sequence[str]) -> Iterator[None]:
    """Warn once if training texts are truncated; within the context, predictions of them do not warn again.

    Args:
        rlm: the model that is trained.
        texts: texts of the training rows.

    Warns:
        TruncationWarning: texts are longer than training reads.
    """
    max_length = min(MAX_TRAINED_TOKENS, rlm.network.config.max_length)
    num_truncated = sum(len(rlm.full_token_ids(text)) > max_length for text in texts)
    if num_truncated:
        warnings.warn(
            f"training reads only the first {max_length:,} tokens of {num_truncated:,} of the"
            f" {counted(len(texts), 'text')}",
            TruncationWarning,
            stacklevel=5,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        yield


def batches(datasets: Sequence[Dataset], recipe: Recipe, epoch: int) -> Iterator[Batch]:
    """Yield the batches of an epoch, each of rows with texts of similar length.

    The draw of rows and the order of batches depend only on the seed and the epoch.

    Args:
        datasets: datasets from which rows are drawn.
        recipe: recipe with seed and batch size.
        epoch: number of the epoch, from 0.
    """
    rng = np.random.default_rng([recipe.seed, epoch])
    drawn: Batch = []
    for dataset in datasets:
        labelled = [i for i in range(len(dataset)) if dataset.numbers[i]]
        if not labelled:
            continue
        count = dataset.recipe.rows or len(labelled)
        passes = [rng.permutation(labelled) for _ in range(-(-count // len(labelled)))]
        drawn += [(dataset, int(i)) for i in np.concatenate(passes)[:count]]
    pool = [drawn[i] for i in rng.permutation(len(drawn))]
    size, window_size = recipe.batch_size, recipe.batch_size * BATCHES_PER_WINDOW
    epoch_batches = []
    for start in range(0, len(pool), window_size):
        window = sorted(pool[start : start + window_size], key=lambda item: len(item[0].ids[item[1]]))
        epoch_batches += [window[i : i + size] for i in range(0, len(window), size)]
    for b in rng.permutation(len(epoch_batches)):
        yield epoch_batches[b]


def collate(
    batch: Batch, rng: np.random.Generator, config: Config, noise: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make the tensors of a batch, with new decoder sequences and label noise.

    Accuracy is first in half of the sequences; other numbers are in random order. The loss weight of accuracy
    equals that of all other numbers of its sequence together, since it would otherwise be lost among many
    latencies. Label noise teaches the network that close numbers are similar, since for the loss digits are
    unrelated classes.

    Args:
        batch: B rows.
        rng: generator of the sequences and the noise.
        config: configuration of the network.
        noise: standard deviation of the label noise, in units of each objective's `spread`.

    Returns:
        Text ids [B, T]; decoder inputs [B * n, t], with the n sequences of a text in succession; targets
        [B * n, t], the token after each input, `IGNORED` before objective tokens; loss weights [B * n, t].
    """
    accuracy = config.objective_ids(["accuracy"])[0] if "accuracy" in config.objectives else -1
    drawn = [_draw_sequences(d, i, accuracy, config.max_numbers, rng) for d, i in batch]
    num_sequences = max(map(len, drawn))
    inputs, targets, weights = [], [], []
    for (dataset, i), sequences in zip(batch, drawn, strict=True):
        numbers = dataset.numbers[i]
        for objectives in sequences + [[]] * (num_sequences - len(sequences)):
            amounts = noise * rng.standard_normal(len(objectives))
            digits = [
                config.scheme.encode(dataset.with_noise(k, numbers[k], amount))
                for k, amount in zip(objectives, amounts, strict=True)
            ]
            inputs.append([t for k, number in zip(objectives, digits, strict=True) for t in (k, *number)])
            targets.append([t for number in digits for t in (*number, IGNORED)])
            share = 1.0 / max(1, len(objectives) - (accuracy in objectives))
            number_weights = [1.0 if k == accuracy else share for k in objectives]
            weights.append([w for w in number_weights for _ in range(1 + config.scheme.length)])
    return (
        torch.from_numpy(pad([d.ids[i].tolist() for d, i in batch])),
        _pad_rows(inputs, 0),
        _pad_rows(targets, IGNORED),
        _pad_rows(weights, 0.0),
    )


def _draw_sequences(
    dataset: Dataset, row: int, accuracy: int, max_numbers: int, rng: np.random.Generator
) -> list[list[int]]:
    """Draw the tokens of the objectives in each decoder sequence of a row.

    Each objective except accuracy is in at most one sequence. Lengths vary, since in a long sequence most
    numbers are predicted from those before them and not from the text.
    """
    numbers = dataset.numbers[row]
    others = [k for k in numbers if k != accuracy]
    remaining = [others[j] for j in rng.permutation(len(others))]
    sequences: list[list[int]] = []
    while len(sequences) < dataset.recipe.sequences and (remaining or not sequences):
        leaves_accuracy_out = len(numbers) > 1 and rng.random() < WITHOUT_ACCURACY_SHARE
        first = [accuracy] if accuracy in numbers and not leaves_accuracy_out else []
        length = int(rng.integers(1, max_numbers - len(first), endpoint=True))
        sequences.append(first + remaining[:length])
        remaining = remaining[length:]
    return sequences


def _pad_rows(rows: Sequence[Sequence[float]], value: float) -> Tensor:
    """Return rows of different lengths as a tensor, padded at the end with a value."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
