"""bench few-shot: rankings after a few labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, read_measured_table
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted


@bench.command(name="few-shot")
def bench_few_shot(
    *,
    space: str,
    labels: Integer,
    seeds: Integer = 5,
    model: str = "pretrained",
    data: Path | None = None,
    objective: str = "accuracy",
    source_spaces: CommaList = (),
    methods: CommaList = (),
    rows: Integer = 100_000,
    out: Path | None = None,
) -> None:
    """Compare methods that rank a space after a few labels.

    Every method is trained on the same random architectures and ranks all others of the table. Beyond params
    is the Spearman correlation of what the number of parameters does not explain of the ranks.

    Args:
        space: the search space, such as nasbench201, or FILE.py:CLASS or MODULE:CLASS of your own.
        labels: number of labelled architectures; 0 with --source-spaces only.
        seeds: number of random splits, with seeds from 0.
        model: a model that was not trained on the labels: a checkpoint directory, or the name of a shipped
            model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
        objective: the objective to rank by.
        source_spaces: spaces whose tables in the data directory are fully labelled; surrogates are fitted to
            them, and transferred.
        methods: methods to compare, such as trees,gaussian-process,rlm; by default all: flops, params, trees,
            mlp, gcn, gaussian-process, head-raw, head-normalised, rlm and rlm-network.
        rows: maximum number of rows of the table, drawn at random.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.few_shot import (
        SKLEARN_METHODS,
        ZERO_LABEL_METHODS,
        FewShotResult,
        make_methods,
        run_few_shot,
    )
    from nas_rlm.data.objective_kinds import ACCURACY
    from nas_rlm.surrogates.fitting import fit_graph_surrogates

    check_minimum("--seeds", seeds, 1)
    for name in SKLEARN_METHODS:
        if name in methods or (labels and not methods):
            require("baselines", f"the method {name}")
    seeds = seeds if labels else 1  # without labels all seeds are the same
    space_name = search_spaces.get(space).name
    check_minimum("--rows", rows, 4)
    full = read_measured_table(space_name, objective, data).where_measured(objective)
    table = full.sample(rows)
    table_name = full.name if len(table) == len(full) else f"{full.name}, {rows:,} rows"
    if space_name in source_spaces:
        raise ValueError(f"--source-spaces has {space_name} itself: expected other spaces")
    if source_spaces and objective != ACCURACY:
        raise ValueError(f"--source-spaces transfer only {ACCURACY}, not {objective}")
    settings = {"space": space_name, "labels": labels, "objective": objective}
    settings |= {"source_spaces": sorted(set(source_spaces)), "model": model, "table": table_name}
    results = Results(out, FewShotResult, settings, ("method", "seed"))
    rlm = load(model)
    rlm.surrogates = dict(rlm.surrogates)
    for source in progress_bar(source_spaces, "source spaces", unit="space"):
        source_table = read_measured_table(search_spaces.get(source).name, ACCURACY)
        surrogates = fit_graph_surrogates(source_table.rows, [ACCURACY])
        if not surrogates:
            raise ValueError(f"--source-spaces has {source}, which has too few labels to fit a surrogate")
        rlm.surrogates |= surrogates
    available = make_methods(table, rlm, objective)
    for name in methods:
        if name not in available:
            raise ValueError(f"there is no method {name!r} for {space_name}; {suggest(name, available)}")
    default = available if labels else [name for name in available if name in ZERO_LABEL_METHODS]
    selected = {name: available[name] for name in methods or default}
    new_results = run_few_shot(
        table, labels, selected, range(seeds), objective, results.records, progress=True
    )
    results.add_all(new_results)
    num_rows = len(table.where_measured(objective))
    print(
        f"{counted(num_rows, 'row')} of {space_name}, {counted(labels, 'label')}, seeds 0 to {seeds - 1}:"
        " mean and deviation"
    )
    print(f"{'method':<18}{'Kendall':>15}{'Spearman':>15}{'beyond params':>15}{'seconds':>9}")
    for name in selected:
        by_seed = [results.records[name, seed] for seed in range(seeds)]
        cells = ""
        for field in ("kendall", "spearman", "beyond_params"):
            values = [getattr(result, field) for result in by_seed]
            cells += f"{np.mean(values):>9.3f} ±{np.std(values):.3f}"
        print(f"{name:<18}{cells}{np.mean([result.seconds for result in by_seed]):>9.1f}")
