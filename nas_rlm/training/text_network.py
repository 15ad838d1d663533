"""The network of any texts and numbers: its tokenizer, its numbers, its size and its training."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from nas_rlm.data.text_data import TextData
from nas_rlm.files import ASSETS
from nas_rlm.metrics import pinball_loss
from nas_rlm.model.network import Config, Network
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS, NumberScheme
from nas_rlm.model.onnx_runtime import TOKENIZER_FILE
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from nas_rlm.text import Tokenizer
from nas_rlm.text.tokenizer import encodable
from nas_rlm.training.dataset import MAX_TRAINED_TOKENS, Dataset, batches
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.trainer import EpochCallback, fit

LEVELS = (0.1, 0.5, 0.9)  # of the quantiles that are validated
MIN_DIGITS, MAX_DIGITS = 4, 16  # of a mantissa
MAX_ROUNDING = 1e-3  # largest rounding error, in units of the range of the middle 80 % of the values
BASE_TOKENS = 800  # bytes, names of values, and the characters of ASCII
LEARNT_TOKENS = 1200  # merged from characters
MAX_CHARACTERS = 4000  # distinct ones that are tokens; the bytes of others are
MAX_TOKENIZER_TEXTS, MAX_TEXT_LENGTH = 4000, 20_000  # characters of a text that the tokenizer is trained on
ASCII = "".join(map(chr, range(32, 127)))
SIZES = ((200, 2), (2000, 3), (20_000, 4), (200_000, 6))  # of a network, for up to so many rows
LARGEST_SIZE = 8
BATCH_SIZE = 16
MAX_STEPS, MIN_STEPS, MAX_EPOCHS = 4000, 200, 100
MAX_TRAINED = 3e6  # tokens in all steps of a network of size 2; those of larger networks take longer
VALIDATION_STEPS, PATIENCE = 100, 6  # between validations, and validations without improvement
MAX_VALIDATION_ROWS = 100


def number_scheme(values: Sequence[np.ndarray]) -> NumberScheme:
    """Return the shortest scheme that writes all values, with a rounding error below `MAX_ROUNDING`.

    Examples:
        >>> number_scheme([np.array([1.5, 70.0])])
        NumberScheme(exponent_digits=1, mantissa_digits=4, has_infinity=True)
        >>> number_scheme([np.array([1e9 + 1, 1e9 + 2])]).mantissa_digits
        13

    Args:
        values: values of each objective, NaN where there is none.
    """
    finite = [column[np.isfinite(column)] for column in values]
    digits = max((_mantissa_digits(column) for column in finite if len(column)), default=MIN_DIGITS)
    magnitudes = np.abs(np.concatenate([*finite, np.ones(1)]))
    magnitudes = magnitudes[magnitudes > 0]
    exponents = [math.floor(math.log10(v)) + 1 - digits for v in (magnitudes.min(), magnitudes.max())]
    exponent_digits = next(
        count for count in (1, 2, 3) if max(map(abs, (*exponents, exponents[1] + 1))) < 10**count - 1
    )
    return NumberScheme(exponent_digits, digits, has_infinity=True)


def _mantissa_digits(values: np.ndarray) -> int:
    """Return the number of digits at which rounding loses no differences that matter."""
    low, high = np.quantile(values, (0.1, 0.9))
    with np.errstate(over="ignore"):  # of the largest floats, whose differences need no more digits
        spread = (high - low) or np.ptp(values)
    size = max(abs(low), abs(high))
    if not 0 < spread < np.inf or not size > 0:
        return MIN_DIGITS
    needed = math.ceil(math.log10(size) - math.log10(spread) - math.log10(MAX_ROUNDING))
    return int(np.clip(needed, MIN_DIGITS, MAX_DIGITS))


def learn_tokenizer(texts: Sequence[str], seed: int = 0) -> Tokenizer:
    """Return a tokenizer of any texts, trained on some, in which each digit is a token.

    Args:
        texts: the texts, which may be empty.
        seed: seed of the sample of texts that is used.
    """
    order = np.random.default_rng(seed).permutation(len(texts))[:MAX_TOKENIZER_TEXTS]
    sample = [encodable(texts[i][:MAX_TEXT_LENGTH]).replace("\0", " ") for i in sorted(order)]
    characters = len({c for text in sample for c in text})
    vocab_size = BASE_TOKENS + min(characters, MAX_CHARACTERS) + LEARNT_TOKENS
    coverage = 1.0 if characters <= MAX_CHARACTERS else 0.9995
    return Tokenizer.train([ASCII, *filter(None, sample)], vocab_size, 16, seed, True, coverage)


def new_model(
    data: TextData, tokenizer: str | os.PathLike[str] = "", size: int | None = None, seed: int = 0
) -> Ensemble:
    """Return an untrained model for texts and values.

    Args:
        data: the rows.
        tokenizer: a SentencePiece file, or the name of a shipped model whose tokenizer is used; by default
            one is learnt from the texts.
        size: see `nas_rlm.model.network.Config`; by default chosen by the number of rows.
        seed: seed of the initial weights.

    Raises:
        ValueError: the tokenizer cannot be read.
    """
    if tokenizer:
        shipped = ASSETS / str(tokenizer) / TOKENIZER_FILE
        path = shipped if shipped.is_file() else Path(tokenizer)
        if not path.is_file():
            known = ", ".join(sorted(file.parent.name for file in ASSETS.glob(f"*/{TOKENIZER_FILE}")))
            raise ValueError(
                f"there is no tokenizer {str(tokenizer)!r}: expected a SentencePiece file or {known}"
            )
        pieces = Tokenizer.load(path)
    else:
        pieces = learn_tokenizer(data.texts, seed)
    scheme = number_scheme([*data.values.values()])
    config = Config(
        pieces.vocab_size,
        data.objectives,
        size or next((s for rows, s in SIZES if len(data) <= rows), LARGEST_SIZE),
        exponent_digits=scheme.exponent_digits,
        mantissa_digits=scheme.mantissa_digits,
        relational=False,
        has_infinity=True,
        reads_any_text=True,
    )
    torch.manual_seed(seed)
    return Ensemble(Network(config, pieces.kinds()), pieces)


def text_recipe(num_rows: int, text_length: float, size: int, seed: int = 0) -> Recipe:
    """Return the recipe of a training.

    Args:
        num_rows: number of training rows.
        text_length: median number of tokens of a text.
        size: scaling parameter of the network.
        seed: seed of the batches.
    """
    steps = MAX_TRAINED * (2 / size) ** 2 / (BATCH_SIZE * max(text_length, 16))
    steps = float(np.clip(steps, MIN_STEPS, MAX_STEPS))
    steps_per_epoch = -(-num_rows // BATCH_SIZE)
    max_epochs = max(MAX_EPOCHS, -(-MIN_STEPS // steps_per_epoch))
    return Recipe(
        (TableRecipe(""),),
        epochs=int(np.clip(steps // steps_per_epoch, 2, max_epochs)),
        batch_size=BATCH_SIZE,
        optimizer="adamw",
        learning_rate=2e-3,
        warmup=50,
        schedule="constant",
        ema=0.99,
        noise=0.1,
        precision="bfloat16",
        validate_every=VALIDATION_STEPS,
        patience=PATIENCE,
        seed=seed,
    )


def train_network(
    model: Ensemble,
    data: TextData,
    recipe: Recipe,
    held_out: TextData | None = None,
    on_epoch: EpochCallback | None = None,
    progress: bool = True,
) -> int:
    """Train the network of a model in place, and return the number of epochs whose weights it has.

    Args:
        model: the model.
        data: training rows.
        recipe: settings of the training.
        held_out: rows on which the best weights are chosen; None to keep the last ones.
        on_epoch: see `nas_rlm.training.trainer.fit`.
        progress: show a progress bar.
    """
    token = {name: NUM_DIGIT_TOKENS + i for i, name in enumerate(model.objectives)}
    numbers = [
        {token[name]: float(column[i]) for name, column in data.values.items() if not math.isnan(column[i])}
        for i in range(len(data))
    ]
    ids = [np.array(model.token_ids(text)[:MAX_TRAINED_TOKENS], dtype=np.int64) for text in data.texts]
    datasets = [Dataset(TableRecipe("", sequences=len(data.values)), ids, numbers)]
    if held_out is None:
        fit(model, datasets, recipe, on_epoch=on_epoch, progress=progress)
        return recipe.epochs
    part = held_out.select(np.arange(len(held_out))[:MAX_VALIDATION_ROWS])
    transforms = {name: TargetTransform(column, RANKS) for name, column in data.values.items()}
    steps_per_epoch = sum(1 for _ in batches(datasets, recipe, 0))
    best_step = fit(
        model,
        datasets,
        recipe,
        lambda: network_scores(model, part, transforms),
        keep_best=True,
        metric="score",
        on_epoch=on_epoch,
        progress=progress,
    )
    return max(1, round(best_step / steps_per_epoch))


def network_scores(
    model: Ensemble, held_out: TextData, transforms: Mapping[str, TargetTransform]
) -> dict[str, dict[str, float]]:
    """Return the negative pinball loss of the normal scores of each objective, as `score`.

    Args:
        model: the model, without surrogates.
        held_out: the rows to predict.
        transforms: transform of the values of each objective.
    """
    quantiles = model.predict_text(held_out.texts, held_out.objectives, LEVELS)
    scores = {}
    for k, (name, column) in enumerate(held_out.values.items()):
        rows = held_out.labelled(name)
        if len(rows):
            scores[name] = {"score": -score_loss(quantiles[rows, k], column[rows], transforms[name]).mean()}
    return scores


def score_loss(quantiles: np.ndarray, true: np.ndarray, transform: TargetTransform) -> np.ndarray:
    """Return the pinball loss of labels in scores, which is finite also for infinite values, float64 [N].

    Args:
        quantiles: quantiles at `LEVELS`, float64 [N, 3].
        true: labels, float64 [N].
        transform: transform of the values.
    """
    return pinball_loss(transform.label_scores(quantiles), LEVELS, transform.label_scores(true))
