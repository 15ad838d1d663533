"""Which source predicts each objective of a model of texts: the network, the surrogate or both.

Validation rows choose, and calibrate intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nas_rlm.data.text_data import TextData
from nas_rlm.surrogates.calibration import DEFAULT_TEMPERATURE, PRIOR_ROWS, calibrate_space
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fields.surrogate import FieldSurrogate
from nas_rlm.surrogates.fields.target import interval_width
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.target_transform import RANKS, TargetTransform
from nas_rlm.training.text_network import LEVELS, score_loss

NO_SPACE = ""  # texts belong to no search space
Source = Literal["network", "surrogate", "both"]
NETWORK: Source = "network"
SURROGATE: Source = "surrogate"
BOTH: Source = "both"
MIN_VALIDATION_ROWS = 20  # as many as calibration needs


@dataclass(frozen=True)
class SourceChoice:
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


def choose_sources(
    model: Ensemble,
    surrogate: FieldSurrogate | None,
    train: TextData,
    validation: TextData,
    source: str | None,
) -> dict[str, SourceChoice]:
    """Return the choice of each objective.

    The surrogate predicts unless the network, or both, have a smaller pinball loss by more than a standard
    error.

    Args:
        model: the model, whose temperatures and surrogates are replaced by calibrated ones.
        surrogate: the surrogate of the objectives with enough labels.
        train: rows that both were fitted to.
        validation: rows on which to choose and to calibrate; there may be none.
        source: the source that is given; None to choose.
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
        choice = SourceChoice(network_temperature=temperatures.get(name, DEFAULT_TEMPERATURE))
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


def combine(model: Ensemble, surrogate: FieldSurrogate | None, choices: Mapping[str, SourceChoice]) -> None:
    """Set the temperatures of a model and its surrogate as chosen.

    Args:
        model: the model.
        surrogate: its surrogate.
        choices: the choice of each objective.
    """
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


def source_quantiles(
    model: Ensemble,
    surrogate: FieldSurrogate | None,
    choices: Mapping[str, SourceChoice],
    texts: Sequence[str],
) -> dict[str, np.ndarray]:
    """Return quantiles at `LEVELS` by source, float64 [N, K, 3]; none without a surrogate.

    Args:
        model: the model.
        surrogate: the surrogate of the objectives with enough labels; the network predicts the others.
        choices: the choice of each of the K objectives.
        texts: N texts.
    """
    predicted: dict[str, np.ndarray] = {}
    if surrogate is not None:
        for source in (NETWORK, SURROGATE, BOTH):
            alone = replace(model)
            of_source = {
                name: replace(choice, source=source if name in surrogate.objectives else NETWORK)
                for name, choice in choices.items()
            }
            combine(alone, surrogate, of_source)
            predicted[source] = alone.predict_text(texts, tuple(choices), LEVELS)
    return predicted
