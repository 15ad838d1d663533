"""bench speed: how fast predictions, learning and searches are."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Names, Whole, load
from nas_rlm.cli.bench import bench
from nas_rlm.utils.validation import suggest


@bench.command(name="speed")
def bench_speed(
    *,
    parts: Names = (),
    model: str = "nas",
    count: Whole = 1000,
    runs: Whole = 3,
    most: Whole = 10_000,
    evaluations: Whole = 10_000,
    seed: Whole = 0,
    out: Path | None = None,
) -> None:
    """Measure how fast predictions, learning and searches are, and the memory that they take.

    Each case runs several times, in turns with what it is compared to, and the median counts. As many threads
    compute as OMP_NUM_THREADS says.

    Args:
        parts: some of end-to-end, text, encoder, experts, decoder, roofline, learning, search, start and
            growth; by default all.
        model: a checkpoint folder, or the name of a shipped model.
        count: networks of a run.
        runs: that count, after one that does not.
        most: networks at once, where it is measured how time grows with them.
        evaluations: of a search, a square number.
        seed: of the networks.
        out: a file of JSON lines to which each part is added; what is there already, measured with the same
            options, is not done again.
    """
    from dataclasses import asdict

    import torch

    from nas_rlm.benchmarks.speed import KEYS, PARTS, Plan, measured
    from nas_rlm.benchmarks.timing import Timing

    for name in parts:
        if name not in PARTS:
            raise ValueError(f"there is no part {name!r}; {suggest(name, PARTS)}")
    plan = Plan(count, runs, most, evaluations, seed, model)
    threads = torch.get_num_threads()
    results = Results(out, Timing, {**asdict(plan), "threads": threads}, KEYS, places=9)
    asked = parts or tuple(PARTS)
    before = sum(part in asked for part, _ in results.found)
    for key, timing in measured(load(model), plan, asked, results.found):
        results.add(key, timing)
    known = f"; {before} of them were in {out} before" if before else ""
    print(f"{threads} threads; medians of {runs} runs{known}")
    print(f"{'part':<12}{'case':<30}{'a second':>12}{'seconds':>10}{'spread':>9}{'MiB':>8}")
    for (part, case), timing in results.found.items():
        if part in asked:
            figures = f"{timing.per_second:>12,.1f}{timing.seconds:>10.3f}{timing.spread:>9.3f}"
            print(f"{part:<12}{case:<30}{figures}{timing.memory:>8,.0f}")
