"""bench study: the best complete training at equal cost, with and without budgets."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, check_methods, draw_rows, print_searches, read_joined_table


@bench.command(name="study")
def bench_study(
    *,
    space: str = "nasbench201",
    objectives: CommaList = ("accuracy",),
    budgets: CommaList = (),
    methods: CommaList = (),
    seeds: Integer = 5,
    cost: Integer = 100,
    rows: Integer = 0,
    model: str = "nas",
    data: Path | None = None,
    also: Path | None = None,
    out: Path | None = None,
) -> None:
    """Compare ways to spend epochs of training by the complete trainings.

    A table with accuracies after several numbers of epochs stands for training. Compared are a study with
    budgets, one without, asynchronous successive halving of random architectures, Optuna's sampler TPE with
    its successive halving, random search, regularised evolution, and NSGA-II. With several objectives TPE
    trains fully. The surrogates use none of the space in question. Prints the mean and the worst over seeds
    of the hypervolume relative to the table's, and of the regret in percentage points of accuracy.

    Args:
        space: nasbench101 or nasbench201.
        objectives: accuracy, and others that do not depend on the epochs, such as latencies.
        budgets: epochs, ascending; by default all of the table.
        methods: some of study, full, halving, tpe, random, evolution and nsga2; by default all.
        seeds: number of searches of each kind, with seeds from 0.
        cost: full trainings whose epochs are spent; they are judged at 25, 50, 100, 200 and this cost.
        rows: random rows of the table that are used; 0 for all.
        model: a checkpoint directory, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
        also: another table, with further objectives of the same architectures.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.schedule import Schedule
    from nas_rlm.benchmarks.search.studies import (
        COSTS,
        EPOCHS,
        KEY_NAMES,
        METHODS,
        StudyBenchmark,
        StudyEvaluation,
        study_benchmark,
    )

    check_minimum("--seeds", seeds, 1)
    check_minimum("--cost", cost, 1)
    if space not in EPOCHS:
        raise ValueError(f"--space is {space!r}: expected one of {', '.join(EPOCHS)}")
    check_methods(methods, METHODS)
    for budget in budgets:
        if not budget.isdigit():
            raise ValueError(f"--budgets has {budget!r}: expected numbers such as 12,36,108")
    chosen = [int(budget) for budget in budgets] or [*EPOCHS[space]]
    table = draw_rows(read_joined_table(space, data, also), rows)
    settings = {"table": table.name, "model": model, "rows": rows, "budgets": ",".join(map(str, chosen))}
    results = Results(out, StudyEvaluation, settings, KEY_NAMES)
    costs = [*(c for c in COSTS if c < cost), cost]
    schedule = Schedule(methods or METHODS, range(seeds), costs)
    found = study_benchmark(
        StudyBenchmark(table, chosen, load(model), objectives),
        schedule,
        finished=results.records,
        progress=True,
    )
    results.add_all(found)
    print_searches(results.records, objectives, schedule, "cost")
