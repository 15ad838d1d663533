"""What repeats in a network, where no region tells it: runs along its chains, stretches between its cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from nas_rlm.graph.ir import Block, Given, uses

LEAST_SAVING = 4


def is_worth(occurrences: int, length: int) -> bool:
    """Whether as many repeats of as many nodes are worth a block."""
    return (occurrences - 1) * (length - 1) >= LEAST_SAVING


def _saving(occurrences: int, length: int, leaves: int, handed: int) -> int:
    """Roughly how many tokens a block saves; 0 if they are too few to be worth another name.

    Args:
        occurrences: of the block.
        length: in statements, of three tokens and their leaves each.
        leaves: that its statements read.
        handed: of these, how many different ones each call hands over.
    """
    inline = occurrences * (3 * length + leaves)
    outlined = 3 * length + leaves + handed + 6 + occurrences * (3 + handed)
    return inline - outlined if outlined < 0.8 * inline else 0


@lru_cache(maxsize=1 << 12)
def best_runs(rows: tuple[tuple[tuple[int, tuple[Given, ...]], ...], ...]) -> list[tuple[int, int, int]]:
    """Where in some chains the run of nodes occurs that is most worth a block, apart from each other.

    Args:
        rows: for each node of each chain, a number for what it does, and its leaves.

    Returns:
        Chain, first position, and the position after the last.
    """
    best: tuple[int, ...] = (0,)
    chosen: list[tuple[int, int, int]] = []
    before = [[0, *accumulate(len(handed) for _, handed in row)] for row in rows]  # leaves
    runs = {(k, i): s for k, row in enumerate(rows) for i, (s, _) in enumerate(row)}
    for length in range(2, max(map(len, rows), default=0) + 1):
        places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for (k, i), run in runs.items():
            if i + length <= len(rows[k]):
                places[run, rows[k][i + length - 1][0]].append((k, i))
        repeated = [found for found in places.values() if len(found) > 1]
        runs = {place: number for number, found in enumerate(repeated) for place in found}
        for found in repeated:
            k, i = found[0]
            read = before[k][i + length] - before[k][i]
            if (_saving(len(found), length, read, 0), length) <= best[:2]:
                continue
            apart = _apart(found, length)
            if len(apart) < 2:
                continue
            leaves = [[a for _, handed in rows[k][i : i + length] for a in handed] for k, i in apart]
            handed = len(set(zip(*leaves, strict=True)))
            saving = _saving(len(apart), length, read, handed)
            rank = (saving, length, -k, -i)
            if saving and rank > best:
                best, chosen = rank, [(k, i, i + length) for k, i in apart]
        if not runs:
            break
    return chosen


def _apart(places: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The places of chains at which runs of a length do not overlap, the first ones first."""
    found: list[tuple[int, int]] = []
    for k, i in places:
        if not found or k != found[-1][0] or i >= found[-1][1] + length:
            found.append((k, i))
    return found


def after_what_they_need(block: Block) -> Block:
    """The graph in an order in which of what a node reads that comes first which itself needs most.

    So a cell's nodes come after all of the cell before it, also those that read only the one before that.
    """
    maker = {v: i for i, n in enumerate(block.nodes) for v in n.outs}
    needs: list[int] = []  # of each node, itself and all nodes before it, as bits
    reads: list[list[int]] = []  # nodes, those that come first last
    for i, n in enumerate(block.nodes):
        makers = {maker[v] for v in n.values if v in maker}
        above = 1 << i
        for m in makers:
            above |= needs[m]
        needs.append(above)
        reads.append(
            sorted(makers, key=lambda m: (needs[m].bit_count(), -m)) if len(makers) > 1 else [*makers]
        )
    placed: dict[int, None] = {}
    waiting = [maker[v] for v in reversed(block.outputs) if v in maker]
    while waiting:
        left = [m for m in reads[waiting[-1]] if m not in placed]
        if left:
            waiting += left
        else:
            placed.setdefault(waiting.pop())
    return block.with_nodes([block.nodes[i] for i in placed])


def stretches(block: Block) -> list[list[int]]:
    """The longest row of stretches, each of which reads the results of the two before it alone."""
    last_read = {v: max(c) if c else -1 for v, c in uses(block).items()}
    last_read |= dict.fromkeys(block.outputs, len(block.nodes))
    made = {v: i for i, n in enumerate(block.nodes) for v in n.outs} | dict.fromkeys(block.inputs, -1)
    live: set[int] = set(block.inputs)
    before: dict[int, int] = {}  # where a stretch may end, to the end of the one before it
    rank: dict[int, int] = {}
    first = -1  # where the last of the first stretches may end
    for i, n in enumerate(block.nodes):
        live.difference_update([v for v in n.values if last_read[v] == i])
        live.update([v for v in n.outs if last_read[v] > i])
        if len(n.outs) != 1 or len(live) > 2 or n.outs[0] not in live:
            continue
        others = [made[v] for v in live if v != n.outs[0]]
        previous = others[0] if others else first
        if previous == -1 or previous in rank:
            before[i], rank[i] = previous, rank.get(previous, 0) + 1
            first = i if rank[i] == 1 else first
    row: list[list[int]] = []
    end = max(rank, key=lambda p: (rank[p], -p), default=-1)
    while end >= 0:
        row.append(list(range(before[end] + 1, end + 1)))
        end = before[end]
    return row[::-1]
