"""Fine-tuning: a model learns from measured architectures, from a handful to all of a table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from nas_rlm.data import tables
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import Temperatures
from nas_rlm.model.network import Network, has_bfloat16
from nas_rlm.surrogates.calibration import ALONE, GUESSED, calibrate
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fitting import panel_of
from nas_rlm.surrogates.graph_surrogate import BESIDE, Knowing, knowing
from nas_rlm.training.dataset import batches
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.trainer import check_of, fit, seen, shown, validate
from nas_rlm.utils.validation import check_names, hint

SHARE, LEAST, MOST = 0.2, 8, 500  # of the rows are held out, but no fewer and no more
EPOCHS, STEPS, FEWEST = 60, 6000, 4  # at most so many epochs and steps, and no fewer epochs
PATIENCE, LONGEST = 8, 200  # epochs and steps, at least, without a better one, until the best is taken
ASKED = 100  # rows tell which known objective a new one is like
PARTS = ("all", "decoder", "token")  # of a network that can learn
GUESS = 30  # epochs where too few rows are there to choose
USUAL = 200  # tokens of a text; where they are more, epochs are fewer


Model = TypeVar("Model", bound=Ensemble)


def fine_tune(
    rlm: Model,
    rows: Sequence[Row],
    objectives: Sequence[str],
    recipe: Recipe | None = None,
    seed: int = 0,
    experts: bool = True,
    learn: str = "all",
) -> Model:
    """Continue training a model on new rows; objectives that it did not know become tokens of their own.

    Such a token starts at that of the known objective whose predictions rank the rows most like it.

    Without a recipe the epochs are chosen: a fifth of the architectures is held out, the model learns from
    the rest, and the epoch that ranks the held-out ones best is how long a second training takes, on all
    rows. The first one gives the temperatures of the intervals as well. What the rows tell of other networks
    of their space by counts alone becomes a factor of the model's distribution, see `nas_rlm.surrogates.graph_surrogate`.

    >>> tuned = rlm.fine_tune(rows, ["latency/mine"])  # doctest: +SKIP

    Args:
        rlm: the model, left as it is.
        rows: measured architectures.
        objectives: which of their numbers to learn.
        recipe: how, without holding anything out; its tables and size do not matter.
        seed: of the split and the batches, where there is no recipe.
        experts: without them the network alone tells the numbers, those of before too.
        learn: which part of the network does: "all", "decoder", or "token", the objectives' own, so that what
            it says of other objectives stays as it is.

    Returns:
        A new model.

    Raises:
        ValueError: no row has one of the objectives, they are no list of different names, or there is no such
            part.

    Warns:
        UserWarning: the rows are too few to hold any out, or to tell how wide intervals should be.
    """
    check_names(objectives)
    if learn not in PARTS:
        raise ValueError(f"there is no part {learn!r} of a network; {hint(learn, PARTS)}")
    kept = _kept(rows, objectives)
    # Experts come first, so that an error costs no training.
    by_group = recipe is not None and recipe.by_group
    learnt = panel_of(kept, objectives, rlm.experts, by_group) if experts else {}
    tried = None
    if recipe is None:
        learnt = {
            space: [replace(one, beside=dict.fromkeys(one.objectives, BESIDE)) for one in known]
            for space, known in learnt.items()
        }
        recipe, tried = _chosen(rlm, kept, objectives, seed, experts, learn)
    tuned, _ = _tuned(rlm, kept, objectives, recipe, learn)
    tuned.temperatures = _guessed(kept, rlm.temperatures)
    if tried is not None:
        for space, fitted in tried.temperatures.items():
            tuned.temperatures[space].update(fitted)
        for space, known in tried.experts.items():
            told = knowing(known)
            learnt[space] = [_as_tried(one, told) for one in learnt[space]]
    tuned.experts = _joined(rlm.experts, learnt, objectives) if experts else {}
    return tuned


def _guessed(rows: Sequence[Row], known: Temperatures) -> dict[str, dict[str, float]]:
    """Temperatures of all that rows tell: those that are known, or guesses."""
    found: dict[str, dict[str, float]] = {space: dict(of_space) for space, of_space in known.items()}
    for row in rows:
        for name in row.targets:
            found.setdefault(row.space, {}).setdefault(name, ALONE)
    return found


def _chosen(
    rlm: Model, rows: Sequence[Row], objectives: Sequence[str], seed: int, experts: bool, learn: str
) -> tuple[Recipe, Model | None]:
    """How long to train, as a training on a part of the rows tells; and the model after that, calibrated."""
    recipe = default(len(rows), _length(rlm, rows), seed)
    rest, held = tables.split(Table("rows", [*rows]), SHARE, seed)
    held = held.sampled(MOST)
    if len(held) < LEAST or len(rest) < LEAST:
        warnings.warn(
            f"too few rows to hold some out ({len(rows)}): {GUESS} epochs are a guess, as intervals are",
            stacklevel=4,
        )
        return replace(recipe, epochs=GUESS), None
    first, epochs = _tuned(rlm, rest.rows, objectives, recipe, learn, held)
    first.temperatures = {}
    first.experts = _joined({}, panel_of(rest.rows, objectives, rlm.experts), objectives) if experts else {}
    calibrate(first, [held], GUESSED)
    if not first.temperatures:
        warnings.warn(
            f"{len(held)} held-out rows are too few to tell how wide intervals should be", stacklevel=4
        )
    return replace(recipe, epochs=epochs), first


def _length(rlm: Ensemble, rows: Sequence[Row]) -> float:
    """Tokens of a text, in the median."""
    some = Table("", list(rows)).sampled(ASKED).rows
    return float(np.median([len(rlm.token_ids(text)) for text in tables.texts(some)]))


def default(rows: int, length: float = USUAL, seed: int = 0) -> Recipe:
    """How so many rows are learnt where no recipe says it.

    Args:
        rows: that are learnt from.
        length: of a text, in tokens: an epoch of long ones takes so much time that there are fewer.
        seed: of the batches.
    """
    batch = 16
    most = min(EPOCHS, STEPS * batch / max(1, rows)) * min(1, USUAL / length)
    epochs = int(np.clip(most, FEWEST, EPOCHS))
    return Recipe(
        (TableRecipe(""),),
        epochs=epochs,
        batch_size=batch,
        optimizer="muon",
        learning_rate=5e-4,
        warmup=10,
        schedule="constant",
        ema=0.98,
        noise=0.3,
        precision="bfloat16" if has_bfloat16() else "float32",
        seed=seed,
    )


def _kept(rows: Sequence[Row], objectives: Sequence[str]) -> list[Row]:
    """The rows that have one of the objectives, with these numbers alone."""
    if not rows:
        raise ValueError("there are no rows to learn from: expected one measured network each")
    measured = dict.fromkeys(name for row in rows for name in row.targets if row.measured(name))
    for name in objectives:
        if name not in measured:
            raise ValueError(
                f"none of {len(rows)} rows has a value for {name} above zero; {hint(name, measured)}"
            )
    wanted = [row.only(objectives) for row in rows]
    return [row for row in wanted if any(row.measured(name) for name in row.targets)]


def _as_tried(own: Knowing, told: Mapping[str, Knowing]) -> Knowing:
    """An expert with the temperatures that those who learnt from fewer rows were given."""
    names = [name for name in own.objectives if name in told]
    temperatures = {n: told[n].temperatures[n] for n in names if n in told[n].temperatures}
    beside = {n: told[n].beside[n] for n in names if n in told[n].beside}
    return replace(own, temperatures=temperatures, beside={**own.beside, **beside})


def _joined(
    old: Mapping[str, Sequence[Knowing]], new: Mapping[str, Sequence[Knowing]], objectives: Sequence[str]
) -> dict[str, list[Knowing]]:
    """Experts in their places: new ones, and old ones for other numbers and other spaces."""
    found = {space: [one for e in known if (one := e.without(objectives))] for space, known in old.items()}
    for space, known in new.items():
        found.setdefault(space, []).extend(known)
    return found


def alike(rlm: Ensemble, rows: Sequence[Row], objectives: Sequence[str]) -> dict[str, str]:
    """For each objective that a model does not know, the known one of its kind that ranks rows most like it.

    Args:
        rlm: the model, whose network alone is asked.
        rows: measured architectures, of which `ASKED` tell.
        objectives: names, known or new.
    """
    found = {}
    for name in objectives:
        kind = [o for o in rlm.objectives if o.split("/")[0] == name.split("/")[0]]
        some = Table("", [row for row in rows if row.measured(name)]).sampled(ASKED)
        if name not in rlm.objectives and kind and len(some) >= LEAST:
            told, true = rlm.predict_text(tables.texts(some.rows), kind), some.column(name)
            found[name] = kind[int(np.argmax([spearman(column, true) for column in told.T]))]
    return found


def _tuned(
    rlm: Model,
    rows: Sequence[Row],
    objectives: Sequence[str],
    recipe: Recipe,
    learn: str,
    held: Table | None = None,
) -> tuple[Model, int]:
    """A model trained on rows and the epochs that it took: the best ones, where there are held-out rows."""
    grown = rlm.with_objectives(objectives, alike(rlm, rows, objectives))
    grown.trained_on = seen(rows, rlm.trained_on)
    use = TableRecipe("", sequences=len(objectives))
    examples = shown(grown, rows, use, recipe.seed)
    with _learning(grown.network, learn, objectives):
        if held is None:
            fit(grown, examples, recipe)
            return grown, recipe.epochs
        checks = [check_of(held, objectives)]
        each = sum(1 for _ in batches(examples, recipe, 0))
        recipe = replace(recipe, validate_every=each, patience=max(PATIENCE, -(-LONGEST // each)))
        best = fit(grown, examples, recipe, lambda: validate(grown, checks), keep_best=True)
        return grown, max(1, round(best / each))


@contextmanager
def _learning(network: Network, learn: str, objectives: Sequence[str]) -> Iterator[None]:
    """Within it only a part of the network learns."""
    learns = {"all": "", "decoder": "decoder.", "token": "tokens."}[learn]
    kept = [p for name, p in network.named_parameters() if not name.startswith((learns, "tokens."))]
    own = torch.zeros(len(network.tokens.weight), 1)
    own[network.config.objective_ids(objectives)] = 1
    hook = network.tokens.weight.register_hook(lambda g: g * own.to(g.device)) if learn == "token" else None
    for p in kept:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in kept:
            p.requires_grad_(True)
        if hook:
            hook.remove()
