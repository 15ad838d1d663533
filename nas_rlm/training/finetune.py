"""Fine-tuning: train a model further on measured architectures, from a handful to a full table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import split
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import Temperatures
from nas_rlm.model.kept_states import KeptStates
from nas_rlm.model.network import Network, has_bfloat16
from nas_rlm.surrogates.calibration import DEFAULT_TEMPERATURE, PRIOR_ROWS, calibrate
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.latency_fitting import fit_layer_surrogate
from nas_rlm.surrogates.predictive import DEFAULT_NETWORK_TEMPERATURE, MIN_LABELS, WITHOUT_NETWORK
from nas_rlm.surrogates.registry import Surrogate, surrogate_by_objective
from nas_rlm.training.dataset import batches, truncation_reported
from nas_rlm.training.label_checks import TooFewLabelsError, check_representable, select_rows
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.trainer import fit, make_datasets, training_coverage
from nas_rlm.training.validation import make_validation_set, validate
from nas_rlm.training.weaknesses import warn_if_weak
from nas_rlm.utils import torch_settings
from nas_rlm.utils.validation import check_objective_names, suggest
from search_spaces.wording import counted

VALIDATION_FRACTION, MIN_ROWS, MAX_VALIDATION_ROWS = 0.2, 8, 500  # MIN_ROWS in each of the two subsets
MAX_EPOCHS, MAX_STEPS, MIN_EPOCHS = 60, 6000, 4
PATIENCE_EPOCHS, PATIENCE_STEPS = 8, 200  # without improvement, both of which must have passed
DEFAULT_EPOCHS = 30  # with too few rows for validation
MAX_SAMPLED_ROWS = 100  # to find similar objectives, and the length of texts
LONG_TEXT = 200  # tokens; with longer texts there are fewer epochs
BATCH_SIZE = 16
PARTS = {
    "all": "",
    "decoder": "decoder.",
    "token": "tokens.",
}  # of a network, with prefixes of their parameters
NO_PART = "none"
LAYERS = "layers"  # nothing is trained; one layer surrogate predicts latencies of networks of all spaces

Model = TypeVar("Model", bound=Ensemble)


def fine_tune(
    rlm: Model,
    rows: Sequence[Row],
    objectives: Sequence[str],
    recipe: Recipe | None = None,
    seed: int = 0,
    surrogates: bool = True,
    learn: str = "all",
    maximise: Sequence[str] = (),
) -> Model:
    """Train a copy of a model further on measured rows; new objectives are added.

    Examples:
        >>> tuned = fine_tune(rlm, rows, ["latency/mine"])  # doctest: +SKIP

    The embedding of a new objective is initialised with that of the model's objective whose predictions have
    the highest rank correlation with the rows, see `similar_objectives`.

    Without a recipe, the number of epochs is chosen: a fifth of the architectures is held out, a first
    training uses the others, and its best epoch on the held-out rows is the number of epochs of a second
    training on all rows. The first training also calibrates the temperatures. Surrogates that are fitted to
    the rows are combined with the network, see `nas_rlm.surrogates.graphs.surrogate`.

    Args:
        rlm: the model, which is not changed.
        rows: measured architectures.
        objectives: names of the objectives to learn.
        recipe: settings of the training, without validation; its tables and size are ignored. None to choose
            the number of epochs by validation.
        seed: seed of the split and the batches if there is no recipe.
        surrogates: fit surrogates to the rows and keep those of the model; if false, the new model has none.
        learn: part of the network that is trained: "all", "decoder", or "token" for the embeddings of the
            objectives only, which leaves predictions of other objectives unchanged. With "none" nothing is
            trained, and the surrogates alone predict the objectives, which takes seconds. With "layers" one
            layer surrogate predicts the objectives, which are latencies, for networks of any space.
        maximise: objectives that searches with the new model maximise although their kind is not.

    Returns:
        A new model.

    Raises:
        ValueError: no row has one of the objectives, the objectives are not a list of distinct names,
            `learn` is not one of the four names, the model's numbers cannot represent the values, or there
            are too few labels for surrogates that predict alone.

    Warns:
        UserWarning: the rows are too few for validation or calibration, or for what their latencies vary, or
            latencies of 0 are left out.
        TruncationWarning: texts are longer than the network reads.
    """
    check_objective_names(objectives)
    if rlm.network.config.reads_any_text:
        raise ValueError("the model was fitted to texts: RLM.fit(..., start=model) trains it further")
    if wrong := [row for row in rows if not isinstance(row, Row)]:
        raise ValueError(
            f"rows has {str(wrong[0])[:60]!r}: expected rows of a table; RLM.fit learns from texts"
        )
    if learn not in (*PARTS, NO_PART, LAYERS):
        raise ValueError(
            f"there is no part {learn!r} of a network; {suggest(learn, [*PARTS, NO_PART, LAYERS])}"
        )
    if learn in (NO_PART, LAYERS) and (recipe is not None or not surrogates):
        raise ValueError("nothing is to be trained: expected surrogates, and no recipe")
    train_rows = select_rows(rows, objectives)
    for name in objectives:
        check_representable(name, train_rows, rlm.network.config.scheme)
    is_trained = learn in PARTS
    truncation = truncation_reported(rlm, texts_of_rows(train_rows)) if is_trained else nullcontext()
    with torch_settings.standard(), truncation:
        tuned = _fine_tune(rlm, train_rows, objectives, recipe, seed, surrogates, learn)
    tuned.maximised = tuple(dict.fromkeys([*rlm.maximised, *(n for n in maximise if n in objectives)]))
    return tuned


def _fine_tune(
    rlm: Model,
    train_rows: Sequence[Row],
    objectives: Sequence[str],
    recipe: Recipe | None,
    seed: int,
    surrogates: bool,
    learn: str,
) -> Model:
    """Return the fine-tuned model; arguments as for `fine_tune`, checked."""
    if learn == LAYERS:
        return _with_layer_surrogate(rlm, train_rows, objectives)
    # Surrogates are fitted first, since their errors should come before a long training.
    by_group = recipe is not None and recipe.by_group
    fitted = fit_surrogates(train_rows, objectives, rlm.surrogates, by_group) if surrogates else {}
    warn_if_weak(fitted)
    if surrogates:
        _check_kept(rlm, train_rows, objectives, fitted)
    if learn == NO_PART:
        return _with_surrogates_alone(rlm, train_rows, objectives, fitted)
    first = None
    if recipe is None:
        fitted = {space: [*map(_with_default_temperatures, group)] for space, group in fitted.items()}
        recipe, first = _choose_recipe(rlm, train_rows, objectives, seed, surrogates, learn)
    tuned, _ = _train(rlm, train_rows, objectives, recipe, learn)
    temperatures = _with_defaults(train_rows, rlm.temperatures)
    if first is not None:
        for space, calibrated_temperatures in first.temperatures.items():
            temperatures[space].update(calibrated_temperatures)
        for space, calibrated in first.surrogates.items():
            by_objective = surrogate_by_objective(calibrated)
            fitted[space] = [_with_calibration(surrogate, by_objective) for surrogate in fitted[space]]
    tuned.temperatures = temperatures
    tuned.surrogates = _merge_surrogates(rlm.surrogates, fitted, objectives) if surrogates else {}
    return tuned


def _check_kept(
    rlm: Model, rows: Sequence[Row], objectives: Sequence[str], fitted: Mapping[str, Sequence[Surrogate]]
) -> None:
    """Refuse rows with too few labels to replace a surrogate, which the new network does not fit to.

    Raises:
        TooFewLabelsError: a surrogate of the model would be lost.
    """
    few = _counts_without_surrogate(rows, objectives, fitted)
    known = {space: surrogate_by_objective(group) for space, group in rlm.surrogates.items()}
    lost = {(space, name): count for (space, name), count in few.items() if name in known.get(space, ())}
    if lost:
        raise TooFewLabelsError(lost, MIN_LABELS, ", or the model loses what it has learnt from others")


def _counts_without_surrogate(
    rows: Sequence[Row], objectives: Sequence[str], fitted: Mapping[str, Sequence[Surrogate]]
) -> dict[tuple[str, str], int]:
    """Return the number of labels of each space and objective that has labels, but no fitted surrogate."""
    counts = {}
    for space in dict.fromkeys(row.space for row in rows):
        labelled = [row for row in rows if row.space == space]
        for name in _objectives_with_labels(labelled, objectives):
            if name not in surrogate_by_objective(fitted.get(space, ())):
                counts[space, name] = sum(row.is_measured(name) for row in labelled)
    return counts


def _with_surrogates_alone(
    rlm: Model, rows: Sequence[Row], objectives: Sequence[str], fitted: Mapping[str, Sequence[Surrogate]]
) -> Model:
    """Return a copy of a model in which fitted surrogates alone predict the objectives.

    Raises:
        TooFewLabelsError: an objective of a space has too few labels for a surrogate.
    """
    if few := _counts_without_surrogate(rows, objectives, fitted):
        raise TooFewLabelsError(few, MIN_LABELS)
    tuned = rlm.with_objectives(objectives)
    tuned.trained_on = training_coverage(rows, rlm.trained_on)
    alone = {space: [*map(_without_network, group)] for space, group in fitted.items()}
    former = {space: group for space, group in rlm.surrogates.items() if space in alone}
    tuned.surrogates = {**rlm.surrogates, **_merge_surrogates(former, alone, objectives)}
    return tuned


def _with_layer_surrogate(rlm: Model, rows: Sequence[Row], objectives: Sequence[str]) -> Model:
    """Return a copy of a model in which one layer surrogate predicts latencies of networks of all spaces.

    Raises:
        ValueError: an objective is no latency, a row is a program, or a latency has too few labels.
    """
    for name in objectives:
        if not name.startswith(LATENCY_PREFIX):
            raise ValueError(f"{name} is no latency: layer surrogates predict only latencies")
        count = sum(row.is_measured(name) for row in rows)
        if count < MIN_LABELS:
            raise ValueError(
                f"{counted(count, 'row has', 'rows have')} {name}: expected at least {MIN_LABELS}"
            )
    if any(row.is_program for row in rows):
        raise ValueError("the table has programs: layer surrogates predict only networks")
    fitted = _without_network(fit_layer_surrogate(rows, objectives))
    tuned = rlm.with_objectives(objectives)
    tuned.surrogates = _merge_surrogates(rlm.surrogates, {"": [fitted]}, objectives)
    return tuned


def _objectives_with_labels(rows: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Return the objectives that are measured in a row."""
    return [name for name in objectives if any(row.is_measured(name) for row in rows)]


def _without_network(surrogate: Surrogate) -> Surrogate:
    """Return a copy of a surrogate that predicts its objectives alone."""
    return replace(
        surrogate,
        temperatures=dict.fromkeys(surrogate.objectives, 1.0),
        network_temperatures=dict.fromkeys(surrogate.objectives, WITHOUT_NETWORK),
    )


def _with_defaults(rows: Sequence[Row], known: Temperatures) -> dict[str, dict[str, float]]:
    """Return known temperatures, and the default for other spaces and objectives of the rows."""
    temperatures = {space: dict(by_objective) for space, by_objective in known.items()}
    for row in rows:
        for name in row.targets:
            temperatures.setdefault(row.space, {}).setdefault(name, DEFAULT_TEMPERATURE)
    return temperatures


def _with_default_temperatures(surrogate: Surrogate) -> Surrogate:
    """Return a copy of a surrogate with the default network temperature for each objective."""
    defaults = dict.fromkeys(surrogate.objectives, DEFAULT_NETWORK_TEMPERATURE)
    return replace(surrogate, network_temperatures=defaults)


def _with_calibration(surrogate: Surrogate, calibrated: Mapping[str, Surrogate]) -> Surrogate:
    """Return a copy of a surrogate with the temperatures of calibrated surrogates, given by objective."""
    temperatures: dict[str, float] = {}
    network_temperatures = dict(surrogate.network_temperatures)
    for name in surrogate.objectives:
        other = calibrated.get(name)
        if other and name in other.temperatures:
            temperatures[name] = other.temperatures[name]
        if other and name in other.network_temperatures:
            network_temperatures[name] = other.network_temperatures[name]
    return replace(surrogate, temperatures=temperatures, network_temperatures=network_temperatures)


def _merge_surrogates(
    former: Mapping[str, Sequence[Surrogate]],
    fitted: Mapping[str, Sequence[Surrogate]],
    objectives: Sequence[str],
) -> dict[str, list[Surrogate]]:
    """Return the fitted surrogates of each space, and the former ones without the fitted objectives."""
    merged = {
        space: [rest for surrogate in surrogates if (rest := surrogate.without(objectives))]
        for space, surrogates in former.items()
    }
    for space, surrogates in fitted.items():
        merged.setdefault(space, []).extend(surrogates)
    return merged


def _choose_recipe(
    rlm: Model, rows: Sequence[Row], objectives: Sequence[str], seed: int, surrogates: bool, learn: str
) -> tuple[Recipe, Model | None]:
    """Return a recipe with the best number of epochs on held-out rows, and the calibrated model of that run.

    With too few rows for validation, the number of epochs is a default, and there is no model.
    """
    recipe = default_recipe(len(rows), _median_length(rlm, rows), seed)
    train, held_out = split(Table("rows", [*rows]), VALIDATION_FRACTION, seed)
    held_out = held_out.sample(MAX_VALIDATION_ROWS)
    if len(held_out) < MIN_ROWS or len(train) < MIN_ROWS:
        warnings.warn(
            f"{counted(len(rows), 'row is', 'rows are')} too few for validation: training takes"
            f" {DEFAULT_EPOCHS} epochs and"
            " intervals are uncalibrated",
            stacklevel=5,
        )
        return replace(recipe, epochs=DEFAULT_EPOCHS), None
    first, epochs = _train(rlm, train.rows, objectives, recipe, learn, held_out)
    first.temperatures = {}
    fitted = fit_surrogates(train.rows, objectives, rlm.surrogates) if surrogates else {}
    first.surrogates = _merge_surrogates({}, fitted, objectives)
    calibrate(first, [held_out], PRIOR_ROWS)
    if not first.temperatures:
        warnings.warn(
            f"{len(held_out)} held-out rows are too few for calibration: intervals are uncalibrated",
            stacklevel=5,
        )
    return replace(recipe, epochs=epochs), first


def _median_length(rlm: Ensemble, rows: Sequence[Row]) -> float:
    """Return the median number of tokens of the rows' texts."""
    sample = Table("", list(rows)).sample(MAX_SAMPLED_ROWS).rows
    return float(np.median([len(rlm.token_ids(text)) for text in texts_of_rows(sample)]))


def default_recipe(num_rows: int, text_length: float = LONG_TEXT, seed: int = 0) -> Recipe:
    """Return the recipe that fine-tuning uses if none is given.

    Args:
        num_rows: number of training rows.
        text_length: median number of tokens of a text; with long texts there are fewer epochs, since each
            takes longer.
        seed: seed of the batches.
    """
    max_epochs = min(MAX_EPOCHS, MAX_STEPS * BATCH_SIZE / max(1, num_rows)) * min(1, LONG_TEXT / text_length)
    return Recipe(
        (TableRecipe(""),),
        epochs=int(np.clip(max_epochs, MIN_EPOCHS, MAX_EPOCHS)),
        batch_size=BATCH_SIZE,
        optimizer="muon",
        learning_rate=5e-4,
        warmup=10,
        schedule="constant",
        ema=0.98,
        noise=0.3,
        precision="bfloat16" if has_bfloat16() else "float32",
        seed=seed,
    )


def similar_objectives(rlm: Ensemble, rows: Sequence[Row], objectives: Sequence[str]) -> dict[str, str]:
    """Return for each new objective the known one of its kind with the highest rank correlation.

    A known objective is one that the model predicts. The kind of `latency/pixel3` is `latency`. The
    correlation is that of the predictions of the known objective with the values of the new one in the rows.

    Args:
        rlm: the model.
        rows: measured architectures; a sample of at most `MAX_SAMPLED_ROWS` is used.
        objectives: names of known and new objectives.

    Returns:
        Known objective by new one; a new one is left out if there are too few rows or no known one.
    """
    similar = {}
    for name in objectives:
        same_kind = [o for o in rlm.objectives if o.split("/")[0] == name.split("/")[0]]
        sample = Table("", [row for row in rows if row.is_measured(name)]).sample(MAX_SAMPLED_ROWS)
        if name not in rlm.objectives and same_kind and len(sample) >= MIN_ROWS:
            predictions, true = rlm.predict_text(texts_of_rows(sample.rows), same_kind), sample.column(name)
            best = int(np.argmax([spearman(predicted, true) for predicted in predictions.T]))
            similar[name] = same_kind[best]
    return similar


def _train(
    rlm: Model,
    rows: Sequence[Row],
    objectives: Sequence[str],
    recipe: Recipe,
    learn: str,
    held_out: Table | None = None,
) -> tuple[Model, int]:
    """Return a trained copy of a model and its number of epochs, the best one on held-out rows if given."""
    model = rlm.with_objectives(objectives, similar_objectives(rlm, rows, objectives))
    model.trained_on = training_coverage(rows, rlm.trained_on)
    use = TableRecipe("", sequences=len(objectives))
    datasets = make_datasets(model, rows, use, recipe.seed)
    with _trainable_part(model.network, learn, objectives):
        if held_out is None:
            fit(model, datasets, recipe)
            return model, recipe.epochs
        validation_sets = [make_validation_set(held_out, objectives)]
        steps_per_epoch = sum(1 for _ in batches(datasets, recipe, 0))
        patience = max(PATIENCE_EPOCHS, -(-PATIENCE_STEPS // steps_per_epoch))
        recipe = replace(recipe, validate_every=steps_per_epoch, patience=patience)
        best_step = fit(model, datasets, recipe, lambda: validate(model, validation_sets), keep_best=True)
        return model, max(1, round(best_step / steps_per_epoch))


@contextmanager
def _trainable_part(network: Network, learn: str, objectives: Sequence[str]) -> Iterator[None]:
    """Within the context, freeze all parameters except those of the part that `learn` names."""
    frozen = [p for name, p in network.named_parameters() if not name.startswith((PARTS[learn], "tokens."))]
    mask = torch.zeros(len(network.tokens.weight), 1)
    mask[network.config.objective_ids(objectives)] = 1
    hook = network.tokens.weight.register_hook(lambda g: g * mask.to(g.device)) if learn == "token" else None
    for p in frozen:
        p.requires_grad_(False)
    network.kept_states = KeptStates() if frozen else None  # of the encoder, which does not change
    try:
        yield
    finally:
        network.kept_states = None
        for p in frozen:
            p.requires_grad_(True)
        if hook:
            hook.remove()
