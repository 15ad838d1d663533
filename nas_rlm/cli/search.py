"""search: Pareto fronts of a search space."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import (
    CommaList,
    Flag,
    Integer,
    SpaceList,
    announce_ray,
    app,
    check_minimum,
    checked_search,
)
from nas_rlm.cli.prediction import read_candidates


@app.command
def search(
    *,
    space: str,
    objectives: CommaList,
    out: Path,
    constraint: SpaceList = (),
    model: str = "nas",
    algorithm: str = "nsga2",
    population: Integer = 50,
    generations: Integer = 20,
    seed: Integer = 0,
    function: SpaceList = (),
    maximise: CommaList = (),
    sample: Integer = 200,
    candidates: Path | None = None,
    data: Path | None = None,
    measure: str = "",
    budget: Integer = 0,
    python: str = "",
    ray: str = "",
    resume: Flag = False,
) -> None:
    """Search a space for the best predicted trade-offs.

    First prints the ranges of the objectives over random architectures, and how many of these meet each
    constraint. The run directory then has front.csv (the front, best in the first objective first), front/
    (an .onnx for each), report.html (a page with all of it), pareto.png, hypervolume.png, log.jsonl (every
    evaluated architecture, in order), samples.json, feasibility.json and settings.json.

    With --measure, networks are measured during the search, on a device that the model need not know: first a
    diverse initial design, then networks that may be on the front. measured.parquet has the measurements.
    With --data, labels from earlier measurements replace predictions. In both cases front.csv and the picture
    distinguish measured from predicted points.

    Args:
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own.
        objectives: objectives to optimise, such as accuracy,latency/pixel3. Accuracy, throughput, IoU, BLEU
            and similar kinds are maximised, others minimised. flops and params are exact.
        out: the run directory.
        constraint: bounds such as 'latency/pixel3<=20', or 'latency/pixel3@0.9<=20' on a quantile, on these
            or on other objectives.
        model: a checkpoint directory, or the name of a shipped model.
        algorithm: nsga2, nsga3, sms-emoa, evolution, local or random.
        population: architectures per generation.
        generations: number of generations; with --measure, of each of three rounds.
        seed: seed of all random choices.
        function: user-defined objectives, such as energy=mine.py:energy: a function from an architecture to a
            number, called once for each architecture. The file is executed.
        maximise: further objectives that are maximised. Those that a table declared when it was imported need
            no option.
        sample: random architectures evaluated before the search; 0 for none.
        candidates: a text file with one architecture per line; only these are searched.
        data: a table of labels. The search starts with its architectures. Rows count that have all of the
            table's objectives; of several rows of one architecture the last.
        measure: a device, such as onnxruntime-cpu-1t, whose latency or memory is among the objectives.
        budget: number of networks to measure, at least 10.
        python: command that starts Python where networks are measured, such as 'ssh box .venv/bin/python'.
        ray: a cluster that predicts and measures: auto, HOST:6379, ray://HOST:10001, or local for processes
            of this machine. A generation is split into batches of 64 architectures.
        resume: continue the search of the run directory, or start it; the result is the same.
    """
    from nas_rlm.devices.device import Device
    from nas_rlm.search.settings import check_measuring

    check_measuring(measure, budget, python)
    check_minimum("--sample", sample, 0)
    search_space = checked_search(
        *(space, objectives, constraint, model, data),
        functions=function,
        algorithm=algorithm,
        population=population,
        generations=generations,
        seed=seed,
        device=str(Device.parse(measure)) if measure else "",
        budget=budget,
        maximised=maximise,
    )

    from nas_rlm.search.run_directory import MEASUREMENTS
    from nas_rlm.study import run_search

    if ray:
        announce_ray(ray)
    study = run_search(
        search_space,
        objectives,
        constraints=constraint,
        model=model,
        algorithm=algorithm,
        population=population,
        generations=generations,
        seed=seed,
        maximise=maximise,
        functions=function,
        labels=data,
        device=measure,
        budget=budget,
        python=python,
        ray=ray,
        candidates=read_candidates(candidates),
        feasibility_samples=sample,
        directory=out,
        resume=resume,
        progress=True,
        on_feasibility=print,
    )
    result = study.result
    num_measured, num_on_front = result.is_measured.sum(), result.is_measured[result.front].sum()
    print(
        f"{len(result.architectures):,} architectures evaluated, {len(result.front)} on the front:"
        f" {out / 'front.csv'}"
    )
    if measure:
        num_failed = len(study.measurements) - num_measured
        failures = f", {num_failed} failed" if num_failed else ""
        print(f"{num_measured} measured, {num_on_front} of them on the front{failures}: {out / MEASUREMENTS}")
    elif data:
        print(f"{num_measured:,} with labels, {num_on_front} of them on the front")
    print(f"picture: {out / 'pareto.png'}; report: {out / 'report.html'}")
