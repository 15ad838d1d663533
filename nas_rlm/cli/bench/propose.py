"""bench propose: architectures that `propose` and other searches choose by true values."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Flag, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, check_methods, draw_rows, print_searches, read_joined_table


@bench.command(name="propose")
def bench_propose(
    *,
    space: str = "nasbench201",
    objectives: CommaList = ("accuracy", "latency/pixel3"),
    methods: CommaList = ("propose", "random", "evolution", "nsga2"),
    seeds: Integer = 10,
    evaluations: Integer = 200,
    rows: Integer = 0,
    unknown: Flag = False,
    by_cost: Flag = False,
    model: str = "nas",
    data: Path | None = None,
    also: Path | None = None,
    out: Path | None = None,
) -> None:
    """Compare choices of architectures by their true values, at equal numbers of evaluations.

    `propose` chooses ten architectures first, then five at a time up to 50, ten up to 100, and twenty. It
    uses no surrogate of the space in question. `study` chooses one at a time, and considers what its training
    costs. The others are random search, regularised evolution and NSGA-II with ten architectures a
    generation, Optuna's samplers TPE, GP and NSGA-II, and SMAC. `optimistic` and `scalarised` select as
    `propose` does, but by the hypervolume of optimistic quantiles, and by random scalarisations, instead of
    expected improvement. Prints the mean and the worst over seeds of the hypervolume relative to the table's,
    and of the regret in the first objective.

    Args:
        space: name of the search space.
        objectives: objectives, of which flops and params are known.
        methods: some of propose, study, optimistic, scalarised, random, evolution, nsga2, tpe, gp,
            optuna_nsga2 and smac; the last four need Optuna or SMAC.
        seeds: number of searches of each kind, with seeds from 0.
        evaluations: evaluations of a search; it is judged after 25, 50, 100, 200 and all of them.
        rows: random rows of the table with the first objective that are used; 0 for all.
        unknown: leave out the surrogates of other spaces too, as for a space unlike all others.
        by_cost: judge after as many mean trainings instead of evaluations. A training costs a fifth of the
            mean one, and the rest in proportion to the size of activations.
        model: a checkpoint directory, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
        also: another table, with further objectives of the same architectures.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.schedule import Schedule
    from nas_rlm.benchmarks.search.proposals import (
        COUNTS,
        KEY_NAMES,
        METHODS,
        ProposalBenchmark,
        ProposalEvaluation,
        proposal_benchmark,
    )

    check_minimum("--seeds", seeds, 1)
    check_minimum("--evaluations", evaluations, 1)
    check_methods(methods, METHODS)
    table = read_joined_table(space, data, also)
    if rows:
        table = draw_rows(table.where_measured(objectives[0]), rows)
    settings = {"table": table.name, "model": model, "rows": rows, "unknown": unknown, "by_cost": by_cost}
    results = Results(out, ProposalEvaluation, settings, KEY_NAMES)
    counts = [*(count for count in COUNTS if count < evaluations), evaluations]
    schedule = Schedule(methods, range(seeds), counts)
    found = proposal_benchmark(
        ProposalBenchmark(table, objectives, load(model), not unknown, by_cost),
        schedule,
        finished=results.records,
        progress=True,
    )
    results.add_all(found)
    print_searches(results.records, objectives, schedule, "evaluations")
