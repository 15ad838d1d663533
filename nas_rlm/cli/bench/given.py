"""bench given: predictions from few labels where other numbers of each network are measured."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.extras import require


@bench.command(name="given")
def bench_given(
    file: Path,
    *,
    given: CommaList,
    objective: str = "accuracy",
    labels: CommaList = ("20", "78", "100"),
    rows: Integer = 1500,
    seeds: Integer = 5,
    out: Path | None = None,
) -> None:
    """Predict an objective from few labels, with and without a measured number such as an early accuracy.

    Methods are the given number itself (given-alone), ridge regression on it and the logarithms of FLOPs and
    parameters (ridge), the surrogate on graph features (without), and the surrogate that is conditioned on
    the given number (with).

    Args:
        file: a parquet table of one space.
        given: names of given numbers, each of which is measured by itself.
        objective: the objective to predict.
        labels: numbers of labels.
        rows: maximum number of test rows.
        seeds: number of draws of the labels, with seeds from 0.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.given_numbers import METHODS, GivenCase, GivenResult, format_results
    from nas_rlm.data import read
    from nas_rlm.utils.validation import suggest

    check_minimum("--seeds", seeds, 1)
    check_minimum("--rows", rows, 2)
    for text in labels:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"--labels has {text!r}: expected numbers such as 20,78,100")
    require("baselines", "the method ridge")
    table, counts = read(file), [int(text) for text in labels]
    for name in (objective, *given):
        if name not in table.objectives:
            raise ValueError(f"{file} has no {name!r}; {suggest(name, table.objectives)}")
    if objective in given:
        raise ValueError(f"--given has {objective}, which is predicted: leave it out")
    settings = {"table": table.name, "objective": objective, "rows": rows}
    results = Results(out, GivenResult, settings, ("labels", "given", "method", "seed"))
    case = GivenCase(table, objective, given, rows, max(counts))
    for count in counts:
        finished = [key[1:] for key in results.records if key[0] == count]
        for key, result in case.run(count, range(seeds), finished):
            results.add((count, *key), result)
    shown = {
        (f"{table.name}, {name}", count, method): [
            results.records[count, name, method, seed] for seed in range(seeds)
        ]
        for name in given
        for count in counts
        for method in METHODS
    }
    print(format_results(shown))
