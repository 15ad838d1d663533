"""bench new-spaces: accuracies of spaces that a model has no labels of."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum, load, show_progress
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.extras import require


@bench.command(name="new-spaces")
def bench_new_spaces(
    *files: Path,
    labels: CommaList = ("0", "20", "100"),
    objectives: CommaList = ("accuracy",),
    rows: Integer = 2000,
    seeds: Integer = 5,
    model: str = "nas",
    out: Path | None = None,
) -> None:
    """Predict accuracies of a space from other spaces, without labels of the space and with a few.

    Each table is predicted with the model's surrogates of other spaces. Methods are costs (flops, params), a
    Gaussian process and boosted trees on the genome with costs (gene-gp, gene-trees), on cells graph features
    with a random forest (graf), and the surrogate that `predict` and `finetune --learn none` use.

    Args:
        files: parquet tables, each of one space.
        labels: numbers of labels.
        objectives: accuracies; those that a table lacks are left out.
        rows: maximum number of test rows of a table.
        seeds: number of draws of the labels, with seeds from 0.
        model: a checkpoint directory, or the name of a shipped model.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.new_spaces import NewSpace, SpaceResult, format_results
    from nas_rlm.data import read
    from nas_rlm.surrogates.registry import graph_surrogates

    check_minimum("--seeds", seeds, 1)
    check_minimum("--rows", rows, 2)
    if not files:
        raise ValueError("nothing to predict: expected parquet tables")
    for text in labels:
        if not text.isdecimal():
            raise ValueError(f"--labels has {text!r}: expected numbers such as 0,20,100")
    counts = [int(text) for text in labels]
    if any(counts):
        require("baselines", "the method gene-trees")
    results = Results(out, SpaceResult, {"model": model, "rows": rows}, ("case", "labels", "method", "seed"))
    surrogates = graph_surrogates(load(model).surrogates)
    shown: dict[tuple[str, int, str], list[SpaceResult]] = {}
    for file in show_progress(files, "spaces"):
        table = read(file)
        for objective in (name for name in objectives if name in table.objectives):
            case = f"{file.stem} {objective}"
            space = NewSpace(table, objective, surrogates, rows, max(counts))
            for count in counts:
                used_seeds = range(seeds if count else 1)  # without labels all seeds are the same
                finished = [(m, seed) for c, n, m, seed in results.records if (c, n) == (case, count)]
                for key, result in space.run(count, used_seeds, finished):
                    results.add((case, count, *key), result)
                for (c, n, method, seed), result in results.records.items():
                    if (c, n) == (case, count) and seed in used_seeds:
                        shown.setdefault((case, count, method), []).append(result)
    if not shown:
        raise ValueError(f"no table has {' or '.join(objectives)}")
    print(format_results(dict(sorted(shown.items(), key=lambda item: counts.index(item[0][1])))))
