"""Training from a recipe, and the training loop that it shares with fine-tuning.

All randomness is drawn from (seed, epoch, batch), see `nas_rlm.training.dataset`, and the rest of the state
is saved, so that a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import train_validation_test_split
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.files import ASSETS, exclusive_lock
from nas_rlm.model import encoders
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_runtime import TOKENIZER_FILE
from nas_rlm.surrogates.calibration import calibrate
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import Surrogate
from nas_rlm.text import Tokenizer
from nas_rlm.training import distributed
from nas_rlm.training.dataset import Batch, Dataset, batches, collate, make_dataset, truncation_reported
from nas_rlm.training.distillation import distil, pseudo_labels
from nas_rlm.training.recipe import Recipe, SpaceRecipe, TableRecipe, read_recipe
from nas_rlm.training.run_directory import TrainingLog, claim_run_directory
from nas_rlm.training.state import STATE_FILE, TrainingState
from nas_rlm.training.validation import sample_validation_set, validate
from nas_rlm.utils.progress import progress_bar
from search_spaces.wording import counted

MIN_PROGRESS_STEPS = 20  # trainings with fewer steps show no progress bar


@dataclass(frozen=True)
class EpochReport:
    """The state of a training after an epoch.

    Args:
        epoch: number of the epoch, from 1.
        epochs: maximum number of epochs.
        loss: mean loss of the epoch's steps.
        validation: mean metric of the last validation in the epoch, higher is better; NaN without one.
    """

    epoch: int
    epochs: int
    loss: float
    validation: float


EpochCallback = Callable[[EpochReport], object]


def run(
    recipe_path: str | os.PathLike[str], out: str | os.PathLike[str], resume: bool = False, table: str = ""
) -> Ensemble:
    """Train a model from a recipe file, in all processes that torchrun started.

    Args:
        recipe_path: a YAML file, or the name of a shipped recipe.
        out: run directory for the checkpoint, log.jsonl and the state that a resumed run needs.
        resume: continue the run in `out`; the result equals that of an uninterrupted run.
        table: name of the only table of the recipe to train on; by default all are used.

    Returns:
        The trained model.

    Raises:
        ValueError: the recipe is malformed, or `out` holds another run.
    """
    recipe = read_recipe(recipe_path)
    with distributed.process_group(), exclusive_lock(out) if distributed.is_main() else nullcontext():
        return train_from_recipe(recipe.for_table(table) if table else recipe, Path(out), resume)


def train_from_recipe(recipe: Recipe, run_directory: Path, resume: bool = False) -> Ensemble:
    """Train a model from a recipe; see `run`.

    Args:
        recipe: the recipe.
        run_directory: directory of the run.
        resume: continue the run in the directory.

    Returns:
        The model; without surrogates in processes other than the main one.

    Raises:
        ValueError: the directory holds another run, or no row has a number to learn.
    """
    if recipe.encoder:
        encoders.check_packages(recipe.encoder)
    all_tables = [tables.read(tables.data_directory() / t.path) for t in recipe.tables]
    all_tables += [_random_networks(space, recipe.seed) for space in recipe.spaces]
    start = Ensemble.load(recipe.start) if recipe.start else None
    if distributed.is_main():
        claim_run_directory(run_directory, recipe, resume)
    uses = [*recipe.tables, *(space.as_table for space in recipe.spaces)]
    splits = [
        train_validation_test_split(t, recipe.validation, recipe.seed, recipe.by_group) for t in all_tables
    ]
    train_tables, validation_tables, _ = zip(*splits, strict=True)
    rlm = _initial_model(recipe, run_directory, train_tables, start)
    rlm.trained_on = training_coverage([row for table in train_tables for row in table.rows])
    if not recipe.epochs and start is not None:
        return _fit_surrogates_only(rlm, start, recipe, run_directory, train_tables, validation_tables)
    datasets = [
        dataset
        for table, use in zip(train_tables, uses, strict=True)
        for dataset in make_datasets(rlm, table.rows, use, recipe.seed)
    ]
    validation_sets = [sample_validation_set(table, recipe) for table in validation_tables]
    tables_to_report = train_tables if distributed.is_main() else ()
    texts = [text for table in tables_to_report for text in texts_of_rows(table.rows)]
    with truncation_reported(rlm, texts):
        fit(rlm, datasets, recipe, lambda: validate(rlm, validation_sets), run_directory, resume)
        if not distributed.is_main():
            return rlm
        rlm.surrogates = _fit_table_surrogates(rlm, recipe, train_tables)
        calibrate(rlm, validation_tables[: len(recipe.tables)], progress=True)
        rlm.save(run_directory)
    return rlm


def _fit_surrogates_only(
    rlm: Ensemble,
    start: Ensemble,
    recipe: Recipe,
    run_directory: Path,
    train_tables: Sequence[Table],
    validation_tables: Sequence[Table],
) -> Ensemble:
    """Fit and calibrate surrogates beside the network and the surrogates of another model.

    Where this network has not learnt an objective in a space, the surrogate predicts without it.
    """
    rlm.surrogates = _fit_table_surrogates(rlm, recipe, train_tables)
    rlm.temperatures, rlm.maximised = start.temperatures, start.maximised
    learnt = {space: _learnt_by_network(start, space) for space in rlm.trained_on}
    learnt_rows = [
        replace(table, rows=[row for row in table.rows if learnt.get(row.space)])
        for table in validation_tables
    ]
    calibrate(rlm, learnt_rows, progress=True)
    for space, entry in rlm.trained_on.items():
        unknown = {name: WITHOUT_NETWORK for name in entry.objectives if name not in learnt[space]}
        rlm.surrogates[space] = [
            replace(
                s,
                network_temperatures={**s.network_temperatures, **unknown},
                temperatures={**s.temperatures, **dict.fromkeys(unknown, 1.0)},
            )
            for s in rlm.surrogates.get(space, ())
        ]
    rlm.surrogates = {**start.surrogates, **rlm.surrogates}
    rlm.trained_on = {**start.trained_on, **rlm.trained_on}
    rlm.save(run_directory)
    return rlm


def _learnt_by_network(start: Ensemble, space: str) -> set[str]:
    """Return the objectives that a model's network has learnt in a space: not those of surrogates alone."""
    if space not in start.trained_on:
        return set()
    alone = {
        name
        for surrogate in start.surrogates.get(space, ())
        for name, temperature in surrogate.network_temperatures.items()
        if temperature == WITHOUT_NETWORK
    }
    return set(start.trained_on[space].objectives) - alone


def _fit_table_surrogates(
    rlm: Ensemble, recipe: Recipe, train_tables: Sequence[Table]
) -> dict[str, list[Surrogate]]:
    """Fit the surrogates of each table of a recipe."""
    surrogates: dict[str, list[Surrogate]] = {}
    for table, use in zip(train_tables, recipe.tables, strict=False):
        names = use.surrogate_objectives(rlm.objectives)
        surrogates |= fit_surrogates(table.rows, names, by_group=recipe.by_group)
    return surrogates


def _random_networks(space: SpaceRecipe, seed: int) -> Table:
    """Draw random networks of a space, with their graph features or a teacher's predictions as targets."""
    if space.teacher:
        return distil(Ensemble.load(space.teacher), space.space, space.networks, seed)
    return synthetic.random_table(space.space, space.networks, seed)


def _initial_model(
    recipe: Recipe, run_directory: Path, train_tables: Sequence[Table], start: Ensemble | None
) -> Ensemble:
    """Return the model before training: a copy of another one, or a new network."""
    objectives = tuple(dict.fromkeys(name for table in train_tables for name in table.objectives))
    if start is not None and not recipe.epochs:
        objectives = tuple(dict.fromkeys([*start.objectives, *objectives]))
    torch.manual_seed(recipe.seed)
    if start is not None:
        return start.copy_for_training(objectives, recipe.numbers)
    if recipe.encoder:
        encoder = encoders.load(recipe.encoder)
        config = Config(
            encoder.tokenizer.vocab_size,
            objectives,
            recipe.size,
            encoder.max_length,
            max_numbers=recipe.numbers,
            encoder=recipe.encoder,
            encoder_width=encoder.width,
        )
        return Ensemble(Network(config, encoder.tokenizer.kinds()), encoder.tokenizer)
    if distributed.is_main():
        _write_tokenizer(run_directory, recipe, train_tables)
    distributed.barrier()
    tokenizer = Tokenizer.load(run_directory / TOKENIZER_FILE)
    config = Config(
        tokenizer.vocab_size,
        objectives,
        recipe.size,
        max_numbers=recipe.numbers,
        statement_layers=recipe.statements,
    )
    return Ensemble(Network(config, tokenizer.kinds()), tokenizer)


def _write_tokenizer(run_directory: Path, recipe: Recipe, train_tables: Sequence[Table]) -> None:
    """Write the recipe's tokenizer, or one that is trained on the tables, unless the directory has one."""
    path = run_directory / TOKENIZER_FILE
    if path.is_file():
        return
    if recipe.tokenizer:
        shipped = ASSETS / recipe.tokenizer / path.name
        Tokenizer.load(shipped if shipped.is_file() else Path(recipe.tokenizer)).save(path)
        return
    rng = np.random.default_rng(recipe.seed)
    sample: list[str] = []
    for table in train_tables:
        texts = texts_of_rows(table.rows)
        sample += [texts[i] for i in sorted(rng.permutation(len(texts))[: recipe.tokenizer_texts])]
    Tokenizer.train(sample, recipe.vocab_size, recipe.longest_piece, recipe.seed).save(path)


def make_datasets(rlm: Ensemble, rows: Sequence[Row], use: TableRecipe, seed: int) -> list[Dataset]:
    """Return the training data of a table: its rows, and random networks with pseudo-labels if requested.

    Args:
        rlm: the model.
        rows: training rows of the table.
        use: settings of the table.
        seed: seed of the random networks.
    """
    datasets = [make_dataset(rlm, rows, use, texts_of_rows(rows))]
    if use.pseudo_labels:
        objectives = dict.fromkeys(name for row in rows for name in row.targets if name in rlm.objectives)
        measured = [name for name in objectives if name not in EXACT_OBJECTIVES]
        labelled = pseudo_labels(rows, measured, use.pseudo_labels, seed)
        datasets.append(make_dataset(rlm, labelled, replace(use, rows=None), texts_of_rows(labelled)))
    return datasets


def training_coverage(
    rows: Sequence[Row], before: Mapping[str, TrainedOn] | None = None
) -> dict[str, TrainedOn]:
    """Return the number of rows, the objectives and the task of each space that a model was trained on.

    Args:
        rows: training rows.
        before: coverage of earlier trainings of the model, which is added.
    """
    coverage = dict(before or {})
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        new, earlier = list(group), coverage.get(space, TrainedOn(0, ()))
        names = dict.fromkeys([*earlier.objectives, *(name for row in new for name in row.targets)])
        task = search_spaces.task_of(space) or earlier.task
        coverage[space] = TrainedOn(earlier.rows + len(new), tuple(names), task)
    return coverage


def fit(
    rlm: Ensemble,
    datasets: Sequence[Dataset],
    recipe: Recipe,
    compute_metrics: Callable[[], dict[str, dict[str, float]]] | None = None,
    run_directory: Path | None = None,
    resume: bool = False,
    keep_best: bool = False,
    metric: str = "spearman",
    on_epoch: EpochCallback | None = None,
    progress: bool = True,
) -> int:
    """Train a model in place; at the end it has the averaged weights.

    Args:
        rlm: the model.
        datasets: training data.
        recipe: learning rate, epochs and other settings.
        compute_metrics: function that validates the model and returns its metrics, see
            `nas_rlm.training.validation.validate`; None for no validation.
        run_directory: directory for log.jsonl and the state; None to write nothing.
        resume: start from the state in the run directory.
        keep_best: keep the weights of the validation with the highest mean metric instead of the last.
        metric: name of the metric that decides which validation is the best.
        on_epoch: function that is called after each epoch, in the main process of an undistributed training;
            if it returns true, the training stops.
        progress: show a progress bar, unless there are few steps.

    Returns:
        The step whose weights the model has.

    Raises:
        ValueError: no row has a number to learn.
    """
    if not any(numbers for dataset in datasets for numbers in dataset.numbers):
        raise ValueError(
            f"none of {counted(sum(map(len, datasets)), 'row')} has a number to learn: expected one of"
            f" {', '.join(rlm.objectives)}, and latencies above 0"
        )
    network = rlm.network
    state = TrainingState(network.to(distributed.device()), recipe)
    steps_per_epoch = sum(1 for _ in batches(datasets, recipe, epoch=0))
    total_steps = steps_per_epoch * recipe.epochs
    if resume and run_directory is not None and (run_directory / STATE_FILE).is_file():
        state.load(run_directory)
    output = run_directory if distributed.is_main() else None
    log = TrainingLog(output)
    best_weights: dict[str, Tensor] = {}
    best_step = 0
    epoch_losses: list[float] = []
    mean = math.nan
    shows_progress = progress and total_steps >= MIN_PROGRESS_STEPS and distributed.is_main()
    with progress_bar(
        total=total_steps, initial=state.step, unit="step", desc="train", disable=not shows_progress
    ) as bar:
        for epoch, i, batch in _remaining_batches(datasets, recipe, state.step, steps_per_epoch):
            if recipe.patience and state.validations_since_best >= recipe.patience:
                break
            noise = recipe.noise * (1 - state.step / total_steps)
            rng = np.random.default_rng([recipe.seed, epoch, i])
            ids, inputs, targets, weights = collate(batch, rng, network.config, noise)
            loss = state.advance(ids, inputs, targets, weights, total_steps)
            log.add(loss, ids.numel() + inputs.numel())
            epoch_losses.append(loss)
            bar.update()
            is_last = state.step == total_steps
            if compute_metrics is not None and (state.step % recipe.validate_every == 0 or is_last):
                metrics = _validate_averaged(state, compute_metrics)
                mean = _mean_metric(metrics, metric)
                is_best = mean > state.best
                if is_best and keep_best:
                    best_weights = {n: p.clone() for n, p in state.averaged.tensors.items()}
                    best_step = state.step
                state.best = mean if is_best else state.best
                state.validations_since_best = 0 if is_best else state.validations_since_best + 1
                log.write(state.step, validation=metrics, **{f"mean_{metric}": round(mean, 5)})
                bar.set_postfix(**{metric: f"{mean:.4f}"})
            if output is not None and (state.step % recipe.checkpoint_every == 0 or is_last):
                state.save(output)
            if on_epoch is not None and state.step % steps_per_epoch == 0:
                report = EpochReport(epoch + 1, recipe.epochs, float(np.mean(epoch_losses)), mean)
                epoch_losses, mean = [], math.nan
                if on_epoch(report):
                    break
    network.load_state_dict(best_weights or state.averaged.tensors, strict=False)
    network.to("cpu").eval()
    return best_step if best_weights else state.step


def _remaining_batches(
    datasets: Sequence[Dataset], recipe: Recipe, step: int, steps_per_epoch: int
) -> Iterator[tuple[int, int, Batch]]:
    """Yield the epoch, the index within it and the batch of each step, from the given step on."""
    first_epoch, num_done = divmod(step, steps_per_epoch)
    for epoch in range(first_epoch, recipe.epochs):
        for i, batch in enumerate(batches(datasets, recipe, epoch)):
            if epoch > first_epoch or i >= num_done:
                yield epoch, i, batch


def _validate_averaged(
    state: TrainingState, compute_metrics: Callable[[], dict[str, dict[str, float]]]
) -> dict[str, dict[str, float]]:
    """Return the metrics of the averaged weights in the main process; empty in other processes."""
    if not distributed.is_main():
        return {}
    with state.averaged.applied():
        return compute_metrics()


def _mean_metric(metrics: Mapping[str, Mapping[str, float]], name: str) -> float:
    """Return the mean of a metric of the main process in all processes; 0 without metrics."""
    values = [of_objective[name] for of_objective in metrics.values()]
    return distributed.broadcast(float(np.mean(values)) if values else 0.0)
