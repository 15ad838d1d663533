"""The paper's ablations at a small scale: one choice is varied, all else is equal.

`nas_rlm.plotting.ablations` draws them. Source: section 6 of the paper (tables 5 and 7 to 9, figures 7 to 9).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.data import tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import split
from nas_rlm.data.tables import Row
from nas_rlm.files import ASSETS
from nas_rlm.metrics import kendall, spearman
from nas_rlm.model import encoders
from nas_rlm.model.attention import KeyValueCache
from nas_rlm.model.batching import TruncationWarning
from nas_rlm.model.checkpoint import AnyTokenizer
from nas_rlm.model.network import Config, Memory, Network
from nas_rlm.model.numbers import MINUS, PLUS, ZERO, NumberScheme
from nas_rlm.rlm import RLM
from nas_rlm.text import Tokenizer, from_onnx
from nas_rlm.training.dataset import make_dataset
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.trainer import fit
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import suggest

BATCH_SIZE = 32
MAX_TEST_ROWS = 1000
NUM_SAMPLES = 16  # of a number as text; the prediction is their median


@dataclass(frozen=True)
class Trial:
    """The settings of one training.

    Args:
        spaces: spaces whose accuracy is learned, with as many rows of each.
        rows: labelled rows of each space.
        steps: training steps, batches of 32.
        size: size of the network, see `nas_rlm.model.network.Config`.
        flat: texts without functions.
        generic: a tokenizer for English with 30,522 pieces instead of the shipped one.
        plain: numbers as unconstrained text instead of digits on a tree.
        head: a regression head instead of the decoder, see `nas_rlm.benchmarks.baselines.regression_head`:
            `raw`, or `normalised` to 0 … 1 in each space.
        length: tokens of a text that are read.
        start: checkpoint from which the training starts.
    """

    spaces: tuple[str, ...] = ("nasbench101", "nasbench201")
    rows: int = 4000
    steps: int = 1500
    size: int = 3
    flat: bool = False
    generic: bool = False
    plain: bool = False
    head: str = ""
    length: int = 2048
    start: str = ""


FEW_LABELS = Trial(rows=200, steps=300, size=4)
LONG_TEXTS = Trial(spaces=("nasbench201",), rows=2000, steps=400)
ABLATIONS: dict[str, dict[str, Trial]] = {
    "heads": {
        "decoder": Trial(),
        "head, normalised": Trial(head="normalised"),
        "head, raw": Trial(head="raw"),
    },
    "numbers": {"digits": Trial(), "as text": Trial(plain=True)},
    "tokenizer": {"learned, 8K": LONG_TEXTS, "generic, 30.5K": replace(LONG_TEXTS, generic=True)},
    "length": {f"{n} tokens": Trial(length=n) for n in (16, 32, 64, 128)},
    "text": {"outlined": LONG_TEXTS, "flat": replace(LONG_TEXTS, flat=True)},
    "pretraining": {"from scratch": FEW_LABELS, "pretrained": replace(FEW_LABELS, start="pretrained")},
    "joint": {
        "together": Trial(steps=3000),
        "NAS-Bench-101 alone": Trial(spaces=("nasbench101",)),
        "NAS-Bench-201 alone": Trial(spaces=("nasbench201",)),
    },
}


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial on the test rows of one space.

    Args:
        tokens: median number of tokens that are read of a text.
        spearman: Spearman correlation of predicted and measured accuracy.
        kendall: Kendall's tau of them.
        seconds: time of the complete trial.
    """

    tokens: float
    spearman: float
    kendall: float
    seconds: float


Key = tuple[str, str, int, str]
KEY_NAMES = ("ablation", "trial", "seed", "space")


def run_ablation(
    name: str,
    seeds: Sequence[int] = (0, 1),
    finished: Mapping[Key, TrialResult] | None = None,
    progress: bool = False,
) -> Iterator[tuple[Key, TrialResult]]:
    """Run the trials of an ablation.

    Args:
        name: one of `ABLATIONS`.
        seeds: seeds of each trial.
        finished: results that are not computed again. The result of the same trial in another ablation is
            yielded instead of running it twice.
        progress: show a progress bar.

    Yields:
        Ablation, trial, seed and space, and the result, as soon as each is available.

    Raises:
        ValueError: there is no such ablation.
    """
    if name not in ABLATIONS:
        raise ValueError(f"there is no ablation {name!r}; {suggest(name, ABLATIONS)}")
    if any(trial.generic for trial in ABLATIONS[name].values()):
        encoders.check_packages(encoders.MINILM)
    finished = finished or {}
    by_trial: dict[tuple[Trial, int], dict[str, TrialResult]] = {}
    for (ablation, label, seed, space), result in finished.items():
        if trial := ABLATIONS.get(ablation, {}).get(label):
            by_trial.setdefault((trial, seed), {})[space] = result
    trials = [(seed, label, trial) for seed in seeds for label, trial in ABLATIONS[name].items()]
    for seed, label, trial in progress_bar(trials, name, unit="trial", disable=not progress):
        results = by_trial.get((trial, seed)) or _run_trial(trial, seed)
        for space, result in results.items():
            key = name, label, seed, space
            if key not in finished:
                yield key, result


def _run_trial(trial: Trial, seed: int) -> dict[str, TrialResult]:
    """Run a trial and return its result for each space."""
    start = time.perf_counter()
    correlations = list(_train_and_evaluate(trial, seed))
    seconds = time.perf_counter() - start
    return {space: TrialResult(tokens, rho, tau, seconds) for space, tokens, rho, tau in correlations}


def _train_and_evaluate(trial: Trial, seed: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield each space of a trial with its median number of tokens, Spearman and Kendall correlation."""
    rlm = _initial_model(trial, seed)
    train, test = [], []
    for space in trial.spaces:
        train_rows, test_rows = _train_test_rows(space, trial.rows, seed)
        train.append((train_rows, _texts(train_rows, trial.flat)))
        test.append((test_rows, _texts(test_rows, trial.flat)))
    if trial.head:
        predictions = _predict_with_head(rlm, train, test, trial, seed)
    else:
        use = TableRecipe("", rows=trial.steps * BATCH_SIZE // len(train))
        datasets = [make_dataset(rlm, rows, use, texts) for rows, texts in train]
        fit(rlm, datasets, _recipe(trial, seed))
        predict = _predict_numbers_as_text if trial.plain else _predict_medians
        predictions = [predict(rlm, texts) for _, texts in test]
    for space, (rows, texts), predicted in zip(trial.spaces, test, predictions, strict=True):
        true = np.array([row.targets["accuracy"] for row in rows])
        tokens = float(np.median([len(rlm.token_ids(text)) for text in texts]))
        yield space, tokens, spearman(predicted, true), kendall(predicted, true)


def _train_test_rows(space: str, count: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Random training and test rows of a space, from the split of the shipped model's recipe."""
    table = tables.read(tables.data_directory() / "architectures" / f"{space}.parquet")
    rng = np.random.default_rng(seed)
    train, test = (
        [part.rows[i] for i in rng.permutation(len(part))[:max_rows]]
        for part, max_rows in zip(
            split(table.where_measured("accuracy")), (count, MAX_TEST_ROWS), strict=True
        )
    )
    return [row.select(["accuracy"]) for row in train], test


def _texts(rows: Sequence[Row], flat: bool) -> list[str]:
    """Texts of rows, with or without functions."""
    if not flat:
        return texts_of_rows(rows)
    space = search_spaces.get(rows[0].space)
    return [from_onnx(space.to_onnx(space.parse(row.arch_str)), outlined=False) for row in rows]


def _recipe(trial: Trial, seed: int) -> Recipe:
    """A recipe with all steps in one epoch of a decoder, or with as many epochs of a regression head."""
    epochs = round(trial.steps * BATCH_SIZE / (trial.rows * len(trial.spaces))) if trial.head else 1
    return Recipe(
        (TableRecipe(""),),
        epochs=max(1, epochs),
        batch_size=BATCH_SIZE,
        optimizer="muon",
        learning_rate=2e-3 if not trial.start else 5e-4,
        warmup=50,
        noise=0.1,
        precision="bfloat16",
        seed=seed,
    )


def _initial_model(trial: Trial, seed: int) -> RLM:
    """A model before its training."""
    if trial.start:
        return RLM.load(trial.start).copy_for_training(("accuracy",))
    tokenizer: AnyTokenizer = (
        encoders.load(encoders.MINILM).tokenizer
        if trial.generic
        else Tokenizer.load(ASSETS / "nas" / "tokenizer.model")
    )
    config_type = _NumbersAsTextConfig if trial.plain else Config
    config = config_type(tokenizer.vocab_size, ("accuracy",), trial.size, trial.length)
    torch.manual_seed(seed)
    return RLM(Network(config, tokenizer.kinds()), tokenizer)


RowsAndTexts = tuple[list[Row], list[str]]


def _predict_with_head(
    rlm: RLM, train: Sequence[RowsAndTexts], test: Sequence[RowsAndTexts], trial: Trial, seed: int
) -> list[np.ndarray]:
    """Predictions of each space's test rows by a regression head."""
    labels = []
    for rows, _ in train:
        accuracy = np.array([row.targets["accuracy"] for row in rows])
        low, high = (accuracy.min(), accuracy.max()) if trial.head == "normalised" else (0.0, 1.0)
        labels.append((accuracy - low) / ((high - low) or 1.0))
    texts = [text for _, part in (*train, *test) for text in part]
    train_labels = np.concatenate(labels)
    num_train = len(train_labels)
    predicted = baselines.regression_head(
        rlm, texts, np.arange(num_train), train_labels, _recipe(trial, seed)
    )[num_train:]
    ends = np.cumsum([len(rows) for rows, _ in test])[:-1]
    return np.split(predicted, ends)


def _predict_medians(rlm: RLM, texts: Sequence[str]) -> np.ndarray:
    """Predicted medians of accuracy [N]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # some trials read only a part of each text
        return rlm.predict_text(texts, ["accuracy"])[:, 0]


class NumbersAsText(NumberScheme):
    """Numbers as decimal text with two decimals, in the tokens of digits.

    Examples:
        >>> NumbersAsText().encode(72.5)
        [9, 4, 0, 7, 2, 1]
    """

    @property
    def length(self) -> int:
        return 6

    def encode(self, value: float) -> list[int]:
        """Return digits, `PLUS` for the decimal point, and `MINUS` after the end of the number."""
        tokens = [PLUS if c == "." else ZERO + int(c) for c in f"{value:.2f}"]
        return (tokens + [MINUS] * self.length)[: self.length]

    def decode(self, tokens: Sequence[int]) -> float:
        """Return the number, or NaN if the tokens do not form one."""
        text = "".join("." if t == PLUS else " " if t == MINUS else str(t - ZERO) for t in tokens)
        try:
            return float(text)
        except ValueError:
            return math.nan


class _NumbersAsTextConfig(Config):
    """The configuration of a network that writes numbers as text."""

    @property
    def scheme(self) -> NumberScheme:
        return NumbersAsText()


def _predict_numbers_as_text(rlm: RLM, texts: Sequence[str]) -> np.ndarray:
    """The median of those unconstrained samples that are numbers [N]."""
    network, scheme = rlm.network, rlm.network.config.scheme
    generator = torch.Generator().manual_seed(0)

    def decode(memory: Memory, batch_texts: list[str]) -> np.ndarray:
        caches = [KeyValueCache() for _ in network.decoder]
        token = torch.full((memory.batch * NUM_SAMPLES, 1), network.config.objective_ids(["accuracy"])[0])
        tokens = []
        for _ in range(scheme.length):
            logits = network.decode(token, memory, caches)[:, -1]
            token = torch.multinomial(logits.softmax(1), 1, generator=generator)
            tokens.append(token)
        values = np.array([scheme.decode(row) for row in torch.cat(tokens, 1).tolist()])
        numbers = [row[np.isfinite(row)] for row in values.reshape(memory.batch, NUM_SAMPLES)]
        return np.array([[np.median(row) if len(row) else 0.0] for row in numbers])

    return rlm.decode_texts(texts, decode, (1,), batch_size=64, progress=False)[:, 0]
