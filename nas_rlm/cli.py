"""The nas-rlm command: each verb is a typed function whose docstring is its help."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import App, CycloptsError, Parameter

import nas_rlm
import search_spaces
from nas_rlm.files import atomic, check_folder, check_target, read_text, write_text

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM
    from search_spaces import SearchSpace

app = App(name="nas-rlm", help=nas_rlm.__doc__, version=nas_rlm.__version__, help_format="markdown")
tokenizer = app.command(App(name="tokenizer", help="Tokenizers."))
data = app.command(App(name="data", help="Tables."))
snas = app.command(App(name="snas", help="Networks of the SNAS space, trained for a few steps each."))
bench = app.command(App(name="bench", help="Measure how good the search is, against true values."))


def _split(_: Any, tokens: Sequence[Any]) -> tuple[str, ...]:
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


def _levels(kind: Any, tokens: Sequence[Any]) -> tuple[float, ...]:
    parts = _split(kind, tokens)
    try:
        levels = tuple(float(part) for part in parts)
    except ValueError:
        levels = ()
    names = {f"{level:g}" for level in levels}
    if not levels or len(names) < len(levels) or not all(0.001 <= level <= 0.999 for level in levels):
        raise ValueError(
            f"{','.join(parts)!r} is no list of different levels between .001 and .999: try .1,.9"
        )
    return levels


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Names = Annotated[tuple[str, ...], Parameter(converter=_split, n_tokens=1, negative="")]
Levels = Annotated[tuple[float, ...], Parameter(converter=_levels, n_tokens=1, negative="")]
Whole = Annotated[int, Parameter(converter=_whole, n_tokens=1)]
Many = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")]
Files = Annotated[tuple[Path, ...], Parameter(negative="")]
Flag = Annotated[bool, Parameter(negative="")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    >>> main(["export", "--space", "nasbench201", "--sample", "1", "--out", "runs/one"])
    0

    Args:
        arguments: without the program's name; None for those of the process.

    Returns:
        0, or 2 after one line on stderr if the input was bad.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # busily waiting threads crawl beside other work
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(arguments, exit_on_error=False, print_error=False, result_action="return_none")
    except (CycloptsError, ValueError, OSError, OverflowError) as error:
        print(f"nas-rlm: error: {_reason(error)}", file=sys.stderr)
        return 2
    except RecursionError:
        print("nas-rlm: error: a file or an argument is nested too deeply to be read", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nas-rlm: interrupted", file=sys.stderr)
        return 130
    return 0


@app.command
def spaces() -> None:
    """List every search space, and the objectives that the shipped model knows."""
    print(f"{'space':<14}{'architectures':>15}{'genes':>8}")
    for name in search_spaces.names():
        space = search_spaces.get(name)
        size = f"{space.size:,}" if space.size else "unbounded"
        print(f"{name:<14}{size:>15}{len(space.genes):>8}")
    config = Path(__file__).parent / "assets" / "nas" / "config.json"
    if config.is_file():
        objectives = json.loads(config.read_text())["network"]["objectives"]
        print("objectives of the shipped model:", " ".join(objectives))


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
    check_folder(out)
    chosen = [found.parse(a) for a in arch] + [found.sample(rng) for _ in range(sample)]
    if not chosen:
        raise ValueError("nothing to export: give --arch ARCHITECTURE … or --sample N")
    for i, architecture in enumerate(_bar(chosen, "export")):
        with atomic(out / f"{i:03d}.onnx") as temporary:
            onnx.save(found.to_onnx(architecture, weights=weights), temporary)
        write_text(out / f"{i:03d}.txt", from_architecture(found, architecture))
    write_text(out / "archs.txt", "".join(f"{a}\n" for a in chosen))
    print(f"{len(chosen)} architectures in {out}")


@app.command
def predict(
    *files: Path,
    objectives: Names,
    space: str | None = None,
    archs: Path | None = None,
    model: str = "nas",
    quantiles: Levels = (),
    out: Path | None = None,
) -> None:
    """Predict numbers of architectures, as CSV with a row for each, in order.

    Args:
        files: ONNX files, instead of --space and --archs.
        objectives: what to predict, such as accuracy,latency/pixel3.
        space: the search space of --archs.
        archs: a file with an architecture a line.
        model: a checkpoint folder, or the name of a shipped model.
        quantiles: levels such as .1,.5,.9, for a column OBJECTIVE@LEVEL each.
        out: where the CSV goes; stdout by default.
    """
    if out:
        check_target(out)
    names, medians, tails = _predict(files, space, archs, model, objectives, quantiles, out)
    _emit(names, objectives, medians, quantiles, tails, out)


@app.command
def rank(
    *files: Path,
    by: str,
    objectives: Names = (),
    top: Whole | None = None,
    space: str | None = None,
    archs: Path | None = None,
    model: str = "nas",
    quantiles: Levels = (),
    out: Path | None = None,
) -> None:
    """Predict numbers of architectures and list the best first.

    Args:
        files: ONNX files, instead of --space and --archs.
        by: the objective that decides: accuracies downwards, all others upwards.
        objectives: what else to predict.
        top: list this many.
        space: the search space of --archs.
        archs: a file with an architecture a line.
        model: a checkpoint folder, or the name of a shipped model.
        quantiles: levels such as .1,.5,.9, for a column OBJECTIVE@LEVEL each.
        out: where the CSV goes; stdout by default.
    """
    from nas_rlm.pareto import minimised

    if top is not None and top < 1:
        raise ValueError(f"--top is {top}, expected at least 1")
    if out:
        check_target(out)
    wanted = tuple(dict.fromkeys([*objectives, by]))
    names, medians, tails = _predict(files, space, archs, model, wanted, quantiles, out)
    order = np.argsort(minimised(medians, wanted)[:, wanted.index(by)], kind="stable")[:top]
    _emit([names[i] for i in order], wanted, medians[order], quantiles, tails[order], out)


@app.command
def search(
    *,
    space: str,
    objectives: Names,
    out: Path,
    constraint: Many = (),
    model: str = "nas",
    algorithm: str = "nsga2",
    population: Whole = 50,
    generations: Whole = 20,
    seed: Whole = 0,
    resume: Flag = False,
) -> None:
    """Search a space for the architectures with the best predicted trade-offs.

    The folder receives front.csv (the front, best in the first objective first), front/ (an .onnx for each),
    pareto.png, log.jsonl (every evaluated architecture, in order), samples.json and settings.json.

    Args:
        space: the search space.
        objectives: what to optimise, such as accuracy,latency/pixel3: accuracies upwards, others downwards.
        out: a folder of this search alone.
        constraint: bounds such as 'latency/pixel3<=20'.
        model: a checkpoint folder, or the name of a shipped model.
        algorithm: nsga2 or random.
        population: architectures a generation.
        generations: rounds of evaluation.
        seed: of all random choices.
        resume: continue the search in the folder, or start it if there is none; the outcome is the same.
    """
    from nas_rlm import folder
    from nas_rlm.search import Settings
    from nas_rlm.search import search as run

    found = search_spaces.get(space)
    rlm = _load(model)
    settings = Settings(
        found.name, objectives, constraint, algorithm, population, generations, seed, model=_fingerprint(rlm)
    )
    rlm.check(settings.predicted)
    if found.size and population > found.size:
        raise ValueError(f"--population is {population:,}, more than the {found.size:,} of {found.name}")
    log = folder.open_log(out, settings, resume)
    result = run(found, rlm, settings, log, progress=True)
    log.finish()
    evaluated = f"{len(result.architectures):,} architectures evaluated"
    if len(result.front) == 0:
        raise ValueError(f"{evaluated}, none within {' and '.join(constraint)}: loosen a constraint")
    folder.write_front(out, found, rlm, result)
    print(f"{evaluated}, {len(result.front)} on the front: {out / 'front.csv'}")
    print(f"picture: {out / 'pareto.png'}")


@app.command
def plot(folder: Path, *, out: Path | None = None) -> None:
    """Draw the picture of a search again, finished or not.

    Args:
        folder: of the search.
        out: the picture; pareto.png in the folder by default.
    """
    from nas_rlm import plots
    from nas_rlm.folder import read_result, read_samples

    target = out or folder / "pareto.png"
    if target.suffix not in plots.FORMATS:
        raise ValueError(f"{str(target)!r} is no picture: expected {', '.join(plots.FORMATS)}")
    check_target(target)
    result = read_result(folder)
    plots.save(plots.front_info(result, read_samples(folder, result)), target)
    print(f"picture: {target}")


@app.command
def train(recipe: str, *, out: Path, resume: Flag = False) -> None:
    """Train a model from a recipe.

    Args:
        recipe: a YAML file, or the name of a shipped recipe.
        out: a folder for the checkpoint and the log.
        resume: continue the run in the folder.
    """
    from nas_rlm.train import run

    run(recipe, out, resume)
    print(f"model: {out}")


@app.command
def finetune(*, data: Path, objectives: Names, out: Path, model: str = "nas") -> None:
    """Continue training a model on a table; objectives it did not know become tokens of their own.

    Args:
        data: a parquet table in the public schema.
        objectives: which of its numbers to learn.
        out: a new folder for the checkpoint.
        model: a checkpoint folder, or the name of a shipped model.
    """
    from nas_rlm.data import read

    check_folder(out)
    rlm = _load(model)
    from nas_rlm.train import fine_tune

    fine_tune(rlm, read(data).rows, objectives).save(out)
    print(f"model: {out}")


@app.command
def evaluate(*, model: str = "nas", data: Path | None = None, objectives: Names = ()) -> None:
    """Hold a model's predictions against measurements, beside the FLOPs and parameters baselines.

    Args:
        model: a checkpoint folder, or the name of a shipped model.
        data: a parquet table; by default the held-out rows of the tables that trained the shipped model.
        objectives: what to judge; by default every one that model and table share.
    """
    from nas_rlm import evaluate as evaluation

    print(evaluation.report(_load(model), data, objectives))


@tokenizer.command(name="train")
def train_tokenizer(recipe: Path, *, out: Path) -> None:
    """Train a tokenizer.

    Args:
        recipe: a YAML file with spaces, tables and foreign networks to learn from, or a shipped one by name.
        out: the tokenizer's file.
    """
    from nas_rlm.data.mixture import train_tokenizer
    from nas_rlm.recipe import read_tokenizer_recipe

    check_target(out)
    trained = train_tokenizer(read_tokenizer_recipe(recipe), progress=True)
    trained.save(out)
    print(f"{trained.vocab_size:,} pieces: {out}")


@data.command(name="import")
def import_table(kind: str, file: Path, *, out: Path, allow_pickle: Flag = False) -> None:
    """Turn a benchmark's own file into a table.

    Args:
        kind: nasbench201, nats_size, nasbench101, hw_nas_bench, help, nds, snas or parquet.
        file: as its authors publish it; a folder for help.
        out: the parquet table.
        allow_pickle: read a file that can run code while it is read; only for files that you trust.
    """
    from nas_rlm.data import write
    from nas_rlm.data.official import read_official

    check_target(out)
    rows = read_official(kind, file, allow_pickle)
    write(out, rows)
    print(f"{len(rows):,} rows: {out}")


@snas.command
def generate(
    *,
    images: Path,
    out: Path,
    count: Whole,
    steps: Whole = 32,
    batch_size: Whole = 128,
    precision: str = "bfloat16",
    device: str = "cpu",
    seed: Whole = 0,
) -> None:
    """Draw networks, train each for a few steps, and append a JSON record each to a file.

    The same command again continues where the file ends. A network that fails is a record with its error.

    Args:
        images: the folder of CIFAR-10 in its Python format, or of Fashion-MNIST.
        out: the file, JSON lines.
        count: records that it shall have in the end.
        steps: of training.
        batch_size: images a step.
        precision: bfloat16 (mixed) or float32.
        device: cpu or cuda.
        seed: of the networks, their weights and the images.
    """
    from nas_rlm.data.images import read_images
    from nas_rlm.data.synthetic import Budget
    from nas_rlm.data.synthetic import generate as run

    if count < 1:
        raise ValueError(f"--count is {count}, expected at least 1")
    check_target(out)
    budget = Budget(steps, batch_size, precision=precision, device=device, seed=seed)
    failed = run(read_images(images), out, count, budget)
    print(f"{count:,} records, {failed} of them failed: {out}")


@bench.command(name="search")
def bench_search(
    *,
    model: str = "nas",
    data: Path | None = None,
    population: Whole = 50,
    generations: Whole = 20,
    seeds: Whole = 5,
) -> None:
    """Look up what the search finds on NAS-Bench-201 in the benchmark's measurements.

    Args:
        model: a checkpoint folder, or the name of a shipped model.
        data: the benchmark's table; by default architectures/nasbench201.parquet of the data folder.
        population: architectures a generation.
        generations: rounds of evaluation.
        seeds: so many searches of each kind, with seeds from 0; the figures are their means.
    """
    from dataclasses import fields

    from nas_rlm.bench import Judgement, judge_search
    from nas_rlm.data import data_directory, read

    table = read(data or data_directory() / "architectures" / "nasbench201.parquet")
    space = search_spaces.get("nasbench201")
    found = judge_search(
        space, _load(model), table, population=population, generations=generations, seeds=seeds, progress=True
    )
    columns = ("evaluated", "chosen", "in table", "hypervolume", "lowest", "within table")
    print(f"{'objectives':<28}{'method':<10}" + "".join(f"{c:>14}" for c in columns))
    for (objectives, method), of_seeds in found.items():
        mean = {f.name: np.mean([getattr(j, f.name) for j in of_seeds]) for f in fields(Judgement)}
        counts = "".join(f"{mean[name]:>14,.0f}" for name in ("evaluations", "chosen", "known"))
        lowest = min(j.share for j in of_seeds)
        shares = "".join(f"{share:>14.2%}" for share in (mean["share"], lowest, mean["share_within"]))
        print(f"{' x '.join(objectives):<28}{method:<10}{counts}{shares}")


@bench.command(name="text")
def bench_text(*, model: str = "nas", space: Names = (), count: Whole = 1000, seed: Whole = 0) -> None:
    """Measure tokens a network, and networks a second from genotype to token ids on one core.

    As many other networks are read first, since what spaces repeat is looked up.

    Args:
        model: whose tokenizer counts: a checkpoint folder, or the name of a shipped model.
        space: names of spaces; by default all.
        count: networks of each.
        seed: of the networks.
    """
    from nas_rlm.bench import text_speed

    if count < 1:
        raise ValueError(f"--count is {count}, expected at least 1")
    found = [search_spaces.get(name) for name in space or search_spaces.names()]
    tokenizer = _load(model).tokenizer
    print(f"{'space':<14}{'median tokens':>15}{'most':>8}{'networks/s':>12}")
    for s in _bar(found, "text"):
        speed = text_speed(s, tokenizer, count, seed)
        print(f"{s.name:<14}{speed.tokens:>15,.0f}{speed.most:>8,}{speed.per_second:>12,.0f}")


@bench.command(name="foreign")
def bench_foreign(*, model: str = "nas", network: Names = ()) -> None:
    """Measure tokens of networks that torch exports, flat and with repeats outlined.

    Args:
        model: whose tokenizer counts: a checkpoint folder, or the name of a shipped model.
        network: names of reference networks; by default all.
    """
    from nas_rlm.bench import foreign_tokens
    from nas_rlm.data.foreign import NETWORKS

    tokenizer = _load(model).tokenizer
    print(f"{'network':<14}{'exporter':<13}{'operators':>10}{'flat':>8}{'outlined':>10}{'unknown':>9}")
    for name in _bar(network or list(NETWORKS), "foreign"):
        for found in foreign_tokens(name, tokenizer):
            counts = f"{found.operators:>10,}{found.flat:>8,}{found.outlined:>10,}{found.unknown:>9,}"
            print(f"{name:<14}{found.exporter:<13}{counts}")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"nas-rlm: warning: {message}", file=sys.stderr)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _load(model: str) -> RLM:
    from nas_rlm.rlm import RLM

    return RLM.load(model)


def _fingerprint(rlm: RLM) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, tensor in sorted(rlm.network.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def _predict(
    files: Sequence[Path],
    space: str | None,
    archs: Path | None,
    model: str,
    objectives: tuple[str, ...],
    levels: tuple[float, ...],
    out: Path | None,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, medians [N, K] and quantiles [N, K, Q] of what a command line names."""
    from nas_rlm.text import from_onnx

    if bool(files) == (archs is not None) or (space is None) != (archs is None):
        raise ValueError("give either ONNX files, or both --space and --archs, and lists without spaces")
    computed = tuple(sorted({*levels, 0.5}))
    if out and any(
        f.exists() and out.exists() and f.samefile(out) for f in (*files, *([archs] if archs else []))
    ):
        raise ValueError(f"--out {str(out)!r} is one of the files to read: choose another")
    if space is not None and archs is not None:
        found = search_spaces.get(space)
        read = _read_architectures(found, archs)
        names = [line for line, _ in read]
        values = _load(model).predict(found, [a for _, a in read], objectives, computed, progress=True)
    else:
        names = [str(f) for f in files]
        texts = [from_onnx(f) for f in _bar(files, "text")]
        values = _load(model).predict_text(texts, objectives, computed, progress=True)
    return names, values[:, :, computed.index(0.5)], values[:, :, [computed.index(q) for q in levels]]


def _read_architectures(space: SearchSpace[Any], path: Path) -> list[tuple[str, Any]]:
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
    from nas_rlm.predictions import predictions_csv

    table = predictions_csv(names, objectives, medians, levels, quantiles)
    if out:
        write_text(out, table)
    else:
        print(table, end="")


def _bar(items: Sequence[Any], what: str) -> Any:
    from tqdm import tqdm

    return tqdm(items, desc=what, unit="net", delay=2)


if __name__ == "__main__":
    sys.exit(main())
