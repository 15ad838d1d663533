"""One training loop, for pretraining from a recipe and for fine-tuning a model.

What is random is drawn from (seed, epoch, batch), see `nas_rlm.training.dataset`, and all else is kept in the
checkpoint, so that a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Adafactor, AdamW, Muon, Optimizer
from tqdm import tqdm

from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import COUNTED, Row, Table
from nas_rlm.files import ASSETS, alone, atomic, write_text
from nas_rlm.metrics import kendall, spearman
from nas_rlm.model import encoders
from nas_rlm.model.checkpoint import Seen
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_runtime import TOKENIZER
from nas_rlm.surrogates.calibration import calibrate
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fitting import panel_of
from nas_rlm.text import Tokenizer
from nas_rlm.training import distributed
from nas_rlm.training.dataset import IGNORED, Examples, batches, collate, examples_of
from nas_rlm.training.distillation import lessons, taught
from nas_rlm.training.recipe import Recipe, SpaceRecipe, TableRecipe, read_recipe

ADAM = (0.9, 0.98)  # AdamW's betas
SCORES = 2**25  # of attention in a layer, at most: a step needs some 40 bytes for each


def run(
    recipe_path: str | os.PathLike[str], out: str | os.PathLike[str], resume: bool = False, table: str = ""
) -> Ensemble:
    """Train from a recipe, in as many processes as torchrun started, see `nas_rlm.training.distributed`.

    Args:
        recipe_path: a YAML file, or the name of a shipped recipe.
        out: a folder for the checkpoint, log.jsonl and what a resumed run needs.
        resume: continue the run in `out`; the result is the one of an uninterrupted run.
        table: use this one of the recipe's tables alone.

    Raises:
        ValueError: a malformed recipe, or `out` holds another run.
    """
    recipe = read_recipe(recipe_path)
    with distributed.joined(), alone(out) if distributed.is_first() else nullcontext():
        return trained(recipe.alone(table) if table else recipe, Path(out), resume)


def trained(recipe: Recipe, folder: Path, resume: bool = False) -> Ensemble:
    """A model that learns as a recipe says; see `run`."""
    read = [tables.read(tables.data_directory() / t.path) for t in recipe.tables]
    read += [_networks(s, recipe.seed) for s in recipe.spaces]
    start = Ensemble.load(recipe.start) if recipe.start else None
    if distributed.is_first():
        claim(folder, recipe, resume)
    uses = [*recipe.tables, *(s.use for s in recipe.spaces)]
    sides = [tables.split_in_three(t, recipe.validation, recipe.seed, recipe.by_group) for t in read]
    objectives = _objectives([side[0] for side in sides])
    torch.manual_seed(recipe.seed)
    if start is not None:
        rlm = start.starting(objectives, recipe.numbers)
    elif recipe.encoder:
        encoder = encoders.load(recipe.encoder)
        config = Config(
            encoder.pieces.vocab_size,
            objectives,
            recipe.size,
            encoder.max_length,
            numbers=recipe.numbers,
            encoder=recipe.encoder,
            encoder_width=encoder.width,
        )
        rlm = Ensemble(Network(config, encoder.pieces.kinds()), encoder.pieces)
    else:
        if distributed.is_first():
            _tokenizer(folder, recipe, [tables.texts(side[0].rows) for side in sides])
        distributed.wait()
        tokenizer = Tokenizer.load(folder / TOKENIZER)
        config = Config(
            tokenizer.vocab_size,
            objectives,
            recipe.size,
            numbers=recipe.numbers,
            statements=recipe.statements,
        )
        rlm = Ensemble(Network(config, tokenizer.kinds()), tokenizer)
    rlm.trained_on = seen([row for side in sides for row in side[0].rows])
    examples = [
        e for side, use in zip(sides, uses, strict=True) for e in shown(rlm, side[0].rows, use, recipe.seed)
    ]
    checks = [_watched(side[1], recipe) for side in sides]
    fit(rlm, examples, recipe, lambda: validate(rlm, checks), folder, resume)
    if not distributed.is_first():
        return rlm
    rlm.experts = {
        space: known
        for side, use in zip(sides, uses, strict=True)
        for space, known in panel_of(side[0].rows, use.told(rlm.objectives), by_group=recipe.by_group).items()
    }
    calibrate(rlm, [side[1] for side in sides[: len(recipe.tables)]], progress=True)
    rlm.save(folder)
    return rlm


def _networks(use: SpaceRecipe, seed: int) -> Table:
    """Random networks of a space with what is counted in them, or what a teacher tells of them."""
    if use.teacher:
        return taught(Ensemble.load(use.teacher), use.space, use.networks, seed)
    return synthetic.table(use.space, use.networks, seed)


def shown(rlm: Ensemble, rows: Sequence[Row], use: TableRecipe, seed: int) -> list[Examples]:
    """What a model is shown of rows: themselves, and what they let expect of random networks."""
    found = [examples_of(rlm, rows, use, tables.texts(rows))]
    if use.lessons:
        measured = dict.fromkeys(name for row in rows for name in row.targets if name in rlm.objectives)
        told = lessons(rows, [name for name in measured if name not in COUNTED], use.lessons, seed)
        found.append(examples_of(rlm, told, replace(use, rows=None), tables.texts(told)))
    return found


def fit(
    rlm: Ensemble,
    examples: list[Examples],
    recipe: Recipe,
    check: Callable[[], dict[str, dict[str, float]]] | None = None,
    out: Path | None = None,
    resume: bool = False,
    keep_best: bool = False,
) -> int:
    """Train in place; averaged weights are what the model holds at the end.

    Args:
        rlm: the model.
        examples: a set for each table.
        recipe: learning rate, epochs and the rest.
        check: gives validation figures of the model as it stands; None for none.
        out: where log.jsonl and the resumable state go; None for nowhere.
        resume: start from the state in `out`.
        keep_best: hold the weights of the check with the highest mean Spearman, not the last ones.

    Returns:
        The step whose weights the model holds.

    Raises:
        ValueError: no row has a number to learn.
    """
    network, device = rlm.network, distributed.device()
    kept_in = out if distributed.is_first() else None
    if not any(numbers for e in examples for numbers in e.numbers):
        raise ValueError(
            f"none of {sum(map(len, examples))} rows has a number to learn: expected one of"
            f" {', '.join(rlm.objectives)}, and latencies that are not near zero"
        )
    state = _State(network.to(device), recipe)
    per_epoch = sum(1 for _ in batches(examples, recipe, epoch=0))
    total = per_epoch * recipe.epochs
    if resume and out is not None and (out / "state.safetensors").is_file():
        state.load(out)
    best, since = state.best, state.since
    kept: dict[str, Tensor] = {}
    kept_step = 0
    clock, losses, tokens = time.perf_counter(), [], 0
    is_shown = total >= 20 and distributed.is_first()
    with tqdm(total=total, initial=state.step, unit="step", desc="train", disable=not is_shown) as bar:
        while state.step < total and not (recipe.patience and since >= recipe.patience):
            epoch, done = divmod(state.step, per_epoch)
            for i, batch in enumerate(batches(examples, recipe, epoch)):
                if i < done:
                    continue
                rng = np.random.default_rng([recipe.seed, epoch, i])
                noise = recipe.noise * (1 - state.step / total)
                ids, given, wanted, weights = collate(batch, rng, network.config, noise)
                losses.append(state.advance(ids, given, wanted, weights, total))
                tokens += ids.numel() + given.numel()
                bar.update()
                last = state.step == total
                if check is not None and (state.step % recipe.validate_every == 0 or last):
                    figures = {}
                    if distributed.is_first():
                        with state.averaged():
                            figures = check()
                    mean = float(np.mean([f["spearman"] for f in figures.values()])) if figures else 0.0
                    mean = distributed.agreed(mean)
                    if mean > best and keep_best:
                        kept = {n: p.clone() for n, p in state.ema.items()}
                        kept_step = state.step
                    best, since = (mean, 0) if mean > best else (best, since + 1)
                    state.best, state.since = best, since
                    record = {"validation": figures, "mean_spearman": round(mean, 5)}
                    _log(kept_in, state.step, losses, tokens / (time.perf_counter() - clock), **record)
                    clock, losses, tokens = time.perf_counter(), [], 0
                    bar.set_postfix(spearman=f"{mean:.4f}")
                if kept_in is not None and (state.step % recipe.checkpoint_every == 0 or last):
                    state.save(kept_in)
                if recipe.patience and since >= recipe.patience:
                    break
    network.load_state_dict(kept if keep_best and kept else state.ema, strict=False)
    network.to("cpu").eval()
    return kept_step if keep_best and kept else state.step


@dataclass(frozen=True)
class Check:
    """A table's held-out rows.

    Args:
        name: of the table.
        texts: N texts.
        values: of each objective that is checked, float64 [N], NaN where it was not measured.
    """

    name: str
    texts: list[str]
    values: dict[str, np.ndarray]


def check_of(held: Table, objectives: Sequence[str]) -> Check:
    """What is checked on held-out rows during training: objectives that two rows have at least."""
    values = {name: held.column(name) for name in objectives}
    some = {name: v for name, v in values.items() if np.isfinite(v).sum() > 1}
    return Check(held.name, tables.texts(held.rows), some)


def _watched(held: Table, recipe: Recipe) -> Check:
    """A check on a fixed part of the rows: accuracy and up to three latencies, or up to four others."""
    rng = np.random.default_rng(recipe.seed)
    some = Table(held.name, [held.rows[i] for i in rng.permutation(len(held))[: recipe.validation_rows]])
    latencies = [n for n in held.objectives if n.startswith("latency/")]
    accuracy = ["accuracy"] if "accuracy" in held.objectives else []
    measured = [*accuracy, *latencies[:: max(1, len(latencies) // 3)][:3]]
    others = [n for n in held.objectives if n not in COUNTED]
    return check_of(some, measured or others[:: max(1, len(others) // 4)][:4])


def validate(rlm: Ensemble, checks: Sequence[Check]) -> dict[str, dict[str, float]]:
    """Rank correlations of the median on held-out rows, for each table and objective."""
    figures = {}
    for check in checks:
        names = list(check.values)
        predicted = rlm.predict_text(check.texts, names) if names else np.empty((0, 0))
        for name, found in zip(names, predicted.T, strict=True):
            true = check.values[name]
            known = np.isfinite(true)
            figures[f"{check.name}:{name}"] = {
                "spearman": round(spearman(found[known], true[known]), 5),
                "kendall": round(kendall(found[known], true[known]), 5),
            }
    return figures


class _State:
    """The network, its optimizer, the averaged weights and the step: all that a checkpoint holds."""

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.network, self.recipe = network.train(), recipe
        self.optimizers = optimizers(network, recipe)
        self.ema = {n: p.detach().clone() for n, p in network.named_parameters()}
        self.step, self.best, self.since = 0, -math.inf, 0

    def advance(self, ids: Tensor, given: Tensor, wanted: Tensor, weights: Tensor, total: int) -> float:
        """One step, with as many texts at once as memory is meant for; returns the loss.

        Arguments as `collate` gives them, and the steps in all.
        """
        rate = self.recipe.learning_rate * min(1.0, (self.step + 1) / max(1, self.recipe.warmup))
        if self.recipe.schedule == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * self.step / total))
        weights = weights * (wanted != IGNORED)
        mine, counts = distributed.part(len(ids))
        device = self.network.pieces.weight.device
        whole, loss = weights.sum().to(device), torch.zeros((), device=device)
        sequences = torch.arange(len(given)).view(len(ids), -1)  # those of each text
        self.network.zero_grad()
        for some in mine.split(max(1, SCORES // (self.network.config.size * ids.shape[1] ** 2))):
            of_these = (t[sequences[some].flatten()].to(device) for t in (given, wanted, weights))
            part = counts * self._loss(ids[some].to(device), *of_these) / whole
            part.backward()
            loss += part.detach()
        distributed.add_up([loss, *(p.grad for p in self.network.parameters() if p.grad is not None)])
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        decay = min(self.recipe.ema, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.values()), list(self.network.parameters()), 1 - decay)
        self.step += 1
        return float(loss.item())

    def _loss(self, ids: Tensor, given: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the losses of all tokens."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
            logits = self.network(ids, given)
        each = F.cross_entropy(
            logits.float().flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return (each * weights.flatten()).sum()

    def averaged(self) -> _Averaged:
        return _Averaged(self.network, self.ema)

    def save(self, folder: Path) -> None:
        tensors = {f"model.{n}": p.detach() for n, p in self.network.named_parameters()}
        tensors |= {f"ema.{n}": p for n, p in self.ema.items()}
        for start, optimizer, p in self._learned():
            tensors |= {f"{start}{k}": v for k, v in optimizer.state.get(p, {}).items()}
        meta = {"step": str(self.step), "best": repr(self.best), "since": str(self.since)}
        with atomic(folder / "state.safetensors") as temporary:
            save_file(tensors, temporary, metadata=meta)

    def load(self, folder: Path) -> None:
        path = folder / "state.safetensors"
        try:
            tensors = load_file(path)
            with safe_open(path, "pt") as file:
                meta = file.metadata()
            self.step, self.best, self.since = int(meta["step"]), float(meta["best"]), int(meta["since"])
            with torch.no_grad():
                for name, p in self.network.named_parameters():
                    p.copy_(tensors[f"model.{name}"])
                    self.ema[name].copy_(tensors[f"ema.{name}"])
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise ValueError(
                f"{path} is damaged or of another version ({error}): train anew, in another folder"
            ) from None
        for start, optimizer, weight in self._learned():
            optimizer.state[weight] = {
                k.removeprefix(start): v.to(weight.device) for k, v in tensors.items() if k.startswith(start)
            }

    def _learned(self) -> list[tuple[str, Optimizer, Tensor]]:
        """Each weight with its optimizer, and the prefix of what that remembers of it."""
        names = {p: n for n, p in self.network.named_parameters()}
        return [
            (f"optimizer.{names[p]}:", optimizer, p)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        ]


def optimizers(network: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """What a recipe says. Muon is for the matrices of the layers alone; the rest goes to AdamW with it."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, p in network.named_parameters():
        (matrices if p.ndim == 2 and ("encoder." in name or "decoder." in name) else rest).append(p)
    rate, decay = recipe.learning_rate, recipe.weight_decay
    groups = [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    if recipe.optimizer == "adamw":
        return [AdamW(groups, lr=rate, betas=ADAM)]
    if recipe.optimizer == "adafactor":
        return [Adafactor(groups, lr=rate)]
    muon = Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [muon, AdamW(rest, lr=rate, betas=ADAM, weight_decay=0.0)]


class _Averaged:
    """Within it the network holds the averaged weights, on the CPU."""

    def __init__(self, network: Network, ema: dict[str, Tensor]) -> None:
        self.network, self.ema = network, ema

    def __enter__(self) -> None:
        self.device = self.network.pieces.weight.device
        self.own = {n: p.detach().clone() for n, p in self.network.named_parameters()}
        self.network.load_state_dict(self.ema, strict=False)
        self.network.to("cpu").eval()

    def __exit__(self, *error: object) -> None:
        self.network.to(self.device)
        self.network.load_state_dict(self.own, strict=False)
        self.network.train()


def seen(rows: Sequence[Row], before: Mapping[str, Seen] | None = None) -> dict[str, Seen]:
    """What a model has seen of each space once it has been trained on rows."""
    found = dict(before or {})
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        new, known = list(group), found.get(space, Seen(0, ()))
        names = dict.fromkeys([*known.objectives, *(name for row in new for name in row.targets)])
        found[space] = Seen(known.rows + len(new), tuple(names))
    return found


def _objectives(found: Sequence[Table]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for t in found for name in t.objectives))


def _tokenizer(folder: Path, recipe: Recipe, texts: list[list[str]]) -> None:
    """Put the recipe's tokenizer into a run's folder, or one of its own, if there is none."""
    path = folder / TOKENIZER
    if not path.is_file():
        if recipe.tokenizer:
            shipped = ASSETS / recipe.tokenizer / path.name
            Tokenizer.load(shipped if shipped.is_file() else Path(recipe.tokenizer)).save(path)
        else:
            rng = np.random.default_rng(recipe.seed)
            sample = [t[i] for t in texts for i in sorted(rng.permutation(len(t))[: recipe.tokenizer_texts])]
            Tokenizer.train(sample, recipe.vocab_size, recipe.longest_piece, recipe.seed).save(path)


def claim(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Take a folder for a run; one that holds another run is refused."""
    note = folder / "recipe.json"
    described = json.dumps(recipe, default=vars, indent=1)
    if note.is_file():
        if not resume:
            raise ValueError(f"{folder} already holds a run; choose another folder, or resume it")
        if note.read_text() != described:
            raise ValueError(f"{folder} holds a run of another recipe; resume it with the one in {note.name}")
    elif folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no run; choose another folder")
    write_text(note, described)


def _log(out: Path | None, step: int, losses: list[float], rate: float, **record: object) -> None:
    if out is not None:
        loss = round(float(np.mean(losses)), 5) if losses else None
        line = {"step": step, "loss": loss, "tokens_per_second": round(rate), **record}
        with open(out / "log.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
