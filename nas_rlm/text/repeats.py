"""Search for repeats that are no regions: runs along chains, and cells that read the two previous cells.

A run is a sequence of consecutive nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from nas_rlm.graph.ir import Block, Node, StaticInput
from nas_rlm.graph.limits import check_time

_NODES_BETWEEN_CHECKS = 64  # of the time limit
MIN_SAVING = 4  # nodes that a block must save: (calls - 1) * (nodes - 1)


def saves_enough(num_calls: int, length: int) -> bool:
    """Return True if a block of `length` nodes that is called `num_calls` times shortens the text."""
    return (num_calls - 1) * (length - 1) >= MIN_SAVING


def _saved_tokens(num_calls: int, length: int, num_leaves: int, num_arguments: int) -> int:
    """Estimate the number of tokens that a block saves; 0 if they are less than a fifth of the inline text.

    Args:
        num_calls: number of calls of the block.
        length: number of statements; each costs three tokens and one for each leaf.
        num_leaves: number of leaves that the statements read.
        num_arguments: number of distinct leaves that each call passes as arguments.
    """
    inline = num_calls * (3 * length + num_leaves)
    outlined = 3 * length + num_leaves + num_arguments + 6 + num_calls * (3 + num_arguments)
    return inline - outlined if outlined < 0.8 * inline else 0


@lru_cache(maxsize=1 << 12)
def best_runs(
    rows: tuple[tuple[tuple[int, tuple[StaticInput, ...]], ...], ...],
) -> list[tuple[int, int, int]]:
    """Return the occurrences of the run of nodes that saves most tokens as a block, without overlaps.

    Args:
        rows: for each chain, the nodes in order, each as a number that identifies its operation, and its
            leaves.

    Returns:
        For each occurrence, the index of the chain, the first position, and the position after the last one.
    """
    best_rank: tuple[int, ...] = (0,)
    best: list[tuple[int, int, int]] = []
    leaves_before = [[0, *accumulate(len(leaves) for _, leaves in row)] for row in rows]
    runs = {(k, i): s for k, row in enumerate(rows) for i, (s, _) in enumerate(row)}
    for length in range(2, max(map(len, rows), default=0) + 1):
        check_time()
        starts: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for (k, i), run in runs.items():
            if i + length <= len(rows[k]):
                starts[run, rows[k][i + length - 1][0]].append((k, i))
        repeated = [group for group in starts.values() if len(group) > 1]
        runs = {start: number for number, group in enumerate(repeated) for start in group}
        for group in repeated:
            k, i = group[0]
            num_leaves = leaves_before[k][i + length] - leaves_before[k][i]
            if (_saved_tokens(len(group), length, num_leaves, 0), length) <= best_rank[:2]:
                continue
            check_time()
            separate = _without_overlaps(group, length)
            if len(separate) < 2:
                continue
            arguments = [[a for _, leaves in rows[k][i : i + length] for a in leaves] for k, i in separate]
            num_arguments = len(set(zip(*arguments, strict=True)))
            saving = _saved_tokens(len(separate), length, num_leaves, num_arguments)
            rank = (saving, length, -k, -i)
            if saving and rank > best_rank:
                best_rank, best = rank, [(k, i, i + length) for k, i in separate]
        if not runs:
            break
    return best


def _without_overlaps(starts: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Return the starts (chain, position) of runs of a length, without runs that overlap an earlier one."""
    separate: list[tuple[int, int]] = []
    for k, i in starts:
        if not separate or k != separate[-1][0] or i >= separate[-1][1] + length:
            separate.append((k, i))
    return separate


def order_by_dependencies(block: Block) -> Block:
    """Return the graph in a topological order in which operands with more ancestors come first.

    All nodes of a cell then come after the previous cell, even those that read only the cell before it.
    """
    producer = {v: i for i, n in enumerate(block.nodes) for v in n.outs}
    dependencies: list[int] = []  # for each node, the nodes that it depends on and itself, as bits
    operands: list[list[int]] = []  # for each node, the nodes that it reads, in reverse order of the visits
    for i, n in enumerate(block.nodes):
        if not i % _NODES_BETWEEN_CHECKS:
            check_time()
        producers = [producer[v] for v in n.values if v in producer]
        bits = 1 << i
        for p in producers:
            bits |= dependencies[p]
        dependencies.append(bits)
        if len(producers) > 1:
            producers = sorted(set(producers), key=lambda p: (dependencies[p].bit_count(), -p))
        operands.append(producers)
    ordered: list[Node] = []
    is_visited = [False] * len(block.nodes)
    stack = [producer[v] for v in reversed(block.outputs) if v in producer]
    while stack:
        i = stack.pop()
        if i < 0:  # all operands of node ~i have been placed
            ordered.append(block.nodes[~i])
        elif not is_visited[i]:
            is_visited[i] = True
            stack.append(~i)
            stack += operands[i]
    return block.with_nodes(ordered)


def find_cells(block: Block) -> list[list[int]]:
    """Return the longest sequence of runs of nodes that each read only the outputs of the two previous runs.

    Returns:
        Positions of the nodes of each run.
    """
    last_read = {v: i for i, n in enumerate(block.nodes) for v in n.values}
    last_read |= dict.fromkeys(block.outputs, len(block.nodes))
    producer = {v: i for i, n in enumerate(block.nodes) for v in n.outs} | dict.fromkeys(block.inputs, -1)
    live: set[int] = set(block.inputs)
    previous_end: dict[int, int] = {}  # for each possible end of a run, the end of the previous run
    num_runs: dict[int, int] = {}  # for each possible end of a run, the number of runs up to it
    first_end = -1  # last possible end of the first run
    for i, n in enumerate(block.nodes):
        for v in n.values:
            if last_read[v] == i:
                live.discard(v)
        for v in n.outs:
            if v in last_read:
                live.add(v)
        if len(live) > 2 or len(n.outs) != 1 or n.outs[0] not in live:
            continue
        other_live = [producer[v] for v in live if v != n.outs[0]]
        previous = other_live[0] if other_live else first_end
        if previous == -1 or previous in num_runs:
            previous_end[i], num_runs[i] = previous, num_runs.get(previous, 0) + 1
            first_end = i if num_runs[i] == 1 else first_end
    cells: list[list[int]] = []
    end = max(num_runs, key=lambda p: (num_runs[p], -p), default=-1)
    while end >= 0:
        cells.append(list(range(previous_end[end] + 1, end + 1)))
        end = previous_end[end]
    return cells[::-1]
