"""bench measure: policies that spend measurements on a new device in a search."""

from __future__ import annotations

from pathlib import Path

import search_spaces
from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, read_space_table
from nas_rlm.utils.validation import suggest

MIN_BUDGET = 10


@bench.command(name="measure")
def bench_measure(
    *,
    space: str = "nasbench201",
    devices: CommaList = (),
    budgets: CommaList = ("20", "40", "60", "100"),
    seeds: Integer = 5,
    population: Integer = 50,
    generations: Integer = 20,
    policies: CommaList = ("active search", "front once", "random"),
    model: str = "nas",
    data: Path | None = None,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Compare policies that measure networks during a search.

    The policies are: active search, which is search --measure; front once, which measures an initial design
    and then the predicted front; and random. A table stands for the device. Prints the hypervolume of
    accuracy and latency, relative to that of the full table.

    Args:
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own.
        devices: devices that are new in turn, whose surrogates are not used; by default the six new devices
            of HELP.
        budgets: numbers of measurements.
        seeds: number of searches of each kind, with seeds from 0.
        population: architectures per generation.
        generations: generations of each search.
        policies: those to compare.
        model: a checkpoint directory, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
        out: file of JSON lines to which results are added; results that it has are not computed again.
        picture: draw hypervolume against measurements: .png, .svg, .pdf or .jpg.
    """
    from nas_rlm.benchmarks.devices import LARGEST_BATCH, TARGETS
    from nas_rlm.benchmarks.search.measured_search import (
        KEY_NAMES,
        POLICIES,
        MeasuredSearchPlan,
        MeasuredSearchResult,
        mean_and_deviation,
        measured_search_benchmark,
    )
    from nas_rlm.plotting.hypervolume_curves import draw_hypervolume_curves, hypervolume_curves
    from nas_rlm.plotting.style import check_picture_path, save_figure

    sizes = [int(b) if b.isdecimal() else 0 for b in budgets]
    if not sizes or min(sizes) < MIN_BUDGET:
        raise ValueError(
            f"--budgets is {','.join(budgets)}: expected whole numbers from {MIN_BUDGET} on, such as 20,40"
        )
    for policy in policies:
        if policy not in POLICIES:
            raise ValueError(f"there is no policy {policy!r}; {suggest(policy, POLICIES)}")
    check_minimum("--seeds", seeds, 1)
    check_minimum("--population", population, 2)
    if picture:
        check_picture_path(picture)
    space_name = search_spaces.get(space).name
    table = read_space_table(space_name, data)
    default_devices = [name.format(LARGEST_BATCH.get(space_name, "1")) for name in TARGETS]
    targets = [f"latency/{name.removeprefix('latency/')}" for name in devices or default_devices]
    for name in targets:
        if name not in table.objectives:
            raise ValueError(f"{table.name} has no {name}; {suggest(name, table.objectives)}")
    settings: dict[str, object] = {"space": space_name, "table": table.name, "model": model}
    settings |= {"population": population, "generations": generations}
    results = Results(out, MeasuredSearchResult, settings, KEY_NAMES)
    plan = MeasuredSearchPlan(targets, sizes, range(seeds), population, generations, policies)
    results.add_all(measured_search_benchmark(load(model), table, plan, results.records, progress=True))
    records = {
        key: result
        for key, result in results.records.items()
        if key[0] in targets and key[1] in policies and key[2] in sizes and key[3] < seeds
    }
    front = mean_and_deviation(records, "relative_hypervolume")
    measured = mean_and_deviation(records, "measured_hypervolume")
    print(f"{len(targets)} new devices of {space_name}, seeds 0 to {seeds - 1}: mean and deviation")
    print(f"{'policy':<16}{'budget':>7}{'front':>18}{'measured only':>18}{'confirmed':>11}")
    for budget in sizes:
        for policy in policies:
            cells = "".join(
                f"{mean:>10.4f} ±{deviation:.4f}"
                for mean, deviation in (front[policy, budget], measured[policy, budget])
            )
            group = [result for key, result in records.items() if key[1:3] == (policy, budget)]
            front_size = max(1, sum(result.front_size for result in group))
            confirmed = sum(result.num_confirmed for result in group) / front_size
            print(f"{policy:<16}{budget:>7}{cells}{confirmed:>11.0%}")
    if picture:
        titles = {"front, measured or predicted": front, "measured networks only": measured}
        statistics = {(title, *key): value for title, s in titles.items() for key, value in s.items()}
        curves = hypervolume_curves(statistics, policies)
        save_figure(draw_hypervolume_curves(curves, policies, "measurements"), picture)
        print(f"picture: {picture}")
