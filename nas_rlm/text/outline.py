"""Repeated parts of a flat graph become blocks, each defined once and called where it occurred.

Three kinds of repeats, found in this order, the most saving first:

1. layers: a weight matrix and the pointwise operators around it (ReLU-Conv-BN);
2. regions: from a value that forks to where all its paths have met again (a cell, a residual block);
3. sequences: runs of operators and blocks along a chain (five equal cells: a stage).

A block that ends up called from one place only, as a region does within the sequence that it is a part of, is
put back there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count

from .ir import Arg, Block, Leaf, Node, Param, canonical, label, stable_hash, uses

LEAST_SAVING = 4
POINTWISE = {
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"),
    *(
        "Relu",
        "LeakyRelu",
        "PRelu",
        "Clip",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
        "Elu",
        "Selu",
        "Celu",
    ),
    *("Softplus", "Softsign", "Gelu", "Mish", "Swish", "Add", "Sub", "Mul", "Div"),
}


def outline(flat: Block) -> Block:
    """The same network with its repeats as blocks.

    Args:
        flat: a graph without calls.

    Returns:
        A graph that calls blocks; calling them in place gives the flat graph back.
    """
    bodies = [canonical(flat)]
    _outline_layers(bodies)
    layers = {id(b) for b in bodies[1:]}
    while _outline_regions(bodies):
        pass
    while _outline_sequences(bodies):
        pass
    while _call_in_place(bodies, layers):
        pass
    return bodies[0]


def _call_in_place(bodies: list[Block], layers: set[int]) -> bool:
    """Put back a block that is called from one place only; layers keep their names in every network."""
    sites = Counter(id(n.callee) for b in bodies for n in b.nodes if n.callee)
    fresh = count(1 + max(v for b in bodies for v in uses(b)))
    for b in bodies:
        for i, n in enumerate(b.nodes):
            if n.callee is not None and sites[id(n.callee)] == 1 and id(n.callee) not in layers:
                b.nodes[i : i + 1] = _body_of(n, n.callee, fresh)
                bodies[:] = [other for other in bodies if other is not n.callee]
                return True
    return False


def _body_of(call: Node, callee: Block, fresh: Iterator[int]) -> list[Node]:
    """The nodes of a called block, reading and writing what the call does."""
    values = dict(zip(callee.inputs, call.values, strict=True)) | dict(
        zip(callee.outputs, call.outs, strict=True)
    )
    handed = call.leaves

    def place(a: Arg) -> Arg:
        if isinstance(a, Param):
            return handed[a.index]
        return values[a] if isinstance(a, int) else a

    nodes = []
    for n in callee.nodes:
        args = tuple(place(a) for a in n.args)
        values.update((v, next(fresh)) for v in n.outs if v not in values)
        nodes.append(Node(n.op, args, tuple(values[v] for v in n.outs), n.attrs, n.callee))
    return nodes


def _worth(occurrences: int, length: int) -> bool:
    return (occurrences - 1) * (length - 1) >= LEAST_SAVING


def _chains(block: Block) -> list[list[int]]:
    """Maximal runs of nodes, each the only reader of the one before, which is all that it reads."""
    readers = uses(block)
    outputs = set(block.outputs)
    producer = {v: i for i, n in enumerate(block.nodes) for v in n.outs}

    def follows(i: int) -> int | None:
        n = block.nodes[i]
        if len(n.values) != 1 or n.values[0] not in producer:
            return None
        p = producer[n.values[0]]
        v = n.values[0]
        return p if len(block.nodes[p].outs) == 1 and len(readers[v]) == 1 and v not in outputs else None

    chains: list[list[int]] = []
    chain_of: dict[int, list[int]] = {}
    for i, n in enumerate(block.nodes):
        if len(n.values) != 1 or len(n.outs) != 1:
            continue
        p = follows(i)
        chain = chain_of.get(p) if p is not None else None
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(i)
        chain_of[i] = chain
    return chains


def _is_matrix(node: Node) -> bool:
    return any(a.is_matrix for a in node.leaves)


def _layers(block: Block) -> list[list[int]]:
    """The chains cut into layers: a weight matrix and the pointwise operators that go with it.

    What precedes the first matrix of a chain (ReLU, where activation comes first) precedes the others too;
    all else follows its matrix.
    """
    layers: list[list[int]] = []
    for chain in _chains(block):
        piece: list[int] = []
        for i in [*chain, -1]:
            if i >= 0 and (_is_matrix(block.nodes[i]) or block.nodes[i].op in POINTWISE):
                piece.append(i)
                continue
            layers += _cut(block, piece)
            piece = []
    return layers


def _cut(block: Block, piece: list[int]) -> list[list[int]]:
    """One run of matrices and pointwise operators, cut into layers."""
    matrices = [k for k, i in enumerate(piece) if _is_matrix(block.nodes[i])]
    if not matrices:
        return []
    ops = [block.nodes[i].op for i in piece]
    prefix = ops[: matrices[0]]
    starts = [0]
    for k in matrices[1:]:
        before = k - len(prefix)
        starts.append(before if before > starts[-1] and ops[before:k] == prefix else k)
    return [piece[a:b] for a, b in zip(starts, [*starts[1:], len(piece)], strict=True)]


def _outline_layers(bodies: list[Block]) -> None:
    """Outline every layer that occurs often enough."""
    groups: dict[tuple[str, ...], list[tuple[Block, list[int]]]] = defaultdict(list)
    for layer in _layers(bodies[0]):
        groups[tuple(label(bodies[0].nodes[i]) for i in layer)].append((bodies[0], layer))
    kept = [g for g in groups.values() if _worth(len(g), len(g[0][1]))]
    ends = [[b.nodes[part[-1]].outs for b, part in g] for g in kept]
    for group, outs in zip(kept, ends, strict=True):
        place = {n.outs: i for i, n in enumerate(bodies[0].nodes)}
        length = len(group[0][1])
        _replace(bodies, [(bodies[0], _run_to(bodies[0], place[o], length)) for o in outs])


def _run_to(block: Block, last: int, length: int) -> list[int]:
    """The positions of a run of a chain, from its last node back."""
    producer = {v: i for i, n in enumerate(block.nodes) for v in n.outs}
    run = [last]
    while len(run) < length:
        run.append(producer[block.nodes[run[-1]].values[0]])
    return run[::-1]


def _outline_sequences(bodies: list[Block]) -> bool:
    """Outline the run of chain nodes that saves most; False if none is worth it."""
    chains = [(b, c) for b in bodies for c in _chains(b) if len(c) >= 2]
    symbols = [[stable_hash(label(b.nodes[i])) for i in c] for b, c in chains]
    longest = max((len(s) for s in symbols), default=0)
    best: tuple[int, int, int] | None = None
    chosen: tuple[int, ...] = ()
    starts = [(k, i) for k, s in enumerate(symbols) for i in range(len(s) - 1)]
    for length in range(2, longest + 1):
        places: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for k, i in starts:
            if i + length <= len(symbols[k]):
                places[tuple(symbols[k][i : i + length])].append((k, i))
        for run, found in places.items():
            n = _apart(found, length)
            rank = ((n - 1) * length, length, -found[0][0] * longest * 2 - found[0][1])
            if _worth(n, length) and (best is None or rank > best):
                best, chosen = rank, run
        starts = sorted(p for found in places.values() if len(found) > 1 for p in found)
        if not starts:
            break
    if best is None:
        return False
    parts: list[tuple[Block, list[int]]] = []
    for (b, c), s in zip(chains, symbols, strict=True):
        i = 0
        while i + len(chosen) <= len(s):
            if tuple(s[i : i + len(chosen)]) == chosen:
                parts.append((b, c[i : i + len(chosen)]))
                i += len(chosen)
            else:
                i += 1
    _replace(bodies, parts)
    return True


def _apart(places: list[tuple[int, int]], length: int) -> int:
    """How many runs of a length there are at these places of chains, overlapping ones left out."""
    count, chain, end = 0, -1, 0
    for k, i in places:
        if k != chain or i >= end:
            count, chain, end = count + 1, k, i + length
    return count


def _regions(block: Block) -> list[list[int]]:
    """For each node or input whose value forks: the nodes up to where its paths meet, if they are closed."""
    nodes = block.nodes
    readers = uses(block)
    producer = {v: i for i, n in enumerate(nodes) for v in n.outs}
    everything = (1 << (len(nodes) + 1)) - 1
    after = [0] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        mask = everything
        for v in nodes[i].outs:
            for c in readers[v]:
                mask &= after[c]
            if v in block.outputs:
                mask = 0
        after[i] = (1 << i) | (mask if mask != everything else 0)
    before = [0] * len(nodes)
    for i, n in enumerate(nodes):
        mask = everything
        for v in n.values:
            mask &= before[producer[v]] if v in producer else 1 << len(nodes)
        before[i] = (1 << i) | (mask if n.values else 0)
    regions = []
    for v, consumers in readers.items():
        if len(set(consumers)) < 2 or v in block.outputs:
            continue
        meet = everything
        for c in consumers:
            meet &= after[c]
        meet &= (1 << len(nodes)) - 1
        if not meet:
            continue
        last = (meet & -meet).bit_length() - 1
        entry = producer.get(v, len(nodes))
        if entry < len(nodes) and len(nodes[entry].outs) > 1:
            continue
        inside = [
            i for i in range(last + 1) if i != entry and before[i] >> entry & 1 and after[i] >> last & 1
        ]
        if last in inside and len(inside) >= 2 and len(nodes[last].outs) == 1:
            members = set(inside)
            closed = all(a == v or producer.get(a) in members for i in inside for a in nodes[i].values)
            if closed:
                regions.append(inside)
    return regions


def _outline_regions(bodies: list[Block]) -> bool:
    """Outline the repeated region that saves most; False if none is worth it."""
    groups: dict[str, list[tuple[Block, list[int]]]] = defaultdict(list)
    sizes: Counter[tuple[int, ...]] = Counter()
    found = []
    for b in bodies:
        for region in _regions(b):
            rough = tuple(sorted(stable_hash(label(b.nodes[i])) for i in region))
            sizes[rough] += 1
            found.append((b, region, rough))
    for b, region, rough in found:
        if _worth(sizes[rough], len(region)):
            groups[_extract(b, region).signature()].append((b, region))
    ranked = [
        ((len(g) - 1) * len(g[0][1]), len(g[0][1]), -k, g)
        for k, g in enumerate(groups.values())
        if _worth(len(g), len(g[0][1]))
    ]
    if not ranked:
        return False
    _replace(bodies, max(ranked, key=lambda r: r[:3])[3])
    return True


def _extract(block: Block, part: list[int]) -> Block:
    """The nodes of a part as a graph of its own."""
    nodes = [block.nodes[i] for i in part]
    made = {v for n in nodes for v in n.outs}
    entry = next(v for n in nodes for v in n.values if v not in made)
    return Block((entry,), nodes[-1].outs, nodes)


def _replace(bodies: list[Block], parts: list[tuple[Block, list[int]]]) -> None:
    """Define the block that all these parts are, and call it in their place."""
    ordered = [canonical(_extract(b, p)) for b, p in parts]
    columns = list(zip(*([a for n in o.nodes for a in n.leaves] for o in ordered), strict=True))
    slots: list[Leaf | int] = []
    rows: dict[tuple[Leaf | Param, ...], int] = {}
    for column in columns:
        same = column[0]
        if isinstance(same, Leaf) and same.value is not None and all(a == same for a in column):
            slots.append(same)
        else:
            slots.append(rows.setdefault(column, len(rows)))
    body = ordered[0]
    slot = iter(slots)

    def fill(a: Arg) -> Arg:
        if not isinstance(a, Leaf | Param):
            return a
        s = next(slot)
        return s if isinstance(s, Leaf) else Param(s, a.sort, a.is_matrix)

    nodes = [Node(n.op, tuple(fill(a) for a in n.args), n.outs, n.attrs, n.callee) for n in body.nodes]
    callee = Block(body.inputs, body.outputs, nodes, params=len(rows))
    handed = list(rows)
    for b in bodies:
        calls: dict[int, Node] = {}
        gone: set[int] = set()
        for k, ((owner, part), o) in enumerate(zip(parts, ordered, strict=True)):
            if owner is b:
                args = (o.inputs[0], *(column[k] for column in handed))
                calls[part[-1]] = Node("", args, o.outputs, callee=callee)
                gone.update(part)
        if gone:
            b.nodes = [calls.get(i, n) for i, n in enumerate(b.nodes) if i in calls or i not in gone]
    bodies.append(callee)
