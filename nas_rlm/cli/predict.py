"""spaces, export, predict, rank: what is there, and what the model says of it."""

from __future__ import annotations

import json
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import search_spaces
from nas_rlm.cli.app import Flag, Levels, Many, Names, Whole, app, bar, load, workers
from nas_rlm.files import ASSETS, atomic_write, check_new_directory, check_target, read_text, write_text

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM
    from search_spaces import SearchSpace


@app.command
def spaces() -> None:
    """List every search space, and the objectives that the shipped models know."""
    print(f"{'space':<14}{'architectures':>32}{'genes':>8}")
    for name in search_spaces.names():
        space = search_spaces.get(name)
        size = f"{space.size:,}" if space.size else "unbounded"
        print(f"{name:<14}{size:>32}{len(space.genes):>8}")
    for model, of in (("nas", "models nas and nas-fast"), ("programs", "model programs")):
        config = ASSETS / model / "config.json"
        if config.is_file():
            objectives = json.loads(config.read_text())["network"]["objectives"]
            print(f"objectives of the shipped {of}:")
            print(textwrap.fill(" ".join(sorted(objectives)), 100, break_on_hyphens=False))


@app.command
def export(
    *, space: str, out: Path, arch: Many = (), sample: Whole = 0, seed: Whole = 0, weights: Flag = False
) -> None:
    """Write architectures as ONNX, with the text that the model reads beside each.

    Args:
        space: the search space.
        out: a folder for 000.onnx, 000.txt, … and archs.txt, which names them line by line.
        arch: architectures, in the space's notation.
        sample: draw this many at random as well.
        seed: of the draw.
        weights: put freshly initialised weights into the .onnx, so that it runs in any runtime.
    """
    import onnx

    from nas_rlm.text import from_architecture

    for name, value in (("--sample", sample), ("--seed", seed)):
        if value < 0:
            raise ValueError(f"{name} is {value}, expected at least 0")
    found = search_spaces.get(space)
    rng = np.random.default_rng(seed)
    check_new_directory(out)
    chosen = [found.parse(a) for a in arch] + [found.sample(rng) for _ in range(sample)]
    if not chosen:
        raise ValueError("nothing to export: give --arch ARCHITECTURE … or --sample N")
    for i, architecture in enumerate(bar(chosen, "export")):
        with atomic_write(out / f"{i:03d}.onnx") as temporary:
            onnx.save(found.to_onnx(architecture, weights=weights), temporary)
        write_text(out / f"{i:03d}.txt", from_architecture(found, architecture))
    write_text(out / "archs.txt", "".join(f"{a}\n" for a in chosen))
    print(f"{len(chosen)} architectures in {out}")


@app.command(name="export-model")
def export_model(*, out: Path, model: str = "nas", int8: Flag = False) -> None:
    """Write a model's network as ONNX, so that predict needs no torch: --model OUT.

    Experts are left out: what is told is what the network alone tells.

    Args:
        out: a new folder.
        model: a checkpoint folder, or the name of a shipped model.
        int8: matrices in eight bits.
    """
    from nas_rlm.model.onnx_export import export_model as write

    rlm = load(model)
    write(rlm, out, int8)
    size = sum(path.stat().st_size for path in out.iterdir())
    left = f"; without the surrogates of {', '.join(rlm.surrogates)}" if rlm.surrogates else ""
    print(f"{out}: {size / 2**20:.1f} MiB{left}")


@app.command
def predict(
    *files: Path,
    objectives: Names,
    space: str | None = None,
    archs: Path | None = None,
    model: str = "",
    quantiles: Levels = (),
    out: Path | None = None,
    ray: str = "",
) -> None:
    """Predict numbers of architectures, as CSV with a row for each, in order.

    Args:
        files: ONNX files, or programs (.py, .c, .cpp), instead of --space and --archs.
        objectives: what to predict, such as accuracy,latency/pixel3; flops and params are counted.
        space: the search space of --archs; of files the name of the space that a table gave them, by default
            of programs that of those which they are like.
        archs: a file with an architecture a line.
        model: a checkpoint folder, what export-model wrote, or the name of a shipped model; by default
            programs for programs, or nas.
        quantiles: levels such as .1,.5,.9, for a column OBJECTIVE@LEVEL each.
        out: where the CSV goes; stdout by default.
        ray: a cluster that predicts: auto, HOST:6379, ray://HOST:10001, or local for processes here.
    """
    if out:
        check_target(out)
    names, medians, tails = _predict(files, space, archs, model, objectives, quantiles, out, ray)
    _emit(names, objectives, medians, quantiles, tails, out)


@app.command
def rank(
    *files: Path,
    by: str,
    objectives: Names = (),
    top: Whole | None = None,
    space: str | None = None,
    archs: Path | None = None,
    model: str = "",
    quantiles: Levels = (),
    out: Path | None = None,
    ray: str = "",
) -> None:
    """Predict numbers of architectures and list the best first.

    Args:
        files: ONNX files, or programs (.py, .c, .cpp), instead of --space and --archs.
        by: the objective that decides, and is told as well: accuracies downwards, all others upwards.
        objectives: what else to predict.
        top: list this many.
        space: the search space of --archs; of files the name of the space that a table gave them, by default
            of programs that of those which they are like.
        archs: a file with an architecture a line.
        model: a checkpoint folder, what export-model wrote, or the name of a shipped model; by default
            programs for programs, or nas.
        quantiles: levels such as .1,.5,.9, for a column OBJECTIVE@LEVEL each.
        out: where the CSV goes; stdout by default.
        ray: a cluster that predicts: auto, HOST:6379, ray://HOST:10001, or local for processes here.
    """
    from nas_rlm.search.pareto import minimised

    if top is not None and top < 1:
        raise ValueError(f"--top is {top}, expected at least 1")
    if out:
        check_target(out)
    wanted = tuple(dict.fromkeys([*objectives, by]))
    names, medians, tails = _predict(files, space, archs, model, wanted, quantiles, out, ray)
    order = np.argsort(minimised(medians, wanted)[:, wanted.index(by)], kind="stable")[:top]
    _emit([names[i] for i in order], wanted, medians[order], quantiles, tails[order], out)


def _predict(
    files: Sequence[Path],
    space: str | None,
    archs: Path | None,
    model: str,
    objectives: tuple[str, ...],
    levels: tuple[float, ...],
    out: Path | None,
    ray: str,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, medians [N, K] and quantiles [N, K, Q] of what a command line names."""
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.model.onnx_runtime import OnnxPredictor, is_exported
    from nas_rlm.programs.source import is_program, read_program
    from nas_rlm.search.objectives import ObjectivePredictor
    from nas_rlm.text import from_onnx

    if archs is not None and space is None:
        raise ValueError(f"--archs {archs} without --space: give both, or ONNX files instead")
    if bool(files) == (archs is not None):
        given = f"{', '.join(map(str, files))} and --archs {archs}" if files else "nothing to read"
        raise ValueError(
            f"{given}: give either ONNX files, or both --space and --archs (and write lists as a,b)"
        )
    computed = tuple(sorted({*levels, 0.5}))
    if out and any(
        f.exists() and out.exists() and f.samefile(out) for f in (*files, *([archs] if archs else []))
    ):
        raise ValueError(f"--out {str(out)!r} is one of the files to read: choose another")
    known = search_spaces.get(space) if archs is not None and space is not None else None
    read = read_architectures(known, archs) if archs is not None and known is not None else []
    names = [line for line, _ in read] or [str(f) for f in files]
    chosen = [computed.index(q) for q in levels]
    if is_exported(model):
        if known is None or ray:
            raise ValueError(f"{model} is an exported model: it predicts --archs of a --space here")
        told = ObjectivePredictor(cast("RLM", OnnxPredictor.load(model)))  # of which it needs no more than such has
        told.check(objectives)
        values = told.predict(known, [a for _, a in read], objectives, computed, progress=True)
        return names, values[:, :, computed.index(0.5)], values[:, :, chosen]
    with workers(ray) as there:
        rlm = there.distribute(load(model or _shipped(files)))
        evaluator = ObjectivePredictor(rlm)
        evaluator.check(objectives)
        if known:
            values = evaluator.predict(known, [a for _, a in read], objectives, computed, progress=True)
        else:
            guessed = [name for name in objectives if name not in EXACT_OBJECTIVES]
            counted = [name for name in objectives if name in EXACT_OBJECTIVES]
            if counted and (programs := [str(f) for f in files if is_program(f)]):
                raise ValueError(f"{programs[0]} is a program: {counted[0]} is counted in networks alone")
            read_files = [
                read_program(f) if is_program(f) else (from_onnx(f), ()) for f in bar(files, "text")
            ]
            texts = [text for text, _ in read_files]
            like = [space or _likest(rlm, known_by, guessed) for _, known_by in read_files]
            for name in dict.fromkeys(like):
                if guessed:
                    rlm.check_space(name, guessed)
            if guessed and len(set(like)) > 1:
                warnings.warn(
                    f"the files are like {', '.join(sorted(set(like)))}:"
                    f" {guessed[0]} need not mean the same of each",
                    stacklevel=2,
                )
            values = np.empty((len(files), len(objectives), len(computed)))
            for name in dict.fromkeys(like):
                part = [i for i, one in enumerate(like) if one == name]
                some = [texts[i] for i in part]
                values[part] = evaluator.predict_text(some, objectives, computed, progress=True, space=name)
    return names, values[:, :, computed.index(0.5)], values[:, :, chosen]


def _shipped(files: Sequence[Path]) -> str:
    """The shipped model that reads such files, or networks where there are none."""
    from nas_rlm.programs.source import is_program

    programs = [path for path in files if is_program(path)]
    if programs and len(programs) < len(files):
        network = next(path for path in files if path not in programs)
        raise ValueError(
            f"{programs[0]} is a program and {network} a network, which no shipped model reads both:"
            " expected files of one kind, or --model"
        )
    return "programs" if programs else "nas"


def _likest(rlm: RLM, spaces: Sequence[str], objectives: Sequence[str]) -> str:
    """The first of spaces of which the model knows the objectives, or at least others; empty without any."""
    seen = [name for name in spaces if name in rlm.trained_on]
    all_known = [name for name in seen if set(objectives) <= set(rlm.trained_on[name].objectives)]
    return next(iter(all_known + seen), "")


def read_architectures(space: SearchSpace[Any], path: Path) -> list[tuple[str, Any]]:
    """The lines of a file, each with its architecture."""
    read = []
    for number, line in enumerate(read_text(path, "an architecture a line").splitlines(), 1):
        if line.strip():
            try:
                read.append((line.strip(), space.parse(line.strip())))
            except ValueError as error:
                raise ValueError(f"{path} line {number}: {error}") from None
    if not read:
        raise ValueError(f"{path} has no architectures: expected one a line")
    return read


def _emit(
    names: Sequence[str],
    objectives: Sequence[str],
    medians: np.ndarray,
    levels: Sequence[float],
    quantiles: np.ndarray,
    out: Path | None,
) -> None:
    from nas_rlm.data.predictions import predictions_csv

    table = predictions_csv(names, objectives, medians, levels, quantiles)
    if out:
        write_text(out, table)
    else:
        print(table, end="")
