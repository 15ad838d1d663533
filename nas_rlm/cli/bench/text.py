"""bench text: tokens and statements of texts, and their speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import search_spaces
from nas_rlm.cli.app import CommaList, Integer, SpaceList, check_minimum, load, show_progress
from nas_rlm.cli.bench.app import bench

if TYPE_CHECKING:
    from nas_rlm.benchmarks.text.tokens import TextLengths


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

    The length is in tokens and in statements. A network with statement layers attends over statements.
    The speed is in networks per second from architecture to token ids, on one core with warm caches: as many
    other networks are read first.

    Args:
        model: model whose tokenizer is used: a checkpoint directory, or the name of a shipped model.
        space: search spaces, such as nasbench201,fbnet, or FILE.py:CLASS of your own; by default all.
        data: tables whose texts are counted, instead of spaces.
        count: number of networks of each space, or of rows of each table.
        seed: seed of the networks or rows.
    """
    from nas_rlm.benchmarks.text.tokens import measure_text_speed, table_text_lengths
    from nas_rlm.data import read

    check_minimum("--count", count, 1)
    check_minimum("--seed", seed, 0)
    if space and data:
        raise ValueError("--space and --data: give one of them")
    tables = [read(Path(path)) for path in data]
    spaces = [] if data else [search_spaces.get(name) for name in space or search_spaces.names()]
    tokenizer = load(model).tokenizer
    columns = f"{'median tokens':>15}{'mean':>8}{'max':>8}{'median statements':>19}{'max':>8}"
    print(f"{'table or space':<18}{columns}{'networks/s':>12}")
    for table in tables:
        print(f"{table.name:<18}{_cells(table_text_lengths(table, tokenizer, count, seed))}")
    for search_space in show_progress(spaces, "text"):
        lengths, per_second = measure_text_speed(search_space, tokenizer, count, seed)
        print(f"{search_space.name:<18}{_cells(lengths)}{per_second:>12,.0f}")


def _cells(lengths: TextLengths) -> str:
    """The cells of the columns of lengths."""
    tokens, statements = lengths.tokens, lengths.statements
    cells = f"{np.median(tokens):>15,.0f}{np.mean(tokens):>8,.0f}{max(tokens):>8,}"
    return f"{cells}{np.median(statements):>19,.0f}{max(statements):>8,}"
