"""bench fuzz: mutated ONNX files, which may neither crash nor hang the reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nas_rlm.cli.app import Integer, check_minimum, show_progress
from nas_rlm.cli.bench.app import bench

MAX_LISTED = 10  # failures


@bench.command(name="fuzz")
def bench_fuzz(
    *files: Path, count: Integer = 10_000, seed: Integer = 0, limit: float = 10.0, out: Path | None = None
) -> None:
    """Read mutated ONNX files, and count crashes, hangs and exceptions other than clear errors.

    Small networks of the search spaces and of other operators are changed as bytes and as graphs. Each file
    is converted to text, tokens and graph features in a worker process. The exit code is 1 if one of them
    crashed, took more than 2 GB or the limit of time, or raised an exception that is no clear error.

    Args:
        files: further ONNX files to mutate, of at most 4 MB each.
        count: number of mutated files.
        seed: seed of the mutations.
        limit: seconds that a file may take; the reader gets a third of it as its own limit.
        out: append the counts to this file of JSON lines; files that fail are kept beside it.
    """
    from nas_rlm.benchmarks.results import Results
    from nas_rlm.benchmarks.robustness.fuzzing import FAILURES, OUTCOMES, Outcomes, run_cases, seed_models
    from nas_rlm.benchmarks.robustness.onnx_mutations import mutate

    check_minimum("--count", count, 1)
    check_minimum("--seed", seed, 0)
    if not limit > 0:
        raise ValueError(f"--limit is {limit:g}, expected more than 0")
    settings = {"count": count, "files": len(files), "limit": limit}
    results = Results(out, Outcomes, settings, ("seed",))
    seeds = seed_models(files)
    counts: Counter[str] = Counter()
    failures = []
    for case, outcome, reason in run_cases(seeds, show_progress(range(count), "fuzz"), seed, limit):
        counts[outcome] += 1
        if outcome not in FAILURES:
            continue
        failures.append(f"case {case}: {outcome}: {reason}")
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            (out.parent / f"{outcome}-{seed}-{case}.onnx").write_bytes(mutate(seeds, seed, case))
    results.add((seed,), Outcomes(**{name: counts[name] for name in OUTCOMES}))
    for name in OUTCOMES:
        print(f"{name:<14}{counts[name]:>8,}")
    for failure in failures[:MAX_LISTED]:
        print(failure)
    if failures:
        raise SystemExit(1)
