"""bench speed: speed of predictions, training and searches."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, load
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

DECIMALS = 9  # of numbers in the file of results


@bench.command(name="speed")
def bench_speed(
    *,
    parts: CommaList = (),
    model: str = "nas",
    count: Integer = 1000,
    runs: Integer = 3,
    max_count: Integer = 10_000,
    evaluations: Integer = 10_000,
    seed: Integer = 0,
    out: Path | None = None,
) -> None:
    """Measure speed and memory of predictions, training and searches.

    Prints the median of several runs; cases that are compared run in turns. The environment variable
    OMP_NUM_THREADS sets the number of threads.

    Args:
        parts: what to measure, such as end-to-end,text; by default all: end-to-end, text, encoder,
            surrogates, decoder, roofline, learning, search, study, start, new-device and growth.
        model: a checkpoint directory, or the name of a shipped model.
        count: networks per run.
        runs: number of timed runs, after an untimed one.
        max_count: largest number of networks in the part growth.
        evaluations: evaluations of a search, a square number.
        seed: seed of the networks.
        out: file of JSON lines to which results are added; parts that it has, with the same options, are not
            measured again.
    """
    from dataclasses import asdict

    import torch

    from nas_rlm.benchmarks.speed import KEY_NAMES, PARTS, SpeedSettings, measure_parts
    from nas_rlm.benchmarks.timing import Timing

    for name in parts:
        if name not in PARTS:
            raise ValueError(f"there is no part {name!r}; {suggest(name, PARTS)}")
    settings = SpeedSettings(count, runs, max_count, evaluations, seed, model)
    num_threads = torch.get_num_threads()
    results = Results(out, Timing, {**asdict(settings), "threads": num_threads}, KEY_NAMES, decimals=DECIMALS)
    selected = parts or tuple(PARTS)
    num_earlier = sum(part in selected for part, _ in results.records)
    results.add_all(measure_parts(load(model), settings, selected, results.records, progress=True))
    earlier = f"; {num_earlier} of them were in {out} before" if num_earlier else ""
    print(f"{counted(num_threads, 'thread')}; medians of {counted(runs, 'run')}{earlier}")
    print(f"{'part':<12}{'case':<38}{'per second':>12}{'seconds':>10}{'spread':>9}{'MiB':>8}")
    for (part, case), timing in results.records.items():
        if part in selected:
            cells = f"{timing.per_second:>12,.1f}{timing.seconds:>10.3f}{timing.spread:>9.3f}"
            print(f"{part:<12}{case:<38}{cells}{timing.memory:>8,.0f}")
