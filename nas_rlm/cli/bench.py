"""bench: search, few labels, ablations, intervals, texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from cyclopts import App

import search_spaces
from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Flag, Many, Names, Whole, app, bar, load
from nas_rlm.files import check_target, read_text, write_text
from nas_rlm.utils.validation import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas_rlm.data import Row, Table
    from nas_rlm.rlm import RLM

FILES = {"nds_darts": "darts"}  # tables that are not called as their space

bench = app.command(App(name="bench", help="Measure the search, few labels, new devices, and the texts."))


@bench.command(name="search")
def bench_search(
    *,
    labels: Whole = 0,
    chosen: Flag = False,
    model: str = "",
    data: Path | None = None,
    population: Whole = 50,
    generations: Whole = 20,
    seeds: Whole = 5,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Judge searches of NAS-Bench-201 by its measurements, beside searches that may ask for these.

    Args:
        labels: random cells whose true values the model learns first; with 0 it is taken as it is.
        chosen: they are not random, but those that pay, as `propose` finds them.
        model: a checkpoint folder, or a shipped model's name; by default nas, or pretrained where it learns.
        data: the benchmark's table; by default architectures/nasbench201.parquet of the data folder.
        population: architectures a generation.
        generations: rounds of evaluation.
        seeds: so many searches of each kind, with seeds from 0.
        out: a file of JSON lines to which each result is added; what is there already is not done again.
        picture: hypervolume against evaluations: .png, .svg, .pdf or .jpg.
    """
    from nas_rlm.benchmarks.search import KEYS, METHODS, SETS, Judgement, contest, draw, means
    from nas_rlm.plotting.style import check_picture_path, save_figure

    for name, value, least in (("seeds", seeds, 1), ("labels", labels, 0)):
        if value < least:
            raise ValueError(f"--{name} is {value}, expected at least {least}")
    if chosen and not labels:
        raise ValueError("--chosen labels are none: expected --labels as well")
    if picture:
        check_picture_path(picture)
    table = table_of("nasbench201", data)
    name = model or ("pretrained" if labels else "nas")
    size = {"population": population, "generations": generations}
    setting = {"table": table.name, "model": name, "labels": labels, "chosen": chosen, **size}
    results = Results(out, Judgement, setting, KEYS)
    rlm = load(name)

    def model_of(rows: Sequence[Row], objectives: Sequence[str], seed: int) -> RLM:
        return rlm.fine_tune(rows, objectives, seed=seed) if rows else rlm

    every = contest(
        table, model_of, labels, chosen, SETS, **size, seeds=range(seeds), done=results.found, progress=True
    )
    for key, judgement in every:
        results.add(key, judgement)
    found = {key: one for key, one in results.found.items() if key[2] < seeds}
    shares, shortlists = (means(found, name) for name in ("share", "share_shortlist"))
    print(f"{'objectives':<58}{'method':<20}{'evaluations':>12}{'front':>16}{'shortlist':>16}")
    for objectives, method, evaluations in sorted(shares, key=lambda k: (k[0], [*METHODS].index(k[1]), k[2])):
        told = [
            f"{100 * mean:.2f} ±{100 * spread:.2f} %"
            for mean, spread in (s[objectives, method, evaluations] for s in (shares, shortlists))
        ]
        print(f"{objectives:<58}{method:<20}{evaluations:>12,}{told[0]:>16}{told[1]:>16}")
    if picture:
        save_figure(draw(found), picture)
        print(f"picture: {picture}")


@bench.command(name="references")
def bench_references(*, model: str = "nas", count: Whole = 1000, seed: Whole = 0, out: Path) -> None:
    """Give a reference value to every objective of every space that has none, from random architectures.

    Args:
        model: what tells accuracies and latencies: a checkpoint folder, or a shipped model's name.
        count: architectures of each space.
        seed: of the draw.
        out: a JSON file; what it holds stays as it is.
    """
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.search.objectives import ObjectivePredictor
    from nas_rlm.search.reference_points import propose_reference_values

    check_target(out)
    found = json.loads(read_text(out, "reference values")) if out.exists() else {}
    rlm = load(model)
    for name in bar(search_spaces.names(), "references"):
        seen = rlm.trained_on[name].objectives if name in rlm.trained_on else ()
        known = [o for o in rlm.objectives if o in seen and o.split("/")[0] in ("accuracy", "latency")]
        new = [o for o in (*known, *EXACT_OBJECTIVES) if o not in found.get(name, {})]
        if new:
            told = propose_reference_values(search_spaces.get(name), ObjectivePredictor(rlm), new, count, seed)
            found[name] = {**found.get(name, {}), **told}
    write_text(out, json.dumps(found, indent=1) + "\n")
    print(f"reference values of {len(found)} spaces: {out}")


@bench.command(name="few-shot")
def bench_few_shot(
    *,
    space: str,
    labels: Whole,
    seeds: Whole = 5,
    model: str = "pretrained",
    data: Path | None = None,
    objective: str = "accuracy",
    others: Names = (),
    methods: Names = (),
    out: Path | None = None,
) -> None:
    """Learn from a few random architectures, rank all others of a table; every method on the same splits.

    Args:
        space: whose table.
        labels: so many architectures are known; 0 with --others, whose labels are all that is known then.
        seeds: so many splits, with seeds from 0.
        model: a model that has seen none of the labels: a checkpoint folder, or a shipped model's name.
        data: the table; by default architectures/SPACE.parquet of the data folder.
        objective: what to rank by.
        others: spaces whose tables, in the data folder, are labelled in full: surrogates on them advise.
        methods: some of those that the whole table shows; by default all.
        out: a file of JSON lines to which each result is added; what is there already is not done again.
    """
    from nas_rlm.benchmarks.few_shot import UNLABELLED, Score, few_shot, methods_of
    from nas_rlm.surrogates.fitting import fit_graph_surrogates
    from nas_rlm.surrogates.graph_surrogate import ACCURACY

    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}, expected at least 1")
    seeds = seeds if labels else 1  # without labels all seeds are the same
    known = search_spaces.get(space).name
    table = _measured(known, objective, data)
    if known in others:
        raise ValueError(f"--others has {known} itself, whose labels are asked for")
    if others and objective != ACCURACY:
        raise ValueError(f"--others tell of {ACCURACY} alone, not of {objective}")
    setting = {"space": known, "labels": labels, "objective": objective}
    setting |= {"others": sorted(set(others)), "model": model, "table": table.name}
    results = Results(out, Score, setting, ("method", "seed"))
    rlm = load(model)
    rlm.surrogates = dict(rlm.surrogates)
    for other in others:
        found = fit_graph_surrogates(_measured(search_spaces.get(other).name, ACCURACY).rows, [ACCURACY])
        if not found:
            raise ValueError(f"--others has {other}, which has too few labels to tell of another space")
        rlm.surrogates |= found
    offered = methods_of(table, rlm, objective)
    for name in methods:
        if name not in offered:
            raise ValueError(f"there is no method {name!r} for {known}; {suggest(name, offered)}")
    default = offered if labels else [name for name in offered if name in UNLABELLED]
    chosen = {name: offered[name] for name in methods or default}
    tried = few_shot(table, labels, chosen, range(seeds), objective, results.found, progress=True)
    for name, seed, score in tried:
        results.add((name, seed), score)
    scores = {name: [results.found[name, seed] for seed in range(seeds)] for name in chosen}
    measured = len(table.where_measured(objective))
    print(f"{measured:,} rows of {known}, {labels} labels, seeds 0 to {seeds - 1}: mean and deviation")
    print(f"{'method':<18}{'Kendall':>15}{'Spearman':>15}{'seconds':>9}")
    for name, of_seeds in scores.items():
        ranks = ""
        for figure in ("kendall", "spearman"):
            values = [getattr(s, figure) for s in of_seeds]
            ranks += f"{np.mean(values):>9.3f} ±{np.std(values):.3f}"
        print(f"{name:<18}{ranks}{np.mean([s.seconds for s in of_seeds]):>9.1f}")


def _measured(space: str, objective: str, data: Path | None = None) -> Table:
    """The rows of a space in its table, or in another, of which some have the objective."""
    table = table_of(space, data)
    if len(table.where_measured(objective)) == 0:
        raise ValueError(f"{table.name} has no row of {space} with {objective}")
    return table


def table_of(space: str, data: Path | None) -> Table:
    """The rows of a space in its table, or in another."""
    from nas_rlm.data import data_directory, read

    table = read(data or data_directory() / "architectures" / f"{FILES.get(space, space)}.parquet")
    table.rows = [row for row in table.rows if row.space == space]
    return table


@bench.command(name="ablation")
def bench_ablation(name: str, *, seeds: Whole = 2, out: Path | None = None) -> None:
    """Vary one choice, all else equal: heads, numbers, tokenizer, length, text, pretraining or joint.

    Ablations share some trials, which are run once where they share --out.

    Args:
        name: of the ablation.
        seeds: trainings of each, with seeds from 0.
        out: a file of JSON lines to which each outcome is added; what is there already is not done again.
    """
    from nas_rlm.benchmarks.ablations import ABLATIONS, KEYS, Outcome, run

    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}, expected at least 1")
    if name not in ABLATIONS:
        raise ValueError(f"there is no ablation {name!r}; {suggest(name, ABLATIONS)}")
    results = Results(out, Outcome, {}, KEYS)
    for key, outcome in run(name, range(seeds), results.found):
        results.add(key, outcome)
        print(f"{', '.join(map(str, key))}: {outcome.seconds:.0f} seconds", file=sys.stderr)
    print(f"{'trial':<22}{'seed':>5}  {'space':<14}{'tokens':>8}{'Spearman':>10}{'Kendall':>9}{'seconds':>9}")
    for (ablation, trial, seed, space), o in results.found.items():
        if ablation == name and seed < seeds:
            ranks = f"{o.tokens:>8,.0f}{o.spearman:>10.3f}{o.kendall:>9.3f}{o.seconds:>9.0f}"
            print(f"{trial:<22}{seed:>5}  {space:<14}{ranks}")


@bench.command(name="reliability")
def bench_reliability(
    *,
    out: Path,
    model: str = "nas",
    data: Path | None = None,
    objectives: Names = (),
    validation: Flag = False,
) -> None:
    """Count what a model's intervals hold, and how it errs where it is certain and where it is not.

    Prints for each objective the share of true values in intervals of 20 to 90 %, the median relative error
    of the half with the narrower intervals and of the other half, and Spearman of its errors with those of
    accuracy.

    Args:
        out: a picture: .png, .svg, .pdf or .jpg.
        model: a checkpoint folder, or the name of a shipped model.
        data: a table of one space; by default the held-out rows of the shipped model's tables.
        objectives: what to judge; by default accuracies, and the latencies of three devices a table.
        validation: without --data, the rows that told the model's temperatures instead of the test rows.
    """
    from nas_rlm.benchmarks import reliability as counted
    from nas_rlm.benchmarks.evaluation import sides, whole
    from nas_rlm.plotting.style import check_picture_path, save_figure

    check_picture_path(out)
    rlm = load(model)
    rlm.check(objectives or rlm.objectives)
    found = []
    asked = [whole(data, validation)] if data else [held for _, held in sides(rlm, validation)]
    for table in asked:
        spaces = sorted({row.space for row in table.rows})
        if len(spaces) > 1:
            raise ValueError(f"{table.name} has rows of {', '.join(spaces)}; expected one space")
        known = [o for o in table.objectives if o in rlm.objectives and len(table.where_measured(o)) > 1]
        latencies = [o for o in known if o.startswith("latency/")][:3]
        some = [o for o in known if o.startswith("accuracy")] + latencies
        wanted = [o for o in objectives if o in known] if objectives else some
        found += counted.reliability(rlm, table, wanted) if wanted else []
    if not found:
        raise ValueError(f"no table has two rows with {', '.join(objectives) or 'what the model knows'}")
    intervals = "".join(f"{i:>7.0%}" for i in counted.INTERVALS)
    print(
        f"{'table':<13}{'objective':<34}{'rows':>6}{intervals}{'certain':>10}{'uncertain':>11}{'shared':>8}"
    )
    for r in found:
        held = "".join(f"{share:>7.2f}" for share in r.held)
        shared = f"{r.shared:>8.2f}" if r.shared is not None else ""
        print(
            f"{r.table:<13}{r.objective:<34}{r.rows:>6}{held}{r.certain:>10.2%}{r.uncertain:>11.2%}{shared}"
        )
    save_figure(counted.draw(found), out)
    print(f"picture: {out}")


@bench.command(name="text")
def bench_text(
    *, model: str = "nas", space: Names = (), data: Many = (), count: Whole = 1000, seed: Whole = 0
) -> None:
    """Measure tokens a network, and networks a second from genotype to token ids on one core.

    As many other networks are read first, since what spaces repeat is looked up.

    Args:
        model: whose tokenizer counts: a checkpoint folder, or the name of a shipped model.
        space: names of spaces; by default all.
        data: tables, instead of spaces: tokens of their texts, programs or networks.
        count: networks of each, or rows.
        seed: of the networks, or of the rows that are drawn.
    """
    from nas_rlm.benchmarks.tokens import table_tokens, text_speed
    from nas_rlm.data import read

    for name, value, least in (("--count", count, 1), ("--seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}, expected at least {least}")
    if space and data:
        raise ValueError("--space and --data: give one of them")
    read_tables = [read(Path(path)) for path in data]
    found = [] if data else [search_spaces.get(name) for name in space or search_spaces.names()]
    tokenizer = load(model).tokenizer
    print(f"{'of':<18}{'median tokens':>15}{'mean':>8}{'most':>8}{'networks/s':>12}")
    for table in read_tables:
        lengths = table_tokens(table, tokenizer, count, seed)
        figures = f"{np.median(lengths):>15,.0f}{np.mean(lengths):>8,.0f}{max(lengths):>8,}"
        print(f"{table.name:<18}{figures}")
    for s in bar(found, "text"):
        speed = text_speed(s, tokenizer, count, seed)
        figures = f"{speed.tokens:>15,.0f}{speed.mean:>8,.0f}{speed.most:>8,}{speed.per_second:>12,.0f}"
        print(f"{s.name:<18}{figures}")


@bench.command(name="foreign")
def bench_foreign(*, model: str = "nas", network: Names = ()) -> None:
    """Measure tokens of networks that torch exports, flat and with repeats outlined.

    Args:
        model: whose tokenizer counts: a checkpoint folder, or the name of a shipped model.
        network: names of reference networks; by default all.
    """
    from nas_rlm.benchmarks.tokens import foreign_tokens
    from nas_rlm.data.reference_networks import NETWORKS

    for name in network:
        if name not in NETWORKS:
            raise ValueError(f"there is no reference network {name!r}; {suggest(name, NETWORKS)}")
    tokenizer = load(model).tokenizer
    print(f"{'network':<14}{'exporter':<13}{'operators':>10}{'flat':>8}{'outlined':>10}{'unknown':>9}")
    for name in bar(network or list(NETWORKS), "foreign"):
        for found in foreign_tokens(name, tokenizer):
            counts = f"{found.operators:>10,}{found.flat:>8,}{found.outlined:>10,}{found.unknown:>9,}"
            print(f"{name:<14}{found.exporter:<13}{counts}")
