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

    Small networks of the search spaces and of other operators are mutated as bytes and as graphs.

    Args:
        files: further ONNX files to mutate, of at most 4 MB each.
        count: number of mutated files.
        seed: seed of the mutations.
        limit: seconds that a file may take.
        out: append the counts to this file of JSON lines.
    """
    from nas_rlm.benchmarks.fuzzing import FAILURES, OUTCOMES, Outcomes, run_cases, seed_models
    from nas_rlm.benchmarks.results import Results

    check_minimum("--count", count, 1)
    check_minimum("--seed", seed, 0)
    if limit <= 0:
        raise ValueError(f"--limit is {limit:g}, expected more than 0")
    settings = {"count": count, "files": len(files), "limit": limit}
    results = Results(out, Outcomes, settings, ("seed",))
    counts: Counter[str] = Counter()
    failures = []
    cases = run_cases(seed_models(files), show_progress(range(count), "fuzz"), seed, limit)
    for case, outcome, reason in cases:
        counts[outcome] += 1
        if outcome in FAILURES:
            failures.append(f"case {case}: {outcome}: {reason}")
    results.add((seed,), Outcomes(**{name: counts[name] for name in OUTCOMES}))
    for name in OUTCOMES:
        print(f"{name:<14}{counts[name]:>8,}")
    for failure in failures[:MAX_LISTED]:
        print(failure)
    if failures:
        raise ValueError(f"{len(failures):,} of {count:,} files were neither read nor refused")
