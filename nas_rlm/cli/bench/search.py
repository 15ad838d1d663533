"""bench search: hypervolume of searches in measured values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Flag, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, read_space_table

if TYPE_CHECKING:
    from nas_rlm.data import Row
    from nas_rlm.rlm import RLM


@bench.command(name="search")
def bench_search(
    *,
    labels: Integer = 0,
    chosen: Flag = False,
    model: str = "",
    space: str = "nasbench201",
    objectives: CommaList = (),
    sampled: Flag = False,
    data: Path | None = None,
    population: Integer = 50,
    generations: Integer = 20,
    seeds: Integer = 5,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Compare searches in true values.

    All searches are restricted to the architectures of a table. A search by the model is compared with one
    by the numbers of parameters and MACs, and with searches that query true values. Prints the hypervolume of
    the front and of a shortlist of 100 architectures, relative to that of the full table.

    Args:
        labels: number of cells on which the model is fine-tuned first; 0 for none.
        chosen: choose these cells as `propose` does, instead of at random.
        model: a checkpoint directory, or the name of a shipped model; by default nas, or pretrained with
            --labels.
        space: the search space.
        objectives: objectives of the search, which have published reference values; by default accuracy and
            latencies of NAS-Bench-201.
        sampled: only searches that draw architectures of the table at random. Where the table is a small part
            of the space, variation hardly ever leads to one of them.
        data: table of the benchmark; by default architectures/SPACE.parquet of the data directory.
        population: architectures per generation.
        generations: number of generations.
        seeds: number of searches of each kind, with seeds from 0.
        out: file of JSON lines to which results are added; results that it has are not computed again.
        picture: draw hypervolume against evaluations: .png, .svg, .pdf or .jpg.
    """
    from nas_rlm.benchmarks.search.fronts import (
        KEY_NAMES,
        METHODS,
        OBJECTIVE_SETS,
        SearchEvaluation,
        SearchPlan,
        mean_and_deviation,
        search_benchmark,
    )
    from nas_rlm.plotting.hypervolume_curves import draw_hypervolume_curves, hypervolume_curves
    from nas_rlm.plotting.style import check_picture_path, save_figure

    check_minimum("--seeds", seeds, 1)
    check_minimum("--labels", labels, 0)
    if chosen and not labels:
        raise ValueError("--chosen without labels: expected --labels as well")
    if picture:
        check_picture_path(picture)
    if space != "nasbench201" and not objectives:
        raise ValueError(f"--space {space} without --objectives: expected those of the search")
    table = read_space_table(space, data)
    objective_sets = (tuple(objectives),) if objectives else OBJECTIVE_SETS
    name = model or ("pretrained" if labels else "nas")
    settings = {"table": table.name, "model": name, "labels": labels, "chosen": chosen}
    settings |= {"population": population, "generations": generations}
    results = Results(out, SearchEvaluation, settings, KEY_NAMES)
    rlm = load(name)

    def make_model(rows: Sequence[Row], objectives: Sequence[str], seed: int) -> RLM:
        return rlm.fine_tune(rows, objectives, seed=seed) if rows else rlm

    plan = SearchPlan(labels, chosen, objective_sets, population, generations, range(seeds), sampled)
    results.add_all(search_benchmark(table, make_model, plan, results.records, progress=True))
    shown = [" x ".join(names) for names in objective_sets]
    records = {
        key: evaluation for key, evaluation in results.records.items() if key[0] in shown and key[2] < seeds
    }
    front = mean_and_deviation(records, "relative_hypervolume")
    shortlist = mean_and_deviation(records, "shortlist_hypervolume")
    print(f"{'objectives':<58}{'method':<26}{'evaluations':>12}{'front':>16}{'shortlist':>16}")
    order = list(METHODS)
    for shown_objectives, method, count in sorted(front, key=lambda k: (k[0], order.index(k[1]), k[2])):
        cells = "".join(
            f"{100 * mean:.2f} ±{100 * deviation:.2f} %".rjust(16)
            for mean, deviation in (
                statistics[shown_objectives, method, count] for statistics in (front, shortlist)
            )
        )
        print(f"{shown_objectives:<58}{method:<26}{count:>12,}{cells}")
    if picture:
        curves = hypervolume_curves(front, order)
        figure = draw_hypervolume_curves(curves, order, "evaluations, or queried true values", log=True)
        save_figure(figure, picture)
        print(f"picture: {picture}")
