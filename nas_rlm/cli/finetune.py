"""finetune: a model that learns from a table."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import (
    CommaList,
    Flag,
    Integer,
    SpaceList,
    app,
    check_files,
    check_minimum,
    check_model,
    load,
    register_spaces,
)
from nas_rlm.files import check_new_directory

if TYPE_CHECKING:
    from nas_rlm import RLM
    from nas_rlm.data import Table
    from nas_rlm.surrogates.registry import Surrogate

LEARN_ALL = "all"
INTERPRETER_LATENCY = "latency/triton-interpreter"  # times of `measure triton --interpret`


@app.command
def finetune(
    *,
    data: Path,
    out: Path,
    objectives: CommaList = (),
    new_objective: str = "",
    model: str = "nas",
    learn: str = LEARN_ALL,
    seed: Integer = 0,
    no_surrogates: Flag = False,
    space: SpaceList = (),
    maximise: CommaList = (),
    only: CommaList = (),
    rows: Integer = 0,
) -> None:
    """Train a model further on measured networks or programs.

    A table has from a handful to thousands of labels. A fifth of the architectures is held out first, to
    choose the number of epochs; then the model is trained on all of them.

    A new latency of networks is learned without training, in seconds: by additive models of the layers that
    the device executes and by the latencies of known devices, weighted by their leave-one-out errors.

    Args:
        data: a parquet table of measured networks or programs.
        out: a new directory for the checkpoint.
        objectives: objectives of the table to learn, such as accuracy,latency/mybox. The model may not have
            them yet.
        new_objective: instead of --objectives, learn only this one, such as latency/mybox, and leave the
            predictions of all others unchanged. If the table has a single latency, it may have another name.
        model: a checkpoint directory, or the name of a shipped model.
        learn: the part of the network that is trained: all, decoder, token (the embeddings of the
            objectives), or none, so that surrogates alone predict the objectives. With layers, one surrogate
            of executed layers predicts latencies for networks of any space, and nothing is trained. With
            --new-objective, all stands for token, and for none where a latency of networks is learned.
        seed: seed of the held-out rows and of the batches.
        no_surrogates: train only the network, without surrogates on graph features or n-grams.
        space: your own search spaces that rows of the table name, as FILE.py:CLASS or MODULE:CLASS. A row may
            name a space by its name or its location.
        maximise: objectives that searches with the model maximise. Accuracy, throughput and other known kinds
            have their direction, and so have objectives that the table declares.
        only: learn only rows of these spaces of the table.
        rows: learn at most so many rows of each space, drawn at random; 0 for all.
    """
    from nas_rlm.data import read
    from nas_rlm.data.splits import sample_by_space
    from nas_rlm.model.directories import saved_objectives
    from nas_rlm.training.label_checks import TooFewLabelsError
    from nas_rlm.utils.validation import is_objective_name

    if objectives and new_objective:
        raise ValueError(
            f"--objectives {','.join(objectives)} and --new-objective {new_objective}: expected one of them"
        )
    if new_objective and not is_objective_name(new_objective):
        raise ValueError(
            f"--new-objective {new_objective!r}: expected one name without commas and spaces, such as"
            " latency/mybox"
        )
    if new_objective and learn == "decoder":
        raise ValueError(
            "--learn decoder with --new-objective changes predictions of other objectives: expected none or"
            " token"
        )
    unknown = [name for name in maximise if name not in (*objectives, new_objective)]
    if unknown:
        raise ValueError(f"--maximise {unknown[0]}: it is not one of the objectives to learn")
    check_new_directory(out)
    check_model(model)
    check_files([data])
    register_spaces(space)
    check_minimum("--rows", rows, 0)
    full = read(data)
    table = full.of_spaces(only) if only else full
    if new_objective in saved_objectives(model):
        raise ValueError(_known_objective(model, new_objective, data, table.objectives))
    if not objectives and not new_objective:
        raise ValueError(
            "nothing to learn: expected --objectives, or --new-objective for a new device. The objectives of"
            f" {data} are {', '.join(table.objectives)}"
        )
    old_objective = _other_name(new_objective, table.objectives)
    rlm = load(model)
    if old_objective:
        print(f"{old_objective} is learned as {new_objective}")
        table = _renamed(table, old_objective, new_objective)
    names = objectives or (new_objective,)
    if rows:
        table = sample_by_space(table, rows, names)
    part = learn
    if new_objective and learn == LEARN_ALL:
        part = _part_for_new_objective(table, new_objective, not no_surrogates)
    if old_objective == INTERPRETER_LATENCY or INTERPRETER_LATENCY in names:
        warnings.warn(
            f"{data} has times of Triton's interpreter, which are not those of a GPU: expected the table of"
            " nas-rlm measure triton without --interpret",
            stacklevel=2,
        )
    try:
        tuned = rlm.fine_tune(
            *(table.rows, names),
            seed=seed,
            surrogates=not no_surrogates,
            learn=part,
            maximise=(*table.maximised, *maximise),
        )
    except TooFewLabelsError as error:
        raise ValueError(f"{error}{_ways_out(table, names, error.counts)}") from None
    tuned.save(out)
    for line in _evidence(tuned, names, {row.space for row in table.rows}):
        print(line)
    print(f"model: {out}")


def _part_for_new_objective(table: Table, objective: str, surrogates: bool) -> str:
    """Return the part of the network to train: the embeddings of the objectives, or none.

    A latency of networks, and programs that differ only in numbers, have surrogates that predict alone.
    """
    from nas_rlm.surrogates.fitting import are_learnt_as_configurations

    programs = [row for row in table.where_measured(objective).rows if row.is_program]
    is_latency = objective.startswith("latency/")
    is_alone = are_learnt_as_configurations(programs, (objective,)) if programs else is_latency
    return "none" if is_alone and surrogates else "token"


def _ways_out(table: Table, objectives: Sequence[str], few: Collection[tuple[str, str]]) -> str:
    """Return the options that leave out what has too few labels; empty without any.

    Args:
        table: the table to learn from.
        objectives: objectives to learn.
        few: spaces and objectives with too few labels.
    """
    spaces = {row.space for row in table.rows} - {space for space, _ in few}
    learnt = table.of_spaces(sorted(spaces)) if spaces and "" not in spaces else None
    others = [name for name in objectives if name not in {name for _, name in few}]
    ways = []
    if learnt and set(objectives) <= set(learnt.objectives):
        ways.append(f"--only {shlex.quote(','.join(sorted(spaces)))}")
    if others:
        ways.append(f"--objectives {','.join(others)}")
    return f"; {' or '.join(ways)} leaves out what has fewer" if ways else ""


def _evidence(rlm: RLM, objectives: Sequence[str], learnt_spaces: Collection[str]) -> Iterator[str]:
    """Yield a line for each objective and learnt space that says how well its samples are predicted."""
    for space, surrogates in rlm.surrogates.items():
        for surrogate in surrogates:
            if space in learnt_spaces:
                yield from _evidence_of(surrogate, space, objectives)


def _evidence_of(surrogate: Surrogate, space: str, objectives: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one surrogate."""
    from nas_rlm.surrogates.configurations.surrogate import ConfigurationSurrogate
    from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
    from nas_rlm.surrogates.latency.device_transfer import DeviceTransfer, FewLabelLatency
    from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
    from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate

    names = [name for name in objectives if name in surrogate.objectives]
    if isinstance(surrogate, LayerSurrogate):
        yield from (f"{name}: {surrogate.evidence[name]}" for name in names)
    elif isinstance(surrogate, ProgramSurrogate | ConfigurationSurrogate):
        way = ", by numbers and words" if isinstance(surrogate, ConfigurationSurrogate) else ""
        held_out = {name: surrogate.held_out[name] for name in names if name in surrogate.held_out}
        yield from (f"{name} of {space}{way}: {found}" for name, found in held_out.items())
    elif isinstance(surrogate, GraphSurrogate):
        yield from (
            f"{name} of {space}: {surrogate.held_out[name]}" for name in names if name in surrogate.held_out
        )
    elif isinstance(surrogate, FewLabelLatency) and names:
        yield f"{surrogate.objective} of {space or 'networks without a space'}: {surrogate.evidence}"
    elif isinstance(surrogate, DeviceTransfer) and names:
        name, weight = surrogate.most_similar
        yield f"{surrogate.objective}: {weight:.0%} of the weight for known devices, most for {name}"


def _known_objective(model: str, objective: str, data: Path, measured: Sequence[str]) -> str:
    """Return the error for a new objective that the model has already."""
    from nas_rlm.utils.validation import suggest

    known = f"--new-objective {objective}: {model} has this objective already"
    if objective in measured:
        return (
            f"{known}; --objectives {objective} trains it again with your labels, and if they are of another"
            " device, another name keeps both"
        )
    if other := _other_name(objective, measured):
        return f"{known}, and {data} has {other} instead: --new-objective {other} learns it by its own name"
    return f"{known}, and {data} does not have it; {suggest(objective, measured)}"


def _other_name(new_objective: str, measured: Sequence[str]) -> str:
    """Return the only objective of the new objective's kind if it has another name, else an empty text."""
    kind = new_objective.split("/")[0]
    same_kind = [name for name in measured if name.split("/")[0] == kind]
    is_other = "/" in new_objective and new_objective not in same_kind and len(same_kind) == 1
    return same_kind[0] if is_other else ""


def _renamed(table: Table, old_objective: str, new_objective: str) -> Table:
    """Return a table in which an objective has another name."""
    names = {old_objective: new_objective}
    rows = [
        replace(row, targets={names.get(name, name): value for name, value in row.targets.items()})
        for row in table.rows
    ]
    declarations = {names.get(name, name): declared for name, declared in table.declarations.items()}
    return replace(table, rows=rows, declarations=declarations)
