"""Repeated parts of a graph become blocks, each defined once and called where it occurred.

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
from dataclasses import replace

from nas_rlm.graph.cache import remembered
from nas_rlm.graph.canonical_order import Form
from nas_rlm.graph.ir import MOST_OF_A_PART, Block, Given, Node, Param, Spec, call_spec, param
from nas_rlm.text.layers import chains
from nas_rlm.text.regions import (
    Region,
    call,
    extract,
    in_place,
    inner_regions,
    part_call,
    regions,
    substituted,
    with_calls,
    with_parts,
)
from nas_rlm.text.repeats import LEAST_SAVING, after_what_they_need, best_runs, is_worth, stretches


def outline(network: Block) -> tuple[Block, dict[Block, Block]]:
    """The same network with its repeats as blocks.

    Args:
        network: a graph of layers and operators. A region may already be a call, as `regions.call` makes it:
            this saves looking for what is known to be one and changes nothing else.

    Returns:
        A graph that calls blocks, and what called blocks have become since; calling them in place gives the
        flat graph back.
    """
    quick = _of_known_regions(network)
    return _Outline(network).outlined() if quick is None else quick


class _Outline:
    """A network while its blocks are found.

    Attributes:
        main: the network.
        kept: blocks that will be functions.
        open: called regions that are not decided on, which count as if they were in place, and their calls.
        bodies: what a called block consists of by now, if it has changed.
    """

    def __init__(self, main: Block) -> None:
        self.main = main
        self.kept: list[Block] = []
        self.open: Counter[Block] = Counter()
        for n in main.nodes:
            if n.spec.callee is not None and not n.spec.callee.is_chain:
                self.open[n.spec.callee] += 1
        self.bodies: dict[Block, Block] = {}

    def outlined(self) -> tuple[Block, dict[Block, Block]]:
        """The network and its blocks."""
        while self.outline_region():
            pass
        self.open_up()
        if not self.main.is_chain:
            self.outline_parts()
            self.outline_cells()
        while self.outline_sequence():
            pass
        while self.put_back():
            pass
        return self.result()

    def body(self, block: Block) -> Block:
        """What a called block consists of by now."""
        return self.bodies.get(block, block)

    def outline_region(self) -> bool:
        """Make the repeated region that saves most a block; False if none is worth it."""
        owners: list[tuple[Block | None, int]] = [(None, 1), *self.open.items(), *((b, 1) for b in self.kept)]
        found: list[tuple[Block | None, list[int], int, Block]] = []
        for owner, times in owners:
            graph = self._graph(owner)
            for positions, part in regions(graph):
                is_all = owner is not None and len(positions) == len(graph.nodes)
                if not is_all and (owner in self.kept or not self._is_part(part)):
                    found.append((owner, positions, times, part))
        found += [(b, [], n, self.body(b)) for b, n in self.open.items() if not b.is_part]
        found += [(b, [], 1, self.body(b)) for b in self.kept]
        rough = [part.labels for *_, part in found]
        sizes: Counter[tuple[int, ...]] = Counter()
        for key, (_, _, times, _) in zip(rough, found, strict=True):
            sizes[key] += times
        groups: dict[Form, list[tuple[Block | None, list[int]]]] = defaultdict(list)
        counts: Counter[Form] = Counter()
        lengths: dict[Form, int] = {}
        for key, (owner, positions, times, part) in zip(rough, found, strict=True):
            length = self._length(part)
            if is_worth(sizes[key], length):
                shape = part.canonical.form
                groups[shape].append((owner, positions))
                counts[shape] += times
                lengths[shape] = length
        new = {f for f, group in groups.items() if any(positions or o in self.open for o, positions in group)}
        worth = [f for f, n in counts.items() if f in new and is_worth(n, lengths[f])]
        if not worth:
            return False
        self._keep(groups[max(worth, key=lambda f: ((counts[f] - 1) * lengths[f], lengths[f], f))])
        return True

    def _graph(self, owner: Block | None) -> Block:
        return self.main if owner is None else self.body(owner)

    def _undecided(self, node: Node) -> Block | None:
        """The open region that a node calls."""
        called = node.spec.callee
        return called if called in self.open else None

    def _length(self, part: Block) -> int:
        called = [self._undecided(n) for n in part.nodes]
        return sum([1 if c is None else len(self.body(c).nodes) for c in called])

    def _is_part(self, part: Block) -> bool:
        called = [self._undecided(n) for n in part.nodes]
        return (
            part.is_part
            and self._length(part) <= MOST_OF_A_PART
            and all(c is None or c.is_part for c in called)
        )

    def _keep(self, group: list[tuple[Block | None, list[int]]]) -> None:
        """Make one block of equal regions, some of which may be called already."""
        called = next((owner for owner, positions in group if owner is not None and not positions), None)
        places: dict[Block | None, list[list[int]]] = defaultdict(list)
        for owner, positions in group:
            if positions:
                places[owner].append(positions)
        for owner, runs in places.items():
            graph = self._graph(owner)
            made = [call(self._opened(extract(graph, run))) for run in runs]
            if called is None:
                called = made[0].spec.callee
            assert called is not None
            made = [Node(self._call_of(called, n.spec), n.values, n.outs) for n in made]
            self._set(owner, with_calls(graph, list(zip(runs, made, strict=True))))
        assert called is not None
        if called not in self.kept:
            self.kept.append(called)
        left = [c for n in self.main.nodes if (c := self._undecided(n)) is not None]
        self.open = Counter([c for c in left if c is not called])

    def _set(self, owner: Block | None, graph: Block) -> None:
        if owner is None:
            self.main = graph
        else:
            self.bodies[owner] = graph

    def _call_of(self, called: Block, made: Spec) -> Spec:
        """The call of an equal block, whose parameters may have other numbers."""
        if made.callee is called:
            return made
        ordered = self.body(called).canonical
        places = [a.index for n in ordered.nodes for a in n.spec.handed if isinstance(a, Param)]
        return call_spec(called, [a for _, a in sorted(zip(places, made.handed, strict=True), key=_first)])

    def open_up(self) -> None:
        """Put regions that are no blocks in place, but for parts; then join parameters that always agree."""
        self.main = self._opened(self.main, parts=True)
        self.open.clear()
        for block in self._callers_first():
            self._share(block)

    def _opened(self, graph: Block, parts: bool = False) -> Block:
        if not self.open:
            return graph
        nodes: list[Node] = []
        for n in graph.nodes:
            callee = self._undecided(n)
            if callee is None:
                nodes.append(n)
            elif parts and callee.is_part:
                nodes.append(Node(part_call(n.spec), n.values, n.outs))
            else:
                nodes += in_place(self.body(callee), n.values, n.outs, n.spec.handed)
        return graph.with_nodes(nodes)

    def _callers_first(self) -> list[Block]:
        """The blocks that are called, callers before those that they call."""
        called = {b: {n.spec.callee for n in self.body(b).nodes} for b in self.kept}
        order: list[Block] = []
        while len(order) < len(self.kept):
            order += [
                b
                for b in self.kept
                if b not in order and all(c in order for c in self.kept if b in called[c])
            ]
        return order

    def _share(self, block: Block) -> None:
        """Hand a leaf over once where several parameters of a block are the same at every call."""
        owners: list[Block | None] = [None, *self.kept]
        calls = [n.spec for o in owners for n in self._graph(o).nodes if n.spec.callee is block]
        body, kept = _shared(self.body(block), tuple([tuple(s.handed) for s in dict.fromkeys(calls)]))
        if kept is None:
            return
        self.bodies[block] = body
        fewer = {s: call_spec(block, [s.handed[i] for i in kept]) for s in dict.fromkeys(calls)}
        for o in owners:
            graph = self._graph(o)
            if any(n.spec in fewer for n in graph.nodes):
                self._set(o, graph.with_specs([fewer.get(n.spec, n.spec) for n in graph.nodes]))

    def outline_parts(self) -> None:
        """Call parts; those that call a block become blocks, since they change with it."""
        self.main = with_parts(self.main).canonical
        parts = [c for n in self.main.nodes if (c := n.spec.callee) is not None and c not in self.kept]
        before = len(self.kept)
        for part in dict.fromkeys(parts):
            self._note(part)
        for part in reversed(self.kept[before:]):
            self._share(part)

    def _note(self, part: Block) -> bool:
        """Keep a part that calls a block, or that calls such a part: it is like any other block then."""
        called = [c for n in part.nodes if (c := n.spec.callee) is not None]
        changing = [c in self.kept or self._note(c) for c in called]
        if any(changing):
            self.kept.append(part)
        return any(changing)

    def outline_cells(self) -> None:
        """Make blocks of the stretches in a network in which each reads the outputs of the two before it."""
        graph = after_what_they_need(self.main)
        cells: dict[Form, list[Region]] = defaultdict(list)
        for positions in stretches(graph):
            if len(positions) > 1:
                cell = extract(graph, positions)
                cells[cell.canonical.form].append((positions, cell))
        kept = [found for found in cells.values() if is_worth(len(found), len(found[0][0]))]
        if kept:
            self.main = graph
            self._keep_runs([run for found in kept for run in found])

    def _keep_runs(self, runs: list[Region]) -> None:
        """Make blocks of runs of the network's nodes."""
        made = [(positions, call(part)) for positions, part in runs]
        self.main = with_calls(self.main, made)
        for block in dict.fromkeys(n.spec.callee for _, n in made):
            assert block is not None
            self.kept.append(block)
            self._share(block)

    def outline_sequence(self) -> bool:
        """Make a block of the run of the network's chains that saves most; False if none is worth it."""
        nodes = self.main.nodes
        rows = [c for c in chains(self.main) if len(c) >= 2]
        symbol: dict[int, int] = {}

        def described(i: int) -> tuple[int, tuple[Given, ...]]:
            done = nodes[i].spec
            return symbol.setdefault(done.label, len(symbol)), tuple(done.handed)

        found = best_runs(tuple([tuple([described(i) for i in row]) for row in rows]))
        chosen = [rows[k][a:b] for k, a, b in found]
        self._keep_runs([(run, extract(self.main, run)) for run in chosen])
        return bool(chosen)

    def put_back(self) -> bool:
        """Put a block that is called from one place only back there; False if there is none."""
        owners: list[Block | None] = [None, *self.kept]
        sites = Counter(n.spec.callee for o in owners for n in self._graph(o).nodes)
        for o in owners:
            graph = self._graph(o)
            for i, n in enumerate(graph.nodes):
                callee = n.spec.callee
                if callee is not None and sites[callee] == 1 and callee in self.kept:
                    inside = in_place(self.body(callee), n.values, n.outs, n.spec.handed)
                    self._set(o, graph.with_nodes([*graph.nodes[:i], *inside, *graph.nodes[i + 1 :]]))
                    self.kept.remove(callee)
                    return True
        return False

    def result(self) -> tuple[Block, dict[Block, Block]]:
        """The network, and what its blocks have become."""
        order = self._callers_first()
        made: dict[Block, Block] = {}
        for block in reversed(order):
            body = self._calling(self.body(block), made)
            ordered = body if body.is_chain else body.canonical
            tied = not ordered.is_canonical and not ordered.is_chain
            made[block] = replace(body, tags=self._tags(block)) if tied else ordered
        return self._calling(self.main, made), made

    def _tags(self, block: Block) -> tuple[str, ...]:
        """What tells the parameters of a block from each other: all that they are at its calls."""
        rows = set()
        for owner in (None, *self.kept):
            calls = [n.spec for n in self._graph(owner).nodes if n.spec.callee is block]
            tags = self._tags(owner) if owner is not None and calls else ()
            for s in calls:
                rows.add(tuple([tags[a.index] if isinstance(a, Param) else a.tag for a in s.handed]))
        return tuple([" ".join(sorted(set(column))) for column in zip(*rows, strict=True)])

    def _calling(self, graph: Block, blocks: dict[Block, Block]) -> Block:
        """The graph with blocks called as what they have become, if its order depends on what they do."""
        if graph.is_chain or not any(n.spec.callee in blocks for n in graph.nodes):
            return graph
        nodes = []
        for n in graph.nodes:
            callee = n.spec.callee
            done = call_spec(blocks[callee], n.spec.handed) if callee in blocks else n.spec
            nodes.append(Node(done, n.values, n.outs))
        return graph.with_nodes(nodes)


@remembered
def _shared(body: Block, calls: tuple[tuple[Given, ...], ...]) -> tuple[Block, list[int] | None]:
    """A block with one parameter in the place of all that are the same at every call.

    Returns:
        The block, and which of its parameters are left; None if all are.
    """
    columns = list(zip(*calls, strict=True))
    places: dict[tuple[Given, ...], int] = {}
    slots = [places.setdefault(column, len(places)) for column in columns]
    if len(places) == len(columns):
        return body, None
    given: list[Given] = [param(k, c[0].sort, c[0].is_matrix) for k, c in zip(slots, columns, strict=True)]
    return _with_params(body, tuple(given)), [slots.index(k) for k in range(len(places))]


def _of_known_regions(network: Block) -> tuple[Block, dict[Block, Block]] | None:
    """The outline of a chain of operators and called regions, if these repeat but nothing within them does.

    What such regions consist of does not matter then, so that it is enough to look once at networks that
    differ in nothing else.
    """
    if not network.is_chain:
        return None
    places: dict[Block, int] = {}
    row: list[Spec | tuple[int, tuple[Given, ...]]] = []
    for n in network.nodes:
        called = n.spec.callee
        if called is None or called.is_chain:
            row.append(n.spec)
        elif called.is_part:
            row.append(part_call(n.spec))
        else:
            place = places.setdefault(called, len(places))
            row.append((place, tuple(n.spec.handed)))
    times = Counter(n.spec.callee for n in network.nodes)
    seen = [part.labels for b in places for part in (b, *inner_regions(b)) if is_worth(2, len(part.nodes))]
    if len(set(seen)) < len(seen) or not all(
        b.is_canonical and is_worth(times[b], len(b.nodes)) for b in places
    ):
        return None
    found = _of_row(tuple(row), network.input_types, network.output_types)
    if found is None:
        return None
    main, bodies, params = found
    known = {b: _with_params(region, params[b]) for b, region in zip(params, places, strict=True)}
    return main, bodies | known


@remembered
def _of_row(
    row: tuple[Spec | tuple[int, tuple[Given, ...]], ...],
    input_types: tuple[str, ...],
    output_types: tuple[str, ...],
) -> tuple[Block, dict[Block, Block], dict[Block, tuple[Given, ...]]] | None:
    """The outline of a chain, its regions given by their number and leaves.

    Returns:
        The network; its blocks; and for each region, which is one of them under another name, the parameters
        that take the place of its own. None if a region is no block.
    """
    nodes, regions = [], {}
    for i, s in enumerate(row):
        if not isinstance(s, Spec):
            number, handed = s
            regions[number] = _stand_in(number, tuple([(a.sort, a.is_matrix) for a in handed]))
            s = call_spec(regions[number], handed)
        nodes.append(Node(s, (i,), (i + 1,)))
    main, bodies = _Outline(Block((0,), (len(row),), nodes, input_types, output_types)).outlined()
    ordered = [regions[k] for k in range(len(regions))]
    if not all(b in bodies for b in ordered):
        return None
    return main, bodies, {b: tuple(bodies[b].nodes[0].spec.handed) for b in ordered}


@remembered
def _stand_in(number: int, leaves: tuple[tuple[str, bool], ...]) -> Block:
    """A block for a region: unlike all others, no part, and worth a block if it repeats."""
    params = [param(i, *sort) for i, sort in enumerate(leaves)]
    first = Node(Spec(f"region {number}", "", (..., ..., *params), None), (0, 0), (1, -1))
    more = Spec(f"region {number}", "", (...,), None)
    rest = [Node(more, (i,), (i + 1,)) for i in range(1, LEAST_SAVING + 1)]
    return Block((0,), rest[-1].outs, [first, *rest], is_canonical=True)


@remembered
def _with_params(block: Block, params: tuple[Given, ...]) -> Block:
    """A block with others in the place of its parameters."""
    return block.with_specs([substituted(n.spec, params) for n in block.nodes])


def _first(pair: tuple[int, Given]) -> int:
    return pair[0]
