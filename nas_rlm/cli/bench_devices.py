"""bench: new devices, from few measurements, and what measurements are worth in a search."""

from __future__ import annotations

from pathlib import Path

import search_spaces
from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Names, Whole, load
from nas_rlm.cli.bench import bench, table_of
from nas_rlm.utils.validation import suggest


@bench.command(name="devices")
def bench_devices(
    *,
    space: str,
    samples: Whole = 20,
    seeds: Whole = 5,
    split: str = "one-out",
    model: str = "nas",
    data: Path | None = None,
    again: Path | None = None,
    out: Path | None = None,
) -> None:
    """Learn a new device from a few networks, and tell how fast others are.

    Args:
        space: whose table.
        samples: networks that are measured on the new device, of 1,000 that could be.
        seeds: draws and choices of them, with seeds from 0.
        split: one-out, each device in turn is new and all others are known; or help, the nine known and six
            new devices of HELP and NASFLAT; of both a tenth of the networks is asked, unknown on any device;
            or new, devices that the model does not know, where all other networks of the table are asked; or
            another space, which alone tells of devices: here each of them is new.
        model: whose surrogates know the others: a checkpoint folder, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data folder.
        again: a table in which some of the networks were measured once more: how well the two agree.
        out: a file of JSON lines to which each result is added; what is there already is not done again.
    """
    from nas_rlm.benchmarks.devices import Score, Transfer, agreement, summary
    from nas_rlm.surrogates.graph_surrogate import LATENCY_PREFIX
    from nas_rlm.surrogates.registry import graph_surrogates

    is_across = split not in ("one-out", "help", "new")
    if is_across and split not in search_spaces.names():
        raise ValueError(f"--split is {split!r}: expected one-out, help, new, or the name of another space")
    for name, value, least in (("--seeds", seeds, 1), ("--samples", samples, 10)):
        if value < least and not (is_across and name == "--samples" and value == 0):
            none = ", or 0" if is_across and name == "--samples" else ""
            raise ValueError(f"{name} is {value}, expected at least {least}{none}")
    known = search_spaces.get(space).name
    table, second = table_of(known, data), table_of(known, again) if again else None
    transfer = Transfer(table, held=0 if split == "new" else 0.1)
    teller = search_spaces.get(split).name if is_across else known
    surrogates = graph_surrogates(load(model).surrogates).get(teller, ())
    able = [n for one in surrogates for n in one.objectives if n.startswith(LATENCY_PREFIX)]
    sources, targets = transfer.split() if split == "help" else (able, transfer.devices)
    if split == "new":
        targets = [name for name in transfer.devices if name not in able]
    elif is_across:
        targets = [name for name in transfer.devices if name in able]
        if teller == known or not targets:
            raise ValueError(f"{model} knows no device of {table.name} from {teller} as another space")
    for name in sources if split == "help" else ():
        if name not in able:
            raise ValueError(f"{model} has no expert on {name} of {known}; {suggest(name, able)}")
    if len(able) < 2:
        raise ValueError(f"{model} has no surrogates on two latencies of {teller} at least")
    seeds = seeds if samples else 1  # without samples all seeds are the same
    others = [n for one in surrogates for n in one.objectives if n not in sources]
    surrogates = [one for e in surrogates if (one := e.without(others))]
    setting = {"space": known, "samples": samples, "split": split, "model": model, "table": table.name}
    results = Results(out, Score, setting, ("target", "selection", "seed"))
    found = transfer.scores({teller: surrogates}, targets, samples, range(seeds), results.found, progress=True)
    for target, selection, seed, score in found:
        results.add((target, selection, seed), score)
    print(f"{samples} samples of a new device, {len(transfer.asked):,} networks of {known}")
    print(summary(results.found, targets, range(seeds)))
    if second is not None:
        for name in targets:
            count, rank, apart = agreement(table, second, name)
            if count > 1:
                print(f"{name} measured twice: {count} networks, Spearman {rank:.3f}, {apart:.1%} apart")


@bench.command(name="measure")
def bench_measure(
    *,
    space: str = "nasbench201",
    devices: Names = (),
    budgets: Names = ("20", "40", "60", "100"),
    seeds: Whole = 5,
    population: Whole = 50,
    generations: Whole = 20,
    model: str = "nas",
    data: Path | None = None,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Search on a new device with few measurements, by three policies; a table tells what is true.

    The policies are search --measure itself; measuring the first networks, and the predicted front once; and
    measuring at random. Shares are of the hypervolume that the whole table has for accuracy and latency.

    Args:
        space: whose table.
        devices: each new in turn, of which the model's surrogates are not asked; by default the six of HELP.
        budgets: of measurements.
        seeds: searches of each, with seeds from 0.
        population: architectures a generation.
        generations: rounds of evaluation in each search.
        model: a checkpoint folder, or the name of a shipped model.
        data: the table; by default architectures/SPACE.parquet of the data folder.
        out: a file of JSON lines to which each result is added; what is there already is not done again.
        picture: hypervolume against measurements: .png, .svg, .pdf or .jpg.
    """
    from nas_rlm.benchmarks.devices import LARGEST, TARGETS
    from nas_rlm.benchmarks.measuring import POLICIES, Judgement, draw, judged, means
    from nas_rlm.plotting.style import check_picture_path, save_figure

    sizes = [int(b) if b.isdecimal() else 0 for b in budgets]
    if not sizes or min(sizes) < 10:
        raise ValueError(
            f"--budgets is {','.join(budgets)}: expected whole numbers from 10 on, such as 20,40"
        )
    for name, value, least in (("--seeds", seeds, 1), ("--population", population, 2)):
        if value < least:
            raise ValueError(f"{name} is {value}, expected at least {least}")
    if picture:
        check_picture_path(picture)
    known = search_spaces.get(space)
    table = table_of(known.name, data)
    usual = [name.format(LARGEST.get(known.name, "1")) for name in TARGETS]
    targets = [f"latency/{name.removeprefix('latency/')}" for name in devices or usual]
    for name in targets:
        if name not in table.objectives:
            raise ValueError(f"{table.name} has no {name}; {suggest(name, table.objectives)}")
    size = {"population": population, "generations": generations}
    setting = {"space": known.name, "table": table.name, "model": model, **size}
    results = Results(out, Judgement, setting, ("target", "policy", "budget", "seed"))
    every = judged(
        load(model), table, targets, sizes, range(seeds), **size, done=results.found, progress=True
    )
    for *key, found in every:
        results.add(key, found)
    asked = {
        key: one
        for key, one in results.found.items()
        if key[0] in targets and key[2] in sizes and key[3] < seeds
    }
    print(f"{len(targets)} new devices of {known.name}, seeds 0 to {seeds - 1}: mean and deviation")
    print(f"{'policy':<16}{'budget':>7}{'front':>17}{'measured alone':>17}{'confirmed':>11}")
    shares = [means(asked, name) for name in ("share", "share_measured")]
    for budget in sizes:
        for policy in POLICIES:
            told = "".join(
                f"{mean:>10.4f} ±{spread:.4f}"[:17].rjust(17)
                for mean, spread in (s[policy, budget] for s in shares)
            )
            some = [one for key, one in asked.items() if key[1:3] == (policy, budget)]
            confirmed = sum(one.confirmed for one in some) / max(1, sum(one.front for one in some))
            print(f"{policy:<16}{budget:>7}{told}{confirmed:>11.0%}")
    if picture:
        save_figure(draw(asked), picture)
        print(f"picture: {picture}")
