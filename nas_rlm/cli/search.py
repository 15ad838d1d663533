"""search: Pareto fronts of a search space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

import search_spaces
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
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.study.study import Study
    from search_spaces import SearchSpace


@Parameter(name="*")
@dataclass(frozen=True)
class Training:
    """How networks are trained during a search.

    Args:
        train: a training function, FILE.py:FUNCTION or MODULE:FUNCTION, of a trial: it returns a value of
            each objective, or a pair of these and the trained weights.
        trials: number of trainings, with those that the run directory has; by default 100, or any number with
            --cost.
        budgets: ascending budgets of a training, such as 1,4,16 epochs. The function is then called with a
            trial, the budget to reach, and the directory of the trial's training with the budget before, or
            None. A training goes on to the next budget only if its predicted final values are worth it.
        cost: sum of the budgets of all trainings, or without budgets of their seconds, at which the run ends;
            0 for no limit.
        workers: trainings at a time, each in a process with a GPU or a set of processors.
        time_limit: seconds that a training may take, without the start of its process; 0 for no limit.
        retries: how many times a failed training is repeated.
        retry_failed: repeat the trainings that failed in earlier runs first, such as after an error in the
            function was mended.
        predicted: objectives that the model predicts, instead of the training function.
    """

    train: str = ""
    trials: Integer = 0
    budgets: CommaList = ()
    cost: float = 0.0
    workers: Integer = 1
    time_limit: float = 0.0
    retries: Integer = 0
    retry_failed: Flag = False
    predicted: CommaList = ()


DEFAULT_TRIALS = 100
NO_TRAINING = Training()
# Options of a search by predictions, which one with trainings has not.
DEFAULTS = {
    "algorithm": "nsga2",
    "population": 50,
    "generations": 20,
    "function": (),
    "sample": 200,
    "budget": 0,
}


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
    training: Training = NO_TRAINING,
) -> None:
    """Search a space for the best predicted trade-offs.

    First prints the ranges of the objectives over random architectures, and how many of these meet each
    constraint. The run directory then has front.csv (the front, best in the first objective first), front/
    (an .onnx for each), report.html (a page with all of it), pareto.png, hypervolume.png, log.jsonl (every
    evaluated architecture, in order), samples.json, feasibility.json and settings.json.

    With --measure, networks are measured during the search, on a device that the model need not know: first a
    diverse initial design, then networks that may be on the front. study/ has a page of the measurements that
    is live while it runs, and measured.parquet their table. With --data, labels from earlier measurements
    replace predictions. In both cases front.csv and the picture distinguish measured from predicted points.

    With --train, networks are trained: --trials of them, chosen by surrogates that learn from those before.
    With --measure each is measured as well. The run directory then has report.html (live while it runs),
    trials.csv, trials/ (output, errors and weights of each training), front.csv and front/ (ONNX files and
    torch modules, with trained weights). The same command continues an interrupted run.

    Args:
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own.
        objectives: objectives to optimise, such as accuracy,latency/pixel3. Accuracy, throughput, IoU, BLEU
            and similar kinds are maximised, others minimised. flops and params are exact.
        out: the run directory.
        constraint: bounds such as 'latency/pixel3<=20', or 'latency/pixel3@0.9<=20' on a quantile, on these
            or on other objectives.
        model: a checkpoint directory, or the name of a shipped model.
        algorithm: nsga2, nsga3, sms-emoa, evolution, local or random.
        population: architectures per generation; all of a space that has fewer.
        generations: number of generations; with --measure, of each search.
        seed: seed of all random choices.
        function: user-defined objectives, such as energy=mine.py:energy: a function from an architecture to a
            number, called once for each architecture. The file is executed.
        maximise: further objectives that are maximised. Those that a table declared when it was imported need
            no option.
        sample: random architectures evaluated before the search; 0 for none.
        candidates: a text file with one architecture per line; only these are searched, or with --train
            trained.
        data: a table of labels. The search starts with its architectures. Rows count that have all of the
            table's objectives; of several rows of one architecture the last. With --measure, networks with a
            value of the device count as measured before.
        measure: a device, such as onnxruntime-cpu-1t, whose latency or memory is among the objectives.
        budget: number of networks to measure, at least 10.
        python: command that starts Python where networks are measured, such as 'ssh box .venv/bin/python'.
        ray: a cluster that predicts and measures, or with --train trains: auto, HOST:6379, ray://HOST:10001,
            or local for processes of this machine. A generation is split into batches of 64 architectures.
        resume: continue the search of the run directory, or start it; the result is the same.
        training: how networks are trained.
    """
    if training.train:
        given = {
            "algorithm": algorithm,
            "population": population,
            "generations": generations,
            "function": function,
            "sample": sample,
            "budget": budget,
        }
        for name, value in given.items():
            if value != DEFAULTS[name]:
                raise ValueError(f"--{name} is of a search by predictions: leave it out with --train")
        search_space = search_spaces.get(space)
        settings = {
            "constraints": constraint,
            "model": model,
            "seed": seed,
            "device": measure,
            "maximise": maximise,
            "python": python,
            "candidates": read_candidates(search_space, candidates),
        }
        _train(search_space, objectives, out, data, training, ray, settings)
        return
    if training != NO_TRAINING:
        raise ValueError("--trials and other options of trainings need --train FILE.py:FUNCTION")
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

    from nas_rlm.search.result import FAILED
    from nas_rlm.search.run_directory import MEASUREMENTS
    from nas_rlm.search_run import run_search

    if ray:
        announce_ray(ray)
    run = run_search(
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
        candidates=read_candidates(search_space, candidates),
        feasibility_samples=sample,
        directory=out,
        resume=resume,
        progress=True,
        on_feasibility=print,
    )
    result = run.result
    num_measured, num_on_front = result.is_measured.sum(), result.is_measured[result.front].sum()
    print(
        f"{counted(len(result.architectures), 'architecture')} evaluated, {len(result.front)} on the front:"
        f" {out / 'front.csv'}"
    )
    if measure:
        num_failed = sum(result.status.get(row.arch_str) == FAILED for row in run.measurements)
        num_before = num_measured - (len(run.measurements) - num_failed)
        before = f", {num_before} of them before" if num_before else ""
        failures = f", {num_failed} failed" if num_failed else ""
        print(
            f"{num_measured} measured{before}, {num_on_front} of them on the front{failures}:"
            f" {out / MEASUREMENTS}"
        )
    elif data:
        print(f"{num_measured:,} with labels, {num_on_front} of them on the front")
    print(f"picture: {out / 'pareto.png'}; report: {out / 'report.html'}")


def _train(
    space: SearchSpace[Any],
    objectives: CommaList,
    out: Path,
    data: Path | None,
    training: Training,
    ray: str,
    settings: dict[str, Any],
) -> None:
    """Run a study, and print its front."""
    from nas_rlm.search.lookup import read_labels
    from nas_rlm.study.evaluation import check_parameters, load_evaluation
    from nas_rlm.study.optimization import Limits, TrialsFailed
    from nas_rlm.study.study import Study
    from nas_rlm.study.workers.processes import check_workers

    # An error in the function or the options leaves no run directory behind.
    budgets = [_budget(text) for text in training.budgets]
    check_parameters(load_evaluation(training.train), has_budgets=bool(budgets))
    trials = training.trials or (None if training.cost else DEFAULT_TRIALS)
    time_limit = training.time_limit or None
    Limits(trials, cost=training.cost or None, retries=training.retries)
    check_workers(training.workers, time_limit, ray)
    labels = read_labels(data) if data else None
    study = Study(space, objectives, out, predicted=training.predicted, budgets=budgets, **settings)
    if labels is not None:
        study.add_table(labels)
    try:
        study.optimize(
            training.train,
            trials,
            cost=training.cost or None,
            workers=training.workers,
            time_limit=time_limit,
            retries=training.retries,
            retry_failed=training.retry_failed,
            ray=ray,
            progress=True,
        )
    except TrialsFailed as error:
        raise ValueError(
            f"{error}: see {out / 'trials'}; mend the training function, and add --retry-failed"
        ) from None
    _print_results(study, out)


def _print_results(study: Study, out: Path) -> None:
    """Print how many trials are complete and on the front, and where the results are."""
    from nas_rlm.study.report.results import failure_summary

    trials, front = study.trials, study.front
    num_complete = sum(trial.state == "complete" for trial in trials)
    failed = [trial for trial in trials if trial.state == "failed"]
    where = f": {out / 'front.csv'}" if front else ""
    print(f"{counted(num_complete, 'trial')} complete, {len(front)} on the front{where}")
    if pending := study.pending:
        print(f"{counted(len(pending), 'trial')} without a result, which another process evaluates")
    if study.is_exhausted:
        print(f"{study.settings.exhausted}: the search ends")
    if study.settings.budgets:
        print(f"{counted(sum(t.state == 'paused' for t in trials), 'trial')} paused; cost {study.cost:g}")
    if failed:
        print(f"{failure_summary(trials)}; {failed[-1].directory}")
    if failed and not num_complete:
        raise ValueError(f"no trial is complete, {len(failed):,} failed: see the error above")
    networks = f"networks: {out / 'front'}; " if front else ""
    print(f"{networks}report: {out / 'report.html'}")


def _budget(text: str) -> int | float:
    """A number of --budgets."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise ValueError(f"--budgets has {text!r}: expected ascending numbers such as 1,4,16") from None
