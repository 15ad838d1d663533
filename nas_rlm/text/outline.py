"""Repeated parts of a flat graph become blocks, each defined once and called where it occurred.

What makes a block, in this order:

1. layers: a weight matrix and the pointwise operators around it (ReLU-Conv-BN), always;
2. regions, from a value that forks to where all its paths have met again (a cell), if they repeat;
3. parts: short chains with shortcuts (a residual block, squeeze and excitation), always;
4. cells: the stretches between values after which nothing but the last two is read, if they repeat;
5. sequences: runs along the network's chain (five equal cells: a stage), where they shorten the text.

Layers and parts do not wait for a repeat, so that their text is the same in every network. Another block
that ends up called from one place only, as a region does within the sequence that it is a part of, is put
back there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count

from .ir import Arg, Block, Leaf, Node, Param, canonical, is_part, stable_hash, uses

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
    named = {id(b) for b in bodies[1:]}
    while _outline_regions(bodies):
        pass
    while parts := _outline_parts(bodies):
        named.update(map(id, parts))
    _outline_cells(bodies)
    while _outline_sequences(bodies):
        pass
    while _call_in_place(bodies, named):
        pass
    return bodies[0]


def _call_in_place(bodies: list[Block], named: set[int]) -> bool:
    """Put back a block that is called from one place only; layers and parts have their names everywhere."""
    sites = Counter(id(n.callee) for b in bodies for n in b.nodes if n.callee)
    fresh = count(1 + max(v for b in bodies for v in uses(b)))
    for b in bodies:
        for i, n in enumerate(b.nodes):
            if n.callee is not None and sites[id(n.callee)] == 1 and id(n.callee) not in named:
                b.nodes[i : i + 1] = _body_of(n, n.callee, fresh)
                b.is_canonical = False
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
    """Outline every layer of two operators or more; equal ones agree on which of their weights are alike."""
    groups: dict[tuple[object, ...], list[tuple[Block, list[int]]]] = defaultdict(list)
    for layer in _layers(bodies[0]):
        nodes = [bodies[0].nodes[i] for i in layer]
        leaves = [a for n in nodes for a in n.leaves]
        alike = tuple(leaves.index(a) for a in leaves)
        groups[*(n.label for n in nodes), alike].append((bodies[0], layer))
    kept = [g for g in groups.values() if len(g[0][1]) > 1]
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
    """Outline the run of the network's chains that saves most; False if none is worth it."""
    main = bodies[0]
    chains = [c for c in _chains(main) if len(c) >= 2]
    symbols = [[stable_hash(main.nodes[i].label) for i in c] for c in chains]
    best: tuple[int, ...] = (0,)
    chosen: list[list[int]] = []
    starts = [(k, i) for k, s in enumerate(symbols) for i in range(len(s) - 1)]
    for length in range(2, max(map(len, symbols), default=0) + 1):
        places: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for k, i in starts:
            if i + length <= len(symbols[k]):
                places[tuple(symbols[k][i : i + length])].append((k, i))
        starts = sorted(p for found in places.values() if len(found) > 1 for p in found)
        for found in places.values():
            runs = [chains[k][i : i + length] for k, i in _apart(found, length)]
            if len(runs) > 1:
                columns = list(
                    zip(*([a for i in r for a in main.nodes[i].leaves] for r in runs), strict=True)
                )
                saving = _saving(len(runs), length, len(columns), len(set(columns)))
                rank = (saving, length, -found[0][0], -found[0][1])
                if saving and rank > best:
                    best, chosen = rank, runs
        if not starts:
            break
    if chosen:
        _replace(bodies, [(main, run) for run in chosen])
    return bool(chosen)


def _apart(places: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The places of chains at which runs of a length do not overlap, the first ones first."""
    found: list[tuple[int, int]] = []
    for k, i in places:
        if not found or k != found[-1][0] or i >= found[-1][1] + length:
            found.append((k, i))
    return found


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
            if b is bodies[0] and is_part(_extract(b, region)):
                continue
            rough = tuple(sorted(stable_hash(b.nodes[i].label) for i in region))
            sizes[rough] += 1
            found.append((b, region, rough))
    for b, region, rough in found:
        if _worth(sizes[rough], len(region)):
            groups[canonical(_extract(b, region)).signature()].append((b, region))
    ranked = [
        ((len(g) - 1) * len(g[0][1]), len(g[0][1]), -k, g)
        for k, g in enumerate(groups.values())
        if _worth(len(g), len(g[0][1]))
    ]
    if not ranked:
        return False
    _replace(bodies, max(ranked, key=lambda r: r[:3])[3])
    return True


def _outline_parts(bodies: list[Block]) -> list[Block]:
    """Outline the network's smallest parts; gives the new blocks, none if there are no parts left."""
    main = bodies[0]
    parts = [r for r in _regions(main) if is_part(_extract(main, r))]
    least = min(map(len, parts), default=0)
    groups: dict[object, list[tuple[int, ...]]] = defaultdict(list)
    for part in parts:
        if len(part) == least:
            groups[_wiring(main, part)].append(main.nodes[part[-1]].outs)
    before = len(bodies)
    for outs in groups.values():
        place = {n.outs: i for i, n in enumerate(main.nodes)}
        runs = [(main, list(range(place[o] - least + 1, place[o] + 1))) for o in outs]
        _replace(bodies, runs, shared=False)
    return bodies[before:]


def _wiring(block: Block, part: list[int]) -> object:
    """What the nodes of a part do and read, in their order, which is the same for all equal parts."""
    number = {v: k for k, i in enumerate(part) for v in block.nodes[i].outs}
    return tuple(
        (block.nodes[i].label, tuple(number.get(v, -1) for v in block.nodes[i].values)) for i in part
    )


def _outline_cells(bodies: list[Block]) -> None:
    """Outline the cells of a network in which each reads the outputs of the two before it."""
    main = bodies[0]
    cells: dict[str, list[tuple[Block, list[int]]]] = defaultdict(list)
    for cell in _cells(main):
        cells[_extract(main, cell).signature()].append((main, cell))
    kept = [group for group in cells.values() if _worth(len(group), len(group[0][1]))]
    ends = [[main.nodes[part[-1]].outs for _, part in group] for group in kept]
    sizes = [len(group[0][1]) for group in kept]
    for outs, size in zip(ends, sizes, strict=True):
        place = {n.outs: i for i, n in enumerate(main.nodes)}
        _replace(bodies, [(main, list(range(place[o] - size + 1, place[o] + 1))) for o in outs])


def _cells(block: Block) -> list[list[int]]:
    """The longest row of stretches, each of which reads the results of the two before it alone."""
    last_read = {v: max(c) if c else -1 for v, c in uses(block).items()}
    last_read |= dict.fromkeys(block.outputs, len(block.nodes))
    made = {v: i for i, n in enumerate(block.nodes) for v in n.outs} | dict.fromkeys(block.inputs, -1)
    live: set[int] = set(block.inputs)
    before: dict[int, int] = {}  # where a stretch may end, to the end of the one before it
    rank: dict[int, int] = {}
    for i, n in enumerate(block.nodes):
        live = {v for v in (*live, *n.outs) if last_read[v] > i}
        others = [made[v] for v in live if v not in n.outs]
        if len(n.outs) == 1 and len(live) <= 2 and len(others) <= 1 and live.intersection(n.outs):
            previous = others[0] if others else max((p for p in rank if rank[p] == 1), default=-1)
            if previous == -1 or previous in rank:
                before[i], rank[i] = previous, rank.get(previous, 0) + 1
    row: list[list[int]] = []
    end = max(rank, key=lambda p: (rank[p], -p), default=-1)
    while end >= 0:
        row.append(list(range(before[end] + 1, end + 1)))
        end = before[end]
    return row[::-1]


def _extract(block: Block, part: list[int]) -> Block:
    """The nodes of a part as a graph of its own."""
    nodes = [block.nodes[i] for i in part]
    made = {v for n in nodes for v in n.outs}
    entries = dict.fromkeys(v for n in nodes for v in n.values if v not in made)
    return Block(tuple(entries), nodes[-1].outs, nodes)


def _replace(bodies: list[Block], parts: list[tuple[Block, list[int]]], shared: bool = True) -> None:
    """Define the block that all these parts are, and call it in their place.

    Args:
        bodies: the network and its blocks, to which the new one is added.
        parts: nodes of some of them.
        shared: weights that agree in every part are handed over once; otherwise the block's parameters do not
            depend on where else it is called.
    """
    ordered = [canonical(_extract(b, p)) for b, p in parts]
    columns = list(zip(*([a for n in o.nodes for a in n.leaves] for o in ordered), strict=True))
    slots: list[Leaf | int] = []
    rows: dict[tuple[object, ...], int] = {}
    for k, column in enumerate(columns):
        first = column[0]
        if isinstance(first, Leaf) and first.is_fixed:
            slots.append(first)
        else:
            slots.append(rows.setdefault(column if shared else (k, column), len(rows)))
    body = ordered[0]
    slot = iter(slots)

    def fill(a: Arg) -> Arg:
        if not isinstance(a, Leaf | Param):
            return a
        s = next(slot)
        return s if isinstance(s, Leaf) else Param(s, a.sort, a.is_matrix)

    nodes = [Node(n.op, tuple(fill(a) for a in n.args), n.outs, n.attrs, n.callee) for n in body.nodes]
    callee = Block(body.inputs, body.outputs, nodes, params=len(rows))
    handed = [columns[slots.index(k)] for k in range(len(rows))]
    for b in bodies:
        calls: dict[int, Node] = {}
        gone: set[int] = set()
        for k, ((owner, part), o) in enumerate(zip(parts, ordered, strict=True)):
            if owner is b:
                args = (*o.inputs, *(column[k] for column in handed))
                calls[part[-1]] = Node("", args, o.outputs, callee=callee)
                gone.update(part)
        if gone:
            b.nodes = [calls.get(i, n) for i, n in enumerate(b.nodes) if i in calls or i not in gone]
            b.is_canonical = False
    bodies.append(callee)
