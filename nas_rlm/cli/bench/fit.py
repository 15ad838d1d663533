"""bench fit: models that are fitted to any texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nas_rlm.cli.app import CommaList, Integer, check_minimum
from nas_rlm.cli.bench.app import bench, check_methods
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.benchmarks.text.fitting import TextResult


@bench.command(name="fit")
def bench_fit(
    *,
    task: str = "table",
    rows: Integer = 300,
    seeds: Integer = 3,
    methods: CommaList = (),
    epochs: Integer = 0,
    out: Path | None = None,
) -> None:
    """Fit models to texts with known structure, and compare them with simple methods.

    Args:
        task: identity (y = x as text), configurations (20 keys of which 5 matter), table (Friedman's first
            function and a category, as JSON), diabetes (scikit-learn's data, as JSON), links, recipes, roman
            (numerals), polynomials, sentences, bits, times (of day), nested (configurations), proteins or
            containers (Dockerfiles).
        rows: number of rows that each method learns; 300 others are predicted.
        seeds: number of draws of rows and trainings, with seeds from 0.
        methods: methods to compare: rlm, network, surrogate, both, ngrams, median, tf-idf (ridge regression
            on TF-IDF of characters) and trees (for the first four tasks); by default all. Without network
            and both, no network is trained.
        epochs: maximum number of epochs of the network; 0 for the default.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.results import Results
    from nas_rlm.benchmarks.text.fitting import KEY_NAMES, METHODS, TextResult, texts_benchmark
    from nas_rlm.benchmarks.text.tasks import TASKS

    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}; {suggest(task, TASKS)}")
    check_minimum("--rows", rows, 60)
    check_minimum("--seeds", seeds, 1)
    check_minimum("--epochs", epochs, 0)
    check_methods(methods, METHODS)
    results = Results(out, TextResult, {"epochs": epochs}, KEY_NAMES)
    selected = methods or METHODS
    results.add_all(texts_benchmark(task, rows, range(seeds), selected, results.records, epochs or None))
    print(f"{task}, {counted(rows, 'row')}, {counted(seeds, 'seed')}: mean (worst)")
    print(f"{'method':<10}{'Spearman':>16}{'Kendall':>16}{'MAE':>18}{'coverage':>19}{'CPU s':>8}")
    for name in selected:
        group = [r for key, r in results.records.items() if key[:3] == (task, rows, name) and key[3] < seeds]
        if group:
            print(_row(name, group))


def _row(method: str, group: Sequence[TextResult]) -> str:
    """Return the line of a method: means over seeds, and the worst; of the coverage, the extremes."""
    values = {name: np.array([getattr(r, name) for r in group]) for name in vars(group[0])}
    spearman, kendall, mae, covered = (values[n] for n in ("spearman", "kendall", "mae", "coverage"))
    correlations = "".join(f"{v.mean():>8.3f} ({v.min():.3f})" for v in (spearman, kendall))
    errors = f"{mae.mean():>9.4g} ({mae.max():.4g})"
    shares = f"{covered.mean():.1%} ({covered.min():.0%}-{covered.max():.0%})"
    return f"{method:<10}{correlations}{errors:>18}{shares:>20}{values['seconds'].mean():>8.0f}"
