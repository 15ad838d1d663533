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
from typing import Literal, TypeVar

import numpy as np

from nas_rlm.data.text_data import TextData
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.model.network import Network
from nas_rlm.surrogates.calibration import DEFAULT_TEMPERATURE, PRIOR_ROWS, calibrate_space
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.field_surrogate import MIN_TEXTS, FieldSurrogate, interval_width
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from nas_rlm.training.dataset import truncation_reported
from nas_rlm.training.recipe import Recipe
from nas_rlm.training.text_network import (
    LEVELS,
    network_scores,
    new_model,
    number_scheme,
    score_loss,
    text_recipe,
    train_network,
)
from nas_rlm.training.text_report import RLM_METHOD, FitReport, HoldoutMetrics, holdout_metrics
from nas_rlm.training.trainer import EpochCallback
from search_spaces.wording import counted

NO_SPACE = ""  # texts belong to no search space
MAX_SIZE = 16  # of a network; training a larger one takes much memory
Source = Literal["network", "surrogate", "both"]
NETWORK: Source = "network"
SURROGATE: Source = "surrogate"
BOTH: Source = "both"
VALIDATION_FRACTION, MAX_VALIDATION_ROWS = 0.2, 500
MIN_VALIDATION_ROWS = 20  # as many as calibration needs
MIN_HOLDOUT_ROWS = 20
MIN_SPLIT_ROWS = 60  # with fewer rows nothing is held out
MAX_SAMPLED_TEXTS = 200  # whose length decides the number of steps

Model = TypeVar("Model", bound=Ensemble)


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


@dataclass(frozen=True)
class _Choice:
    """What predicts an objective, and its calibration.

    Args:
        source: network, surrogate or both.
        network_temperature: divisor of the network's logits where it predicts alone.
        combined: temperatures of the surrogate: of the product, and of the network in it.
        width: factor of the surrogate's intervals where it predicts alone.
    """

    source: str = NETWORK
    network_temperature: float = DEFAULT_TEMPERATURE
    combined: tuple[float, float] | None = None
    width: float = 1.0


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
    choices: dict[str, _Choice] = field(default_factory=dict)


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
        ValueError: the tokenizer cannot be read, or the numbers of `start` cannot represent the values.

    Warns:
        UserWarning: the rows are too few for validation and calibration.
        TruncationWarning: texts are longer than training reads.
    """
    if start is not None:
        _check_start(start, data)
    untrained = start or new_model(data, settings.tokenizer, settings.size, settings.seed)
    untrained = untrained.with_objectives(data.objectives)
    notes = []
    if num_rows is not None and num_rows > len(data):
        notes.append(f"left out: {num_rows - len(data):,} of {num_rows:,} rows, without a value")
    train, validation, holdout = split_texts(data, settings.holdout, settings.seed)
    recipe = _recipe(untrained, train, settings)
    if not len(validation):
        distinct = len(set(data.texts))
        notes.append(
            f"{counted(distinct, 'distinct text is', 'distinct texts are')} too few to hold any out (at least"
            f" {MIN_SPLIT_ROWS}): intervals are uncalibrated"
        )
        warnings.warn(notes[-1], stacklevel=4)
    is_trained = settings.source != SURROGATE
    with truncation_reported(untrained, data.texts) if is_trained else nullcontext():
        first = _fit_part(untrained, train, validation, recipe, settings, on_epoch)
        metrics: Mapping[str, Mapping[str, HoldoutMetrics]] = {}
        if len(holdout):
            predicted = _source_quantiles(first, holdout.texts, settings.source)
            metrics = holdout_metrics(predicted, _joined(train, validation), holdout)
        model = first.model
        if settings.refit and len(train) < len(data):
            recipe = replace(recipe, epochs=max(1, first.epochs))
            model, is_first = _fit_all(untrained, data, first, recipe, settings, on_epoch, validation)
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


def _fit_part(
    untrained: Ensemble,
    train: TextData,
    validation: TextData,
    recipe: Recipe,
    settings: TextSettings,
    on_epoch: EpochCallback | None,
) -> _Part:
    """Fit a model to training rows, and choose and calibrate on validation rows."""
    part = _Part(_fresh_copy(untrained), 0)
    if settings.source != SURROGATE:
        held_out = validation if len(validation) else None
        part.epochs = train_network(part.model, train, recipe, held_out, on_epoch, settings.progress)
    part.surrogate = _fit_surrogate(train, settings)
    part.choices = _choose(part.model, part.surrogate, train, validation, settings.source)
    _combine(part.model, part.surrogate, part.choices)
    return part


def _fit_all(
    untrained: Ensemble,
    data: TextData,
    first: _Part,
    recipe: Recipe,
    settings: TextSettings,
    on_epoch: EpochCallback | None,
    validation: TextData,
) -> tuple[Ensemble, bool]:
    """Fit a model to all rows with the choices of the first one; a network that is not used is kept.

    Returns:
        The model, and whether it has the first network since the second training failed: it predicts
        validation rows, which it has seen, worse than the first network, which has not.
    """
    model, is_first = first.model, False
    if any(choice.source != SURROGATE for choice in first.choices.values()):
        model = _fresh_copy(untrained)
        train_network(model, data, recipe, None, on_epoch, settings.progress)
        if len(validation) and _network_loss(model, data, validation) > _network_loss(
            first.model, data, validation
        ):
            model, is_first = first.model, True
    _combine(model, _fit_surrogate(data, settings), first.choices)
    return model, is_first


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


def _choose(
    model: Ensemble,
    surrogate: FieldSurrogate | None,
    train: TextData,
    validation: TextData,
    source: str | None,
) -> dict[str, _Choice]:
    """Return the choice of each objective.

    The surrogate predicts unless the network, or both, have a smaller pinball loss by more than a standard
    error.
    """
    known = surrogate.objectives if surrogate else ()
    model.surrogates = {NO_SPACE: [surrogate]} if surrogate else {}
    if source != SURROGATE and len(validation):
        calibrate_space(model, NO_SPACE, validation.texts, validation.values, PRIOR_ROWS)
    calibrated = model.surrogates.get(NO_SPACE, [None])[0]
    losses = _losses(model, surrogate, train, validation, source)
    temperatures = model.temperatures.get(NO_SPACE, {})
    choices = {}
    for name in train.objectives:
        choice = _Choice(network_temperature=temperatures.get(name, DEFAULT_TEMPERATURE))
        if surrogate is not None and name in known:
            rows = validation.labelled(name)
            choice = replace(choice, source=_best_source(losses.get(name, {}), source))
            if len(rows):
                choice = replace(choice, width=_width(surrogate, validation.select(rows), name))
            if isinstance(calibrated, FieldSurrogate) and name in calibrated.network_temperatures:
                pair = calibrated.temperatures[name], calibrated.network_temperatures[name]
                choice = replace(choice, combined=pair)
        choices[name] = choice
    return choices


def _best_source(losses: Mapping[str, np.ndarray], source: str | None) -> str:
    """Return the source to use: the given one, or by the losses of validation rows."""
    if source or SURROGATE not in losses:
        return source or SURROGATE
    best, best_mean = SURROGATE, 0.0
    for other in (BOTH, NETWORK):
        difference = losses[other] - losses[SURROGATE]
        mean = float(difference.mean())
        if mean < best_mean and -mean > difference.std() / np.sqrt(len(difference)):
            best, best_mean = other, mean
    return best


def _losses(
    model: Ensemble,
    surrogate: FieldSurrogate | None,
    train: TextData,
    validation: TextData,
    source: str | None,
) -> dict[str, dict[str, np.ndarray]]:
    """Return the loss of each validation row by objective and source; empty where there is no choice."""
    if source or surrogate is None or not len(validation):
        return {}
    names = surrogate.objectives
    both = model.predict_text(validation.texts, names, LEVELS)
    alone = replace(model, surrogates={}).predict_text(validation.texts, names, LEVELS)
    features = surrogate.transform(validation.texts)
    losses: dict[str, dict[str, np.ndarray]] = {}
    for k, name in enumerate(names):
        rows = validation.labelled(name)
        if len(rows) < MIN_VALIDATION_ROWS // 2:
            continue
        true, transform = validation.values[name][rows], TargetTransform(train.values[name], RANKS)
        by_surrogate = surrogate.predict(features, name).quantiles(LEVELS)
        predicted = {BOTH: both[:, k], NETWORK: alone[:, k], SURROGATE: by_surrogate}
        losses[name] = {key: score_loss(q[rows], true, transform) for key, q in predicted.items()}
    return losses


def _width(surrogate: FieldSurrogate, labelled: TextData, name: str) -> float:
    """Return the factor of a surrogate's intervals that validation rows suggest, shrunk towards 1."""
    distribution = surrogate.predict(surrogate.transform(labelled.texts), name)
    scores = surrogate.targets[name].transform.label_scores(labelled.values[name])
    factor = interval_width(scores - distribution.mean, distribution.std)
    return float(factor ** (len(labelled) / (len(labelled) + PRIOR_ROWS)))


def _combine(model: Ensemble, surrogate: FieldSurrogate | None, choices: Mapping[str, _Choice]) -> None:
    """Set the temperatures of a model and its surrogate as chosen."""
    model.temperatures = {NO_SPACE: {name: c.network_temperature for name, c in choices.items()}}
    model.surrogates = {}
    kept = surrogate and surrogate.without([n for n, c in choices.items() if c.source == NETWORK])
    if not kept:
        return
    for name in kept.objectives:
        choice = choices[name]
        combined, network = choice.combined or (None, None)
        if choice.source == SURROGATE:
            kept, combined, network = kept.with_width(name, choice.width), 1.0, WITHOUT_NETWORK
        if combined is not None and network is not None:
            kept = replace(
                kept,
                temperatures={**kept.temperatures, name: combined},
                network_temperatures={**kept.network_temperatures, name: network},
            )
    model.surrogates = {NO_SPACE: [kept]}


def _source_quantiles(part: _Part, texts: Sequence[str], only: str | None) -> dict[str, np.ndarray]:
    """Return quantiles at `LEVELS` by method, float64 [N, K, 3]: of the chosen sources, and of each one.

    Args:
        part: the fitted part.
        texts: N texts.
        only: the source that was given; None to compare all.
    """
    names = tuple(part.choices)
    predicted = {RLM_METHOD: part.model.predict_text(texts, names, LEVELS)}
    if only is None and part.surrogate is not None:
        for source in (NETWORK, SURROGATE, BOTH):
            model = replace(part.model)
            choices = {
                name: replace(choice, source=source if name in part.surrogate.objectives else NETWORK)
                for name, choice in part.choices.items()
            }
            _combine(model, part.surrogate, choices)
            predicted[source] = model.predict_text(texts, names, LEVELS)
    return predicted
