"""bench ablation: one choice is varied, all else is equal."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Integer, check_minimum
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.validation import suggest


@bench.command(name="ablation")
def bench_ablation(name: str, *, seeds: Integer = 2, out: Path | None = None) -> None:
    """Compare small models that differ in one choice.

    Ablations that share a trial run it only once if they share --out.

    Args:
        name: heads, numbers, tokenizer, length, text, pretraining or joint.
        seeds: number of trainings of each trial, with seeds from 0.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.ablations import ABLATIONS, KEY_NAMES, TrialResult, run_ablation

    check_minimum("--seeds", seeds, 1)
    if name not in ABLATIONS:
        raise ValueError(f"there is no ablation {name!r}; {suggest(name, ABLATIONS)}")
    results = Results(out, TrialResult, {}, KEY_NAMES)
    results.add_all(run_ablation(name, range(seeds), results.records, progress=True))
    print(f"{'trial':<22}{'seed':>5}  {'space':<14}{'tokens':>8}{'Spearman':>10}{'Kendall':>9}{'seconds':>9}")
    for (ablation, trial, seed, space), r in results.records.items():
        if ablation == name and seed < seeds:
            cells = f"{r.tokens:>8,.0f}{r.spearman:>10.3f}{r.kendall:>9.3f}{r.seconds:>9.0f}"
            print(f"{trial:<22}{seed:>5}  {space:<14}{cells}")
