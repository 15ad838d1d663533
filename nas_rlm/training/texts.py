"""Fit a model to any texts with any numbers: the network, a surrogate on fields and n-grams, or both.

A first model is fitted to a part of the rows. Validation rows choose its number of epochs, calibrate its
intervals, and choose for each objective what predicts it: the network, the surrogate, or the product of both.
Holdout rows, which nothing was chosen on, give the reported metrics. The returned model is then fitted to all
rows with these choices.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from nas_rlm.data.text_data import TextData
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.model.network import Network
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fields.surrogate import MIN_TEXTS, FieldSurrogate
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from nas_rlm.training.dataset import truncation_reported
from nas_rlm.training.recipe import Recipe
from nas_rlm.training.text_network import (
    LEVELS,
    network_scores,
    new_model,
    number_scheme,
    text_recipe,
    train_network,
)
from nas_rlm.training.text_report import RLM_METHOD, FitReport, HoldoutMetrics, holdout_metrics
from nas_rlm.training.text_sources import (
    BOTH,
    MIN_VALIDATION_ROWS,
    NETWORK,
    NO_SPACE,
    SURROGATE,
    Source,
    SourceChoice,
    choose_sources,
    combine,
    source_quantiles,
)
from nas_rlm.training.trainer import EpochCallback
from search_spaces.wording import counted

MAX_SIZE = 16  # of a network; training a larger one takes much memory
VALIDATION_FRACTION, MAX_VALIDATION_ROWS = 0.2, 500
MIN_HOLDOUT_ROWS = 20
MIN_SPLIT_ROWS = 60  # with fewer rows nothing is held out
MAX_SAMPLED_TEXTS = 200  # whose length decides the number of steps

Model = TypeVar("Model", bound=Ensemble)


class FewTextsWarning(UserWarning):
    """The texts are too few to hold any out; the notes of the report say so as well."""


@dataclass(frozen=True)
class TextSettings:
    """Settings of a fit.

    Args:
        holdout: share of the texts that is held out for the metrics; 0 for none.
        tokenizer: see `nas_rlm.training.text_network.new_model`.
        size: see `nas_rlm.training.text_network.new_model`.
        epochs: maximum number of epochs; None to choose it by the amount of text.
        source: what predicts: "network", "surrogate" or "both"; None to choose by validation.
        refit: fit the model again to all rows, with the choices that were made on a part of them.
        seed: seed of the split, the weights and the batches.
        progress: show a progress bar.

    Raises:
        ValueError: a value is out of range.
    """

    holdout: float = 0.1
    tokenizer: str | os.PathLike[str] = ""
    size: int | None = None
    epochs: int | None = None
    source: Source | None = None
    refit: bool = True
    seed: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.holdout, float | int) or not 0 <= self.holdout <= 0.5:
            raise ValueError(f"holdout is {self.holdout!r}: expected a share from 0 to 0.5")
        for name in ("size", "epochs"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ValueError(f"{name} is {value!r}: expected an integer of at least 1, or None")
        if self.size is not None and self.size > MAX_SIZE:
            raise ValueError(f"size is {self.size}: expected at most {MAX_SIZE}")
        if self.source not in (None, NETWORK, SURROGATE, BOTH):
            raise ValueError(f"source is {self.source!r}: expected network, surrogate, both or None")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed is {self.seed!r}: expected an integer of at least 0")


@dataclass
class _Part:
    """A model that is fitted to a part of the rows.

    Args:
        model: the model.
        epochs: number of epochs of its network.
        surrogate: the surrogate of the objectives with enough labels.
        choices: the choice of each objective.
    """

    model: Ensemble
    epochs: int
    surrogate: FieldSurrogate | None = None
    choices: dict[str, SourceChoice] = field(default_factory=dict)


def fit_texts(
    kind: type[Model],
    data: TextData,
    settings: TextSettings,
    on_epoch: EpochCallback | None = None,
    start: Ensemble | None = None,
    num_rows: int | None = None,
) -> tuple[Model, FitReport]:
    """Fit a model to texts and values.

    Args:
        kind: class of the model.
        data: the rows.
        settings: settings of the fit.
        on_epoch: function that is called after each epoch of the network, see
            `nas_rlm.training.trainer.EpochReport`; if it returns true, the network's training stops.
        start: a model whose network is trained further instead of a new one.
        num_rows: number of rows before those without a value were left out.

    Returns:
        The model, and what was found.

    Raises:
        ValueError: the tokenizer cannot be read, the numbers of `start` cannot represent the values, or no
            network is trained that could start from it.

    Warns:
        FewTextsWarning: the rows are too few for validation and calibration.
        TruncationWarning: texts are longer than training reads.
    """
    if start is not None and settings.source == SURROGATE:
        raise ValueError(
            "start has no effect on the source surrogate, which trains no network: leave one out"
        )
    if start is not None:
        _check_start(start, data)
    untrained = start or new_model(data, settings.tokenizer, settings.size, settings.seed)
    untrained = untrained.with_objectives(data.objectives)
    notes = []
    if num_rows is not None and num_rows > len(data):
        notes.append(f"left out: {num_rows - len(data):,} of {num_rows:,} rows, without a value")
    train, validation, holdout = split_texts(data, settings.holdout, settings.seed)
    fitter = _Fitter(untrained, _recipe(untrained, train, settings), settings, on_epoch)
    if not len(validation):
        distinct = len(set(data.texts))
        notes.append(
            f"{counted(distinct, 'distinct text is', 'distinct texts are')} too few to hold any out (at least"
            f" {MIN_SPLIT_ROWS}): intervals are uncalibrated"
        )
        warnings.warn(notes[-1], FewTextsWarning, stacklevel=4)
    is_trained = settings.source != SURROGATE
    with truncation_reported(untrained, data.texts) if is_trained else nullcontext():
        first = fitter.fit_part(train, validation)
        metrics: Mapping[str, Mapping[str, HoldoutMetrics]] = {}
        if len(holdout):
            predicted = _holdout_quantiles(first, holdout.texts, settings.source)
            metrics = holdout_metrics(predicted, holdout, _joined(train, validation))
        model = first.model
        if settings.refit and len(train) < len(data):
            model, is_first = fitter.fit_all(data, validation, first)
            if is_first:
                notes.append(
                    "the network was trained on a part of the rows: trained on all, it predicts the"
                    " validation rows worse"
                )
    rounded = {name: t.half().to(t.dtype) for name, t in model.network.state_dict().items()}
    model.network.load_state_dict(rounded)  # the precision of checkpoints, so that loading changes nothing
    fitted = kind(model.network, model.tokenizer)
    fitted.trained_on = {NO_SPACE: TrainedOn(len(data), data.objectives)}
    fitted.temperatures, fitted.surrogates = model.temperatures, model.surrogates
    labels = {name: len(data.labelled(name)) for name in data.objectives}
    sources = {name: choice.source for name, choice in first.choices.items()}
    return fitted, FitReport(len(data), labels, len(holdout), metrics, sources, first.epochs, notes)


def _check_start(start: Ensemble, data: TextData) -> None:
    """Refuse a model whose texts or numbers are not any, or whose numbers have too few digits.

    Raises:
        ValueError: the model was not fitted to texts, or cannot write the values.
    """
    if not start.network.config.reads_any_text:
        raise ValueError("the start model reads networks: expected a model that was fitted to texts")
    needed, present = number_scheme([*data.values.values()]), start.network.config.scheme
    if needed.mantissa_digits > present.mantissa_digits or needed.exponent_digits > present.exponent_digits:
        raise ValueError(
            f"the start model writes numbers of {present.mantissa_digits} digits, with"
            f" {present.exponent_digits} of the exponent: the values need {needed.mantissa_digits} and"
            f" {needed.exponent_digits}; fit a new model"
        )


def split_texts(data: TextData, holdout: float, seed: int) -> tuple[TextData, TextData, TextData]:
    """Split rows into training, validation and holdout rows; equal texts are in the same part.

    Args:
        data: the rows.
        holdout: share of the distinct texts in the holdout rows.
        seed: seed of the split.
    """
    distinct = list(dict.fromkeys(data.texts))
    if len(distinct) < MIN_SPLIT_ROWS:
        return data, data.select([]), data.select([])
    order = np.random.default_rng([seed, 1]).permutation(len(distinct))
    min_holdout = min(MIN_HOLDOUT_ROWS, len(distinct) // 5)
    num_holdout = max(round(holdout * len(distinct)), min_holdout) if holdout else 0
    share = round(VALIDATION_FRACTION * (len(distinct) - num_holdout))
    num_validation = int(np.clip(share, MIN_VALIDATION_ROWS, MAX_VALIDATION_ROWS))
    part_of = {distinct[i]: 0 for i in order}
    part_of |= {distinct[i]: 2 for i in order[:num_holdout]}
    part_of |= {distinct[i]: 1 for i in order[num_holdout : num_holdout + num_validation]}
    parts = np.array([part_of[text] for text in data.texts])
    train, validation, held_out = (data.select(np.flatnonzero(parts == k)) for k in range(3))
    return train, validation, held_out


def _joined(first: TextData, second: TextData) -> TextData:
    """Return the rows of both."""
    values = {name: np.concatenate([column, second.values[name]]) for name, column in first.values.items()}
    return TextData(first.texts + second.texts, values)


def _recipe(model: Ensemble, train: TextData, settings: TextSettings) -> Recipe:
    """Return the recipe of the network's training."""
    sample = np.random.default_rng(settings.seed).permutation(len(train))[:MAX_SAMPLED_TEXTS]
    length = float(np.median([len(model.token_ids(train.texts[i])) for i in sample]))
    recipe = text_recipe(len(train), length, model.network.config.size, settings.seed)
    return replace(recipe, epochs=settings.epochs) if settings.epochs else recipe


def _fresh_copy(model: Ensemble) -> Ensemble:
    """Return a model with the same weights, to be trained."""
    network = Network(model.network.config, model.network.kinds.cpu().numpy())
    network.load_state_dict(model.network.state_dict())
    return Ensemble(network, model.tokenizer)


@dataclass(frozen=True)
class _Fitter:
    """Fits models of one fit to a part of the rows, and to all.

    Args:
        untrained: the model to start from.
        recipe: recipe of the network's training.
        settings: settings of the fit.
        on_epoch: see `fit_texts`.
    """

    untrained: Ensemble
    recipe: Recipe
    settings: TextSettings
    on_epoch: EpochCallback | None

    def fit_part(self, train: TextData, validation: TextData) -> _Part:
        """Fit a model to training rows, and choose and calibrate on validation rows."""
        part = _Part(_fresh_copy(self.untrained), 0)
        if self.settings.source != SURROGATE:
            held_out = validation if len(validation) else None
            part.epochs = self._train(part.model, train, self.recipe, held_out)
        part.surrogate = _fit_surrogate(train, self.settings)
        part.choices = choose_sources(part.model, part.surrogate, train, validation, self.settings.source)
        combine(part.model, part.surrogate, part.choices)
        return part

    def fit_all(self, data: TextData, validation: TextData, first: _Part) -> tuple[Ensemble, bool]:
        """Fit a model to all rows with the choices of the first one; a network that is not used is kept.

        Returns:
            The model, and whether it has the first network since the second training failed: it predicts
            validation rows, which it has seen, worse than the first network, which has not.
        """
        model, is_first = first.model, False
        if any(choice.source != SURROGATE for choice in first.choices.values()):
            model = _fresh_copy(self.untrained)
            self._train(model, data, replace(self.recipe, epochs=max(1, first.epochs)), None)
            losses = [_network_loss(m, data, validation) for m in (first.model, model) if len(validation)]
            if losses and losses[1] > losses[0]:
                model, is_first = first.model, True
        combine(model, _fit_surrogate(data, self.settings), first.choices)
        return model, is_first

    def _train(self, model: Ensemble, rows: TextData, recipe: Recipe, held_out: TextData | None) -> int:
        """Train the network of a model in place, and return the number of epochs whose weights it has."""
        return train_network(model, rows, recipe, held_out, self.on_epoch, self.settings.progress)


def _network_loss(model: Ensemble, data: TextData, validation: TextData) -> float:
    """Return the mean loss of a model's network on validation rows, over objectives."""
    transforms = {name: TargetTransform(column, RANKS) for name, column in data.values.items()}
    scores = network_scores(replace(model, surrogates={}, temperatures={}), validation, transforms)
    return -float(np.mean([of_objective["score"] for of_objective in scores.values()]))


def _fit_surrogate(data: TextData, settings: TextSettings) -> FieldSurrogate | None:
    """Return a surrogate of the objectives with enough labels."""
    counts = {name: len(data.labelled(name)) for name in data.values}
    enough = {name: v for name, v in data.values.items() if counts[name] >= MIN_TEXTS}
    if settings.source == SURROGATE and len(enough) < len(counts):
        name = next(name for name in counts if name not in enough)
        raise ValueError(
            f"{counted(counts[name], 'row has', 'rows have')} {name!r}: the Gaussian process (source"
            f" {SURROGATE!r}) needs"
            f" {MIN_TEXTS}"
        )
    if not enough or settings.source == NETWORK:
        return None
    return FieldSurrogate.fit(data.texts, enough, settings.seed)


def _holdout_quantiles(part: _Part, texts: Sequence[str], only: str | None) -> dict[str, np.ndarray]:
    """Return quantiles at `LEVELS` by method, float64 [N, K, 3]: of the chosen sources, and of each one.

    Args:
        part: the fitted part.
        texts: N texts.
        only: the source that was given; None to compare all.
    """
    chosen = {RLM_METHOD: part.model.predict_text(texts, tuple(part.choices), LEVELS)}
    if only is not None:
        return chosen
    return {**chosen, **source_quantiles(part.model, part.surrogate, part.choices, texts)}
