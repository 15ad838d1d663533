"""bench text: tokens of texts, and their speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.cli.app import CommaList, Integer, SpaceList, check_minimum, load, show_progress
from nas_rlm.cli.bench.app import bench


@bench.command(name="text")
def bench_text(
    *,
    model: str = "nas",
    space: CommaList = (),
    data: SpaceList = (),
    count: Integer = 1000,
    seed: Integer = 0,
) -> None:
    """Measure length and speed of texts.

    The length is in tokens, the speed in networks per second from architecture to token ids. The speed is
    that of one core with warm caches: as many other networks are read first.

    Args:
        model: model whose tokenizer is used: a checkpoint directory, or the name of a shipped model.
        space: search spaces, such as nasbench201,fbnet; by default all.
        data: tables whose texts are counted, instead of spaces.
        count: number of networks of each space, or of rows of each table.
        seed: seed of the networks or rows.
    """
    from nas_rlm.benchmarks.tokens import count_table_tokens, measure_text_speed
    from nas_rlm.data import read

    check_minimum("--count", count, 1)
    check_minimum("--seed", seed, 0)
    if space and data:
        raise ValueError("--space and --data: give one of them")
    tables = [read(Path(path)) for path in data]
    spaces = [] if data else [search_spaces.get(name) for name in space or search_spaces.names()]
    tokenizer = load(model).tokenizer
    print(f"{'table or space':<18}{'median tokens':>15}{'mean':>8}{'max':>8}{'networks/s':>12}")
    for table in tables:
        lengths = count_table_tokens(table, tokenizer, count, seed)
        cells = f"{np.median(lengths):>15,.0f}{np.mean(lengths):>8,.0f}{max(lengths):>8,}"
        print(f"{table.name:<18}{cells}")
    for search_space in show_progress(spaces, "text"):
        speed = measure_text_speed(search_space, tokenizer, count, seed)
        tokens = f"{speed.median_tokens:>15,.0f}{speed.mean_tokens:>8,.0f}{speed.max_tokens:>8,}"
        print(f"{search_space.name:<18}{tokens}{speed.per_second:>12,.0f}")
