"""bench programs: predictions of programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.benchmarks.ranking import ProblemRankings


@bench.command(name="programs")
def bench_programs(
    *,
    table: str,
    split: str = "program",
    seeds: Integer = 5,
    methods: CommaList = (),
    recipe: str = "programs",
    models: Path = Path("runs/programs"),
    out: Path | None = None,
    picture: Path | None = None,
    objective: str = "",
    rows: Integer = 0,
    labels: Integer = 0,
) -> None:
    """Compare models of programs with baselines.

    Models are trained on the training rows of a table, and evaluated on the test rows. If programs have
    several objectives, rankings by all of them are compared as well, within the problems of each language:
    rho and tau are those of positions in a ranking, and top-1 is how often the first program is on the front
    of the measured values.

    Args:
        table: a table of the recipe, such as leetcode_python.
        split: program, where programs of known problems are predicted; problem, where all programs of a
            problem are in the same subset; or source, where programs by people are predicted of whom none is
            known, without network and rlm.
        seeds: number of splits and trainings, with seeds from 0.
        methods: methods to compare: length, loops, size (of the input in the first line), neighbours,
            other-languages (the median of solutions of the same problem), ngrams (a ridge regression for each
            language), surrogate (of all languages), surrogate-alone (of each), surrogate-mixed (for known and
            for new problems, as in shipped models), surrogate-transfer (the same with shipped surrogates of
            other tables, as in finetune), network, and rlm (network and surrogate combined); by default all.
        recipe: recipe of the training: a YAML file, or the name of a shipped recipe.
        models: directory of the trained models; interrupted trainings continue.
        out: file of JSON lines to which results are added; results that it has are not computed again.
        picture: draw how well models rank programs within problems: .png, .svg, .pdf or .jpg.
        objective: objective of the picture; by default the table's first.
        rows: use at most so many rows of each language, drawn at random; 0 for all.
        labels: train on so many rows, drawn at random from the training rows, without network and rlm; 0 for
            all.
    """
    from nas_rlm.benchmarks.programs import (
        KEY_NAMES,
        METHODS,
        SOURCE,
        SPLITS,
        ProgramResult,
        problem_rankings,
        programs_benchmark,
    )
    from nas_rlm.data import tables
    from nas_rlm.plotting.style import check_picture_path
    from nas_rlm.training.recipe import read_recipe

    if split not in SPLITS:
        raise ValueError(f"--split is {split!r}; {suggest(split, SPLITS)}")
    check_minimum("--seeds", seeds, 1)
    check_minimum("--rows", rows, 0)
    check_minimum("--labels", labels, 0)
    if labels and picture:
        raise ValueError("--picture is drawn with a model that was trained on all rows: expected no --labels")
    if split == SOURCE and (seeds > 1 or picture):
        raise ValueError("--split source has one split and no training: expected --seeds 1, and no --picture")
    for name in methods:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}; {suggest(name, METHODS)}")
    if picture:
        check_picture_path(picture)
    parsed_recipe = read_recipe(recipe)
    path = tables.data_directory() / parsed_recipe.for_table(table).tables[0].path
    if objective and objective not in (measured := tables.read(path).objectives):
        raise ValueError(f"{table} has no {objective!r}; {suggest(objective, measured)}")
    used = f"{table}, at most {rows} rows of a space" if rows else table
    used += f", {labels} labels" if labels else ""
    results = Results(out, ProgramResult, {"table": used, "recipe": recipe}, KEY_NAMES)
    selected = methods or METHODS
    new_results = programs_benchmark(
        path, parsed_recipe, models, split, range(seeds), selected, results.records, rows, labels, True
    )
    results.add_all(new_results)
    records = {
        key: result
        for key, result in results.records.items()
        if key[0] == split and key[2] in selected and key[3] < seeds
    }
    print(f"{used} by {split}, mean and deviation of {counted(seeds, 'seed')}")
    header = f"{'Spearman':>14}{'Kendall':>14}{'coverage':>10}{'rho>.5':>8}{'top-1':>7}{'random':>8}"
    print(f"{'objective':<22}{'method':<16}{header}")
    for name, method in dict.fromkeys((key[1], key[2]) for key in records):
        group = [result for key, result in records.items() if key[1:3] == (name, method)]
        values = {
            field: np.array([getattr(result, field) for result in group])
            for field in ("spearman", "kendall", "coverage", "good_share", "top1", "random_top1")
        }
        correlations = "".join(
            f"{values[field].mean():>8.3f} ±{values[field].std():.3f}" for field in ("spearman", "kendall")
        )
        coverage, good_share, top1, random_top1 = [v.mean() for v in values.values()][2:]
        shares = f"{coverage:>10.2f}{good_share:>8.2f}{top1:>7.2f}{random_top1:>8.2f}"
        print(f"{name:<22}{method:<16}{correlations}{shares}")
        if any(result.language_spearman or result.language_kendall for result in group):
            within = {
                field: np.array([getattr(result, field) for result in group])
                for field in ("language_spearman", "language_kendall")
            }
            means = "".join(f"{v.mean():>8.3f} ±{v.std():.3f}" for v in within.values())
            print(f"{'  mean of languages':<38}{means}")
    if picture:
        drawn, rankings = problem_rankings(path, parsed_recipe, models, split, range(seeds), objective)
        _draw(rankings, f"{drawn} of {table}, by {split}", picture)


def _draw(rankings: ProblemRankings, title: str, picture: Path) -> None:
    """Draw rankings within problems."""
    from nas_rlm.benchmarks.ranking import GOOD_SPEARMAN, MIN_PROGRAMS, TOP_SHARES
    from nas_rlm.plotting.problem_ranking import ProblemRankingInfo, bin_top1, draw_problem_ranking
    from nas_rlm.plotting.style import save_figure

    info = ProblemRankingInfo(
        title=title,
        correlations=rankings.correlations,
        good_spearman=GOOD_SPEARMAN,
        bins=bin_top1(rankings.num_programs, rankings.top1, rankings.random_top1, MIN_PROGRAMS),
        shares=TOP_SHARES,
        top_shares=rankings.top_shares,
        random_top_shares=rankings.random_top_shares,
    )
    save_figure(draw_problem_ranking(info), picture)
    print(f"picture: {picture}")
