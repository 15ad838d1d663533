"""search, propose, plot, report: Pareto fronts and their pictures."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import search_spaces
from nas_rlm.cli.app import Flag, Many, Names, Whole, app, load, workers
from nas_rlm.files import alone, check_target, write_text

if TYPE_CHECKING:
    from nas_rlm.data import Row
    from nas_rlm.devices.measurements import Measuring
    from nas_rlm.rlm import RLM
    from nas_rlm.search.settings import Settings
    from search_spaces import SearchSpace

MEASUREMENTS = "measured.parquet"


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
    function: Many = (),
    maximise: Names = (),
    sample: Whole = 200,
    data: Path | None = None,
    measure: str = "",
    budget: Whole = 0,
    python: str = "",
    ray: str = "",
    resume: Flag = False,
) -> None:
    """Search a space for the architectures with the best predicted trade-offs.

    First a table tells how objectives range over random architectures and how many of these meet each
    constraint. The folder receives front.csv (the front, best in the first objective first), front/ (an .onnx
    for each), report.html (a page with all of it), pareto.png, hypervolume.png, log.jsonl (every evaluated
    architecture, in order), samples.json, feasibility.json and settings.json.

    With --measure, networks are measured on a device of which the model need not know anything: first some
    that together tell most of the others, then those that may be on the front. measured.parquet holds them.
    With --data, what was measured before counts as it is. Either way front.csv and the picture tell measured
    points from predicted ones.

    Args:
        space: the search space.
        objectives: what to optimise, such as accuracy,latency/pixel3: accuracies upwards, others downwards.
            flops and params are counted, not predicted.
        out: a folder of this search alone.
        constraint: bounds such as 'latency/pixel3<=20', or 'latency/pixel3@0.9<=20' on a quantile; of what is
            optimised or not.
        model: a checkpoint folder, or the name of a shipped model.
        algorithm: nsga2, nsga3, sms-emoa, evolution, local or random.
        population: architectures a generation.
        generations: rounds of evaluation, with --measure of each of three searches.
        seed: of all random choices.
        function: objectives of your own, such as energy=mine.py:energy: a function from an architecture to a
            number, which is called once for each. The file is run.
        maximise: those of them that go upwards.
        sample: random architectures for the table; 0 for none.
        data: a table of what was measured: the search begins with its architectures, and their numbers are
            not predicted. Of its rows those count that have all objectives which it has; of several of one
            architecture the last.
        measure: a device, such as onnxruntime-cpu-1t, whose latency or memory is among the objectives.
        budget: networks to measure there, 10 at least.
        python: a command that starts the Python where they run, such as 'ssh box .venv/bin/python'.
        ray: a cluster that predicts and measures: auto, HOST:6379, ray://HOST:10001, or local for processes
            here. A generation is handed out in pieces of 64 architectures.
        resume: continue the search in the folder, or start it if there is none; the outcome is the same.
    """
    from nas_rlm import study
    from nas_rlm.devices import Device
    from nas_rlm.search import run_directory
    from nas_rlm.search.active_search import Learner, Reader, explore
    from nas_rlm.search.feasibility import feasibility
    from nas_rlm.search.lookup import Informed
    from nas_rlm.search.loop import Sampler
    from nas_rlm.search.loop import search as run
    from nas_rlm.search.objectives import Evaluator, load_function
    from nas_rlm.search.reference_points import reference
    from nas_rlm.search.settings import Settings
    from nas_rlm.surrogates.graph_surrogate import on_networks

    found = search_spaces.get(space)
    rlm = load(model)
    evaluator = Evaluator(rlm, dict(map(load_function, function)))
    device = str(Device.named(measure)) if measure else ""
    if python and not device:
        raise ValueError(f"--python is {python!r}, where nothing is measured: expected --measure as well")
    if device and not budget:
        raise ValueError(f"--measure {measure} without --budget: expected how many networks, 10 at least")
    settings = Settings(
        *(found.name, objectives, constraint, algorithm, population, generations, seed),
        model=_fingerprint(rlm, function, data),
        device=device,
        budget=budget,
        maximised=maximise,
        functions=function,
        data=str(data or ""),
    )
    told = [name for name in settings.predicted if name not in settings.measured]
    if told:
        evaluator.check(told)
    if sample < 0:
        raise ValueError(f"--sample is {sample}, expected at least 0")
    for option, count in (("--population", population), ("--budget", budget)):
        if found.size and count > found.size:
            raise ValueError(f"{option} is {count:,}, more than the {found.size:,} of {found.name}")
    rows = _measured(data, found, [name for name in told if name not in evaluator.functions])
    run_directory.check_search(out, settings, resume)
    with alone(out), workers(ray) as there:
        evaluator.model = there.model(rlm)
        informed = Informed(evaluator, rows)
        if device:
            there.check_device(Device.named(device), python)
        possible = run_directory.read_feasibility(out)  # of a search that goes on
        if not possible and sample and settings.told:
            possible = feasibility(found, informed, settings.told, sample)
        if possible:
            print(possible)
        log = run_directory.open_log(out, settings, resume)
        if possible:
            run_directory.write_feasibility(out, possible)
        judge: Sampler = informed
        if device:
            judge = Learner(Reader(informed, found), settings.measured, on_networks(rlm.experts))
            measured = _measuring(found, settings, out, python, there.measure)
            result = explore(judge, settings, measured, log, progress=True)
        else:
            ranges = possible.ranges if possible else {}
            corner = reference(found.name, objectives, ranges, maximise)
            known = [found.parse(row.arch_str) for row in rows]
            result = run(found, informed, settings, log, True, informed.status, corner, known)
        log.finish()
        evaluated = f"{len(result.architectures):,} architectures evaluated"
        if len(result.front) == 0:
            within = f"none within {' and '.join(constraint)}: loosen a constraint"
            raise ValueError(f"{evaluated}, {within if constraint else 'of which the device can run none'}")
        samples = study.joint_samples(found, judge, result)
        study.write_front(out, found, result, samples, possible)
    print(f"{evaluated}, {len(result.front)} on the front: {out / 'front.csv'}")
    on_front = result.is_measured[result.front].sum()
    if isinstance(judge, Learner):
        failed = len(judge.measured) - len(judge.run)
        lost = f", {failed} do not run" if failed else ""
        print(f"{len(judge.run)} measured, {on_front} of them on the front{lost}: {out / MEASUREMENTS}")
    elif rows:
        print(f"{len(rows):,} measured before, {on_front} of them on the front")
    print(f"picture: {out / 'pareto.png'}; report: {out / 'report.html'}")


@app.command
def propose(
    *,
    space: str,
    objectives: Names,
    count: Whole = 10,
    data: Path | None = None,
    constraint: Many = (),
    model: str = "nas",
    population: Whole = 50,
    generations: Whole = 20,
    seed: Whole = 0,
    out: Path | None = None,
) -> None:
    """Name the architectures to train or measure next: those that may add most to the front.

    What is measured is learnt from a table, and what then may well be ahead is named, one an architecture a
    line; measured and added to the table, they make the next proposal a better one. As long as the table has
    fewer than ten rows, those are named that together tell most of the others.

    Args:
        space: the search space.
        objectives: what to optimise.
        count: name so many, or fewer where no others may add anything.
        data: a table of what was measured; of its rows those count that have all objectives which it has.
            The model tells the others.
        constraint: bounds such as 'latency/pixel3<=20'.
        model: a checkpoint folder, or the name of a shipped model.
        population: architectures a generation of the search for them.
        generations: of it.
        seed: of all random choices.
        out: a text file; stdout by default.
    """
    from nas_rlm.search.active_search import Learner, Reader
    from nas_rlm.search.active_search import propose as proposed
    from nas_rlm.search.objectives import Evaluator
    from nas_rlm.search.settings import Settings
    from nas_rlm.surrogates.graph_surrogate import on_networks

    if count < 1:
        raise ValueError(f"--count is {count}, expected at least 1")
    if out:
        check_target(out)
    found = search_spaces.get(space)
    settings = Settings(
        *(found.name, objectives, constraint, "nsga2", population, generations, seed),
    )
    rows = _measured(data, found, settings.predicted)
    measured = list(rows[0].targets) if rows else []
    rlm = load(model)
    evaluator = Evaluator(rlm)
    if rows and (told := [name for name in settings.predicted if name not in measured]):
        evaluator.check(told)
    learner = Learner(Reader(evaluator, found), measured or settings.objectives, on_networks(rlm.experts))
    learner.learn(rows)
    names = proposed(learner, settings, count, progress=True)
    text = "".join(f"{name}\n" for name in names)
    if out:
        write_text(out, text)
        print(f"{len(names)} architectures: {out}")
    else:
        print(text, end="")


@app.command
def plot(folder: Path, *, pair: Many = (), data: Path | None = None, out: Path | None = None) -> None:
    """Draw the picture of a search again, finished or not.

    Args:
        folder: of the search.
        pair: two objectives, across and up, such as latency/pixel3,latency/eyeriss, for a panel each; by
            default each objective beside the first.
        data: a table, whose true values are drawn as well.
        out: the picture; pareto.png in the folder by default.
    """
    from nas_rlm.data import read
    from nas_rlm.plotting import front
    from nas_rlm.plotting.style import check_picture, save
    from nas_rlm.search.run_directory import read_result, read_samples

    pairs = [tuple(one.split(",")) for one in pair]
    for one, names in zip(pair, pairs, strict=True):
        if len(names) != 2:
            raise ValueError(f"--pair is {one!r}, expected two objectives such as latency/pixel3,accuracy")

    target = out or folder / "pareto.png"
    check_picture(target)
    result = read_result(folder)
    rows = read(data).rows if data else []
    truth = {row.arch_str: row.targets for row in rows if row.space == result.settings.space}
    if data and not truth.keys() & set(result.architectures):
        raise ValueError(f"{data} has none of the {len(result.architectures):,} architectures of the search")
    info = front.front_info(result, read_samples(folder, result), [(x, y) for x, y in pairs], truth)
    save(front.draw(info), target)
    print(f"picture: {target}")


@app.command
def report(folder: Path) -> None:
    """Write front.csv, front/, the pictures and report.html of a search again, from its log alone.

    Args:
        folder: of the search, finished or not.
    """
    from nas_rlm.search.run_directory import read_feasibility, read_result, read_samples
    from nas_rlm.study import write_front

    result = read_result(folder)
    if len(result.front) == 0:
        raise ValueError(f"{folder} holds a search of which nothing is within the constraints so far")
    space = search_spaces.get(result.settings.space)
    write_front(folder, space, result, read_samples(folder, result), read_feasibility(folder))
    print(f"{len(result.front)} on the front: {folder / 'front.csv'}; report: {folder / 'report.html'}")


def _measuring(
    space: SearchSpace[Any], settings: Settings, out: Path, python: str, measuring: Measuring
) -> Callable[[Sequence[str]], list[Row]]:
    """How a search measures: into a table in its folder, from which a resumed one reads."""
    from nas_rlm.devices import Device
    from nas_rlm.devices.measurements import Architecture, profile
    from nas_rlm.devices.profiler import Plan

    memory = any(name.startswith("memory/") for name in settings.measured)
    plan = Plan(seed=settings.seed, memory=memory, python=python)

    def measure(names: Sequence[str]) -> list[Row]:
        some = [Architecture(space, space.parse(name)) for name in names]
        table = profile(some, Device.named(settings.device), out / MEASUREMENTS, plan, True, measuring)
        rows = {row.arch_str: row for row in table.rows}
        return [rows[name] for name in names]

    return measure


def _measured(data: Path | None, space: SearchSpace[Any], objectives: Sequence[str]) -> list[Row]:
    """The rows of a table that have all objectives which it has of a space, with these alone.

    Of several rows of one architecture the last one counts. A warning tells how many do not.
    """
    from nas_rlm.data import read
    from nas_rlm.search.objectives import EXACT

    if not data:
        return []
    table = read(data)
    rows = [row for row in table.rows if row.space == space.name]
    able = [name for name in objectives if name not in EXACT]
    names = [name for name in able if any(row.measured(name) for row in rows)]
    if not names:
        has = ", ".join(table.objectives) or "no numbers"
        of = ", ".join(sorted({repr(row.space) for row in table.rows})) or "no space"
        raise ValueError(
            f"{data} has no {' or '.join(able) or 'number to learn'} of {space.name}: it has {has} of {of}"
        )
    whole = [row.only(names) for row in rows if all(row.measured(name) for name in names)]
    if not whole:
        raise ValueError(f"{data} has no row of {space.name} that has {' and '.join(names)}")
    known = {_named(space, row, data): row for row in whole}
    reasons = {
        "are of another space": len(table) - len(rows),
        f"lack {' or '.join(names)}": len(rows) - len(whole),
        "are of architectures of which a later row counts": len(whole) - len(known),
    }
    if lost := [f"{count:,} {why}" for why, count in reasons.items() if count]:
        warnings.warn(f"of {len(table):,} rows of {data} {' and '.join(lost)}", stacklevel=2)
    return [replace(row, arch_str=name) for name, row in known.items()]


def _named(space: SearchSpace[Any], row: Row, data: Path) -> str:
    """The architecture of a row, as its space writes it."""
    try:
        return str(space.parse(row.arch_str))
    except ValueError as error:
        raise ValueError(f"a row of {data}: {error}") from None


def _fingerprint(rlm: RLM, functions: Sequence[str], data: Path | None) -> str:
    """Of the model, of files with functions, and of a table."""
    digest = hashlib.sha256()
    for path in [text.partition("=")[2].rpartition(":")[0] for text in functions]:
        digest.update(Path(path).read_bytes() if path.endswith(".py") else path.encode())
    if data:
        digest.update(data.read_bytes())
    digest.update(rlm.fingerprint.encode())
    return digest.hexdigest()[:16]
