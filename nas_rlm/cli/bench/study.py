"""bench study: the best complete training at equal cost, with and without budgets."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, check_methods, draw_rows, read_space_table


@bench.command(name="study")
def bench_study(
    *,
    space: str = "nasbench201",
    budgets: CommaList = (),
    methods: CommaList = (),
    seeds: Integer = 5,
    cost: Integer = 100,
    rows: Integer = 0,
    model: str = "nas",
    data: Path | None = None,
    out: Path | None = None,
) -> None:
    """Compare ways to spend epochs of training by the best complete training.

    A table with accuracies after several numbers of epochs stands for training. Compared are a study with
    budgets, one without, asynchronous successive halving of random architectures, Optuna's sampler TPE with
    its successive halving, random search, and regularised evolution. The surrogates use none of the space in
    question. Prints the mean and the worst regret over seeds, in percentage points of accuracy.

    Args:
        space: nasbench101 or nasbench201.
        budgets: epochs, ascending; by default all of the table.
        methods: some of study, full, halving, tpe, random and evolution; by default all.
        seeds: number of searches of each kind, with seeds from 0.
        cost: full trainings whose epochs are spent; they are judged at 25, 50, 100 and this cost.
        rows: random rows of the table that are used; 0 for all.
        model: a checkpoint directory, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
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
        mean_and_worst,
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
    table = draw_rows(read_space_table(space, data), rows)
    settings = {"table": table.name, "model": model, "rows": rows, "budgets": ",".join(map(str, chosen))}
    results = Results(out, StudyEvaluation, settings, KEY_NAMES)
    costs = [*(c for c in COSTS if c < cost), cost]
    shown = methods or METHODS
    found = study_benchmark(
        StudyBenchmark(table, chosen, load(model)),
        Schedule(shown, range(seeds), costs),
        finished=results.records,
        progress=True,
    )
    results.add_all(found)
    records = {key: value for key, value in results.records.items() if key[1] < seeds}
    regrets = mean_and_worst(records)
    print(f"{'method':<12}{'cost':>8}{'regret':>10}{'worst':>10}")
    for method in shown:
        for c in costs:
            mean, worst = regrets[method, c]
            print(f"{method:<12}{c:>8}{mean:>10.4f}{worst:>10.4f}")
