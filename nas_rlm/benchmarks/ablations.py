"""The paper's ablations at this project's scale: one choice is varied, all else is equal.

Source: section 6 of the paper (tables 5, 7, 8 and 9, and figures 7 to 9).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.figure import Figure

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.data import tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import split
from nas_rlm.data.tables import Row
from nas_rlm.files import ASSETS
from nas_rlm.metrics import kendall, spearman
from nas_rlm.model import encoders
from nas_rlm.model.checkpoint import AnyTokenizer
from nas_rlm.model.network import Config, KeyValueCache, Memory, Network
from nas_rlm.model.numbers import MINUS, PLUS, ZERO, NumberScheme
from nas_rlm.plotting.style import HUES, INK, MUTED
from nas_rlm.rlm import RLM
from nas_rlm.text import Tokenizer, from_onnx
from nas_rlm.training.dataset import make_dataset
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.trainer import fit
from nas_rlm.utils.validation import suggest

BATCH, HELD = 32, 1000
SAMPLES = 16  # of a number as text, of which the median counts


@dataclass(frozen=True)
class Trial:
    """What is varied, and what all trials share.

    Args:
        spaces: whose accuracies are learnt, as many rows of each.
        rows: labelled rows of each space.
        steps: batches of 32.
        size: the network's dial.
        flat: texts without functions.
        generic: a tokenizer that was made for English, of 30,522 pieces, instead of the shipped one.
        plain: numbers as text, unconstrained, instead of digits on a tree.
        head: instead of the decoder a regression head, as plain as `baselines.head` is: "raw", or
            "normalised" to 0 … 1 in each space.
        length: tokens of a text that are read.
        start: a checkpoint to start from.
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


FEW = Trial(rows=200, steps=300, size=4)
LONG = Trial(spaces=("nasbench201",), rows=2000, steps=400)
ABLATIONS: dict[str, dict[str, Trial]] = {
    "heads": {
        "decoder": Trial(),
        "head, normalised": Trial(head="normalised"),
        "head, raw": Trial(head="raw"),
    },
    "numbers": {"digits": Trial(), "as text": Trial(plain=True)},
    "tokenizer": {"learned, 8K": LONG, "generic, 30.5K": replace(LONG, generic=True)},
    "length": {f"{n} tokens": Trial(length=n) for n in (16, 32, 64, 128)},
    "text": {"outlined": LONG, "flat": replace(LONG, flat=True)},
    "pretraining": {"from nothing": FEW, "pretrained": replace(FEW, start="pretrained")},
    "joint": {
        "together": Trial(steps=3000),
        "NAS-Bench-101 alone": Trial(spaces=("nasbench101",)),
        "NAS-Bench-201 alone": Trial(spaces=("nasbench201",)),
    },
}


@dataclass(frozen=True)
class Outcome:
    """What a trial reached on held-out rows of one space.

    Args:
        tokens: the median of a text, as it is read.
        spearman, kendall: of accuracy.
        seconds: of the whole trial.
    """

    tokens: float
    spearman: float
    kendall: float
    seconds: float


Key = tuple[str, str, int, str]
KEYS = ("ablation", "trial", "seed", "space")  # what an outcome is of


def run(
    name: str, seeds: Sequence[int] = (0, 1), done: Mapping[Key, Outcome] | None = None
) -> Iterator[tuple[Key, Outcome]]:
    """The trials of one of `ABLATIONS`, one after the other.

    Args:
        name: of the ablation.
        seeds: each trial is run with each.
        done: what is known. Of this ablation it is left out, and of the same trial in another one it is told
            again instead of being run twice.

    Raises:
        ValueError: there is no such ablation.
    """
    if name not in ABLATIONS:
        raise ValueError(f"there is no ablation {name!r}; {suggest(name, ABLATIONS)}")
    known: dict[tuple[Trial, int], dict[str, Outcome]] = {}
    for (ablation, label, seed, space), outcome in (done or {}).items():
        if trial := ABLATIONS.get(ablation, {}).get(label):
            known.setdefault((trial, seed), {})[space] = outcome
    for seed in seeds:
        for label, trial in ABLATIONS[name].items():
            found = known.get((trial, seed)) or _outcomes(trial, seed)
            for space, outcome in found.items():
                key = name, label, seed, space
                if key not in (done or {}):
                    yield key, outcome


def figure(outcomes: Mapping[Key, Outcome]) -> Figure:
    """A panel for each ablation: Kendall's tau of each trial and space, and how far seeds differ."""
    spaces = list(dict.fromkeys(space for *_, space in outcomes))
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (ablation, trial, _, space), outcome in outcomes.items():
        of_trial = found.setdefault(ablation, {}).setdefault(trial, {})
        of_trial.setdefault(space, []).append(outcome.kendall)
    heights = [len(trials) for trials in found.values()]
    drawn = Figure(figsize=(7, 0.6 * sum(heights) + 0.7 * len(heights)), layout="constrained")
    panels = drawn.subplots(len(found), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, (name, trials) in zip(panels, found.items(), strict=True):
        for row, of_trial in enumerate(trials.values()):
            for k, (space, values) in enumerate(of_trial.items()):
                hue, y = HUES[spaces.index(space)], row + 0.3 * (k - (len(of_trial) - 1) / 2)
                panel.plot([min(values), max(values)], [y, y], color=hue, linewidth=4, alpha=0.3)
                panel.plot(np.mean(values), y, "o", color=hue, label=space)
        panel.set_yticks(range(len(trials)), list(trials))
        panel.set_ylim(len(trials) - 0.5, -0.5)
        panel.set_title(name, loc="left", color=INK)
        panel.tick_params(colors=MUTED)
    panels[-1].set_xlabel("Kendall's tau on held-out networks; dot: mean, bar: all seeds")
    handles = {label: h for p in panels for h, label in zip(*p.get_legend_handles_labels(), strict=True)}
    drawn.legend(
        handles.values(), handles.keys(), loc="outside upper right", frameon=False, ncols=len(handles)
    )
    return drawn


def _outcomes(trial: Trial, seed: int) -> dict[str, Outcome]:
    """Of each space what a trial reaches."""
    start = time.perf_counter()
    ranks = list(_ranks(trial, seed))
    seconds = time.perf_counter() - start
    return {space: Outcome(tokens, rho, tau, seconds) for space, tokens, rho, tau in ranks}


def _ranks(trial: Trial, seed: int) -> Iterator[tuple[str, float, float, float]]:
    """Each space of a trial with its median of tokens, Spearman and Kendall."""
    sides = [_rows(space, trial.rows, seed) for space in trial.spaces]
    rlm = _new(trial, seed)
    known = [(rows, _texts(rows, trial.flat)) for rows, _ in sides]
    asked = [(rows, _texts(rows, trial.flat)) for _, rows in sides]
    if trial.head:
        predicted = _by_head(rlm, known, asked, trial, seed)
    else:
        share = trial.steps * BATCH // len(known)
        use = TableRecipe("", rows=share)
        examples = [make_dataset(rlm, rows, use, texts) for rows, texts in known]
        fit(rlm, examples, _recipe(trial, seed))
        predict = _as_text if trial.plain else _median
        predicted = [predict(rlm, texts) for _, texts in asked]
    for space, (rows, texts), found in zip(trial.spaces, asked, predicted, strict=True):
        true = np.array([row.targets["accuracy"] for row in rows])
        tokens = float(np.median([len(rlm.token_ids(text)) for text in texts]))
        yield space, tokens, spearman(found, true), kendall(found, true)


def _rows(space: str, count: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Labelled and held-out rows of a space, on the sides that the shipped model's recipe gives them."""
    table = tables.read(tables.data_directory() / "architectures" / f"{space}.parquet")
    rng = np.random.default_rng(seed)
    known, held = (
        [side.rows[i] for i in rng.permutation(len(side))[:most]]
        for side, most in zip(split(table.where_measured("accuracy")), (count, HELD), strict=True)
    )
    return [row.select(["accuracy"]) for row in known], held


def _texts(rows: Sequence[Row], flat: bool) -> list[str]:
    if not flat:
        return texts_of_rows(rows)
    space = search_spaces.get(rows[0].space)
    return [from_onnx(space.to_onnx(space.parse(row.arch_str)), outlined=False) for row in rows]


def _recipe(trial: Trial, seed: int) -> Recipe:
    """Of a decoder that takes its steps in one epoch, or of a head that goes through its rows as often."""
    passes = round(trial.steps * BATCH / (trial.rows * len(trial.spaces))) if trial.head else 1
    return Recipe(
        (TableRecipe(""),),
        epochs=max(1, passes),
        batch_size=BATCH,
        optimizer="muon",
        learning_rate=2e-3 if not trial.start else 5e-4,
        warmup=50,
        noise=0.1,
        precision="bfloat16",
        seed=seed,
    )


def _new(trial: Trial, seed: int) -> RLM:
    """A model as it is before its training."""
    if trial.start:
        return RLM.load(trial.start).copy_for_training(("accuracy",))
    tokenizer: AnyTokenizer = (
        encoders.load(encoders.MINILM).tokenizer
        if trial.generic
        else Tokenizer.load(ASSETS / "nas" / "tokenizer.model")
    )
    kind = _ConfigOfText if trial.plain else Config
    config = kind(tokenizer.vocab_size, ("accuracy",), trial.size, trial.length)
    torch.manual_seed(seed)
    return RLM(Network(config, tokenizer.kinds()), tokenizer)


Labelled = tuple[list[Row], list[str]]  # rows and their texts


def _by_head(
    rlm: RLM, known: Sequence[Labelled], asked: Sequence[Labelled], trial: Trial, seed: int
) -> list[np.ndarray]:
    """Predictions for each space's asked rows by a regression head."""
    values = []
    for rows, _ in known:
        of_space = np.array([row.targets["accuracy"] for row in rows])
        low, high = (of_space.min(), of_space.max()) if trial.head == "normalised" else (0.0, 1.0)
        values.append((of_space - low) / ((high - low) or 1.0))
    texts = [text for part in (*known, *asked) for text in part[1]]
    first = np.concatenate(values)
    found = baselines.head(rlm, texts, np.arange(len(first)), first, _recipe(trial, seed))[len(first) :]
    ends = np.cumsum([len(rows) for rows, _ in asked])[:-1]
    return np.split(found, ends)


def _median(rlm: RLM, texts: Sequence[str]) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that texts are cropped
        return rlm.predict_text(texts, ["accuracy"])[:, 0]


class NumbersAsText(NumberScheme):
    """Numbers as they are printed, two places after the point, with the tokens that digits leave over.

    >>> NumbersAsText().encode(72.5)
    [9, 4, 0, 7, 2, 1]
    """

    @property
    def length(self) -> int:
        return 6

    def encode(self, value: float) -> list[int]:
        """Digits, PLUS for the point, and MINUS where the number has ended."""
        written = [PLUS if c == "." else ZERO + int(c) for c in f"{value:.2f}"]
        return (written + [MINUS] * self.length)[: self.length]

    def decode(self, tokens: Sequence[int]) -> float:
        """The number, or NaN where the tokens are none."""
        written = "".join("." if t == PLUS else " " if t == MINUS else str(t - ZERO) for t in tokens)
        try:
            return float(written)
        except ValueError:
            return math.nan


class _ConfigOfText(Config):
    @property
    def scheme(self) -> NumberScheme:
        return NumbersAsText()


def _as_text(rlm: RLM, texts: Sequence[str]) -> np.ndarray:
    """The median of samples without constraint, of those that are numbers."""
    network, scheme = rlm.network, rlm.network.config.scheme
    generator = torch.Generator().manual_seed(0)

    def decode(memory: Memory, read: list[str]) -> np.ndarray:
        caches = [KeyValueCache() for _ in network.decoder]
        unread = torch.full((memory.batch * SAMPLES, 1), network.config.objective_ids(["accuracy"])[0])
        written = []
        for _ in range(scheme.length):
            logits = network.decode(unread, memory, caches)[:, -1]
            unread = torch.multinomial(logits.softmax(1), 1, generator=generator)
            written.append(unread)
        drawn = np.array([scheme.decode(row) for row in torch.cat(written, 1).tolist()])
        numbers = [row[np.isfinite(row)] for row in drawn.reshape(memory.batch, SAMPLES)]
        return np.array([[np.median(row) if len(row) else 0.0] for row in numbers])

    return rlm.decode_texts(texts, decode, (1,), batch_size=64, progress=False)[:, 0]
