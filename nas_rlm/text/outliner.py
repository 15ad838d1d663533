"""The choice of repeated subgraphs that become functions; see `nas_rlm.text.outline`."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import NamedTuple

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.canonical_order import Form
from nas_rlm.graph.ir import MAX_UNIT_NODES, Block, Node, Param, Spec, StaticInput, call_spec, param
from nas_rlm.graph.limits import check_time
from nas_rlm.text.layers import find_chains
from nas_rlm.text.regions import (
    Region,
    call_node,
    extract_subgraph,
    find_regions,
    inline_call,
    replace_with_calls,
    substitute_params,
    unit_call,
    with_unit_calls,
)
from nas_rlm.text.repeats import best_runs, find_cells, order_by_dependencies, saves_enough


class _Candidate(NamedTuple):
    """A subgraph that may become a block.

    Args:
        owner: block that contains the subgraph; None for the network.
        positions: positions of the nodes in the owner; empty for the owner itself.
        times: number of calls of the owner, so of occurrences of the subgraph.
        region: the subgraph.
    """

    owner: Block | None
    positions: list[int]
    times: int
    region: Block


class Outliner:
    """Chooses the blocks of a network that become functions.

    Args:
        main: graph of the network.

    Attributes:
        main: graph of the network, with the calls so far.
        functions: blocks that become functions.
        undecided: called regions that may become functions or be inlined, with their number of calls; lengths
            are counted as if they were inlined.
        bodies: current bodies of called blocks that have changed.
    """

    def __init__(self, main: Block) -> None:
        self.main = main
        self.functions: list[Block] = []
        self.undecided: Counter[Block] = Counter()
        for n in main.nodes:
            if n.spec.callee is not None and not n.spec.callee.is_chain:
                self.undecided[n.spec.callee] += 1
        self.bodies: dict[Block, Block] = {}

    def outlined(self) -> tuple[Block, dict[Block, Block]]:
        """Outline the network; see `outline` for the result."""
        while self.outline_region():
            pass
        self.inline_undecided()
        if not self.main.is_chain:
            self.outline_units()
            self.outline_cells()
        while self.outline_sequence():
            pass
        while self.inline_single_call():
            pass
        return self.result()

    def body(self, block: Block) -> Block:
        """Return the current body of a called block."""
        return self.bodies.get(block, block)

    def outline_region(self) -> bool:
        """Make a function of the repeated region that saves most nodes; return False if none saves enough."""
        candidates = self._candidates()
        labels = [c.region.labels for c in candidates]
        times_by_labels: Counter[tuple[int, ...]] = Counter()
        for key, c in zip(labels, candidates, strict=True):
            times_by_labels[key] += c.times
        groups: dict[Form, list[_Candidate]] = defaultdict(list)
        times: Counter[Form] = Counter()
        lengths: dict[Form, int] = {}
        for key, c in zip(labels, candidates, strict=True):
            if times_by_labels[key] < 2:
                continue
            length = self._length(c.region)
            if saves_enough(times_by_labels[key], length):
                form = c.region.canonical.form
                groups[form].append(c)
                times[form] += c.times
                lengths[form] = length
        new = {
            f for f, group in groups.items() if any(c.positions or c.owner in self.undecided for c in group)
        }
        repeated = [f for f, n in times.items() if f in new and saves_enough(n, lengths[f])]
        if not repeated:
            return False
        self._make_function(groups[max(repeated, key=lambda f: ((times[f] - 1) * lengths[f], lengths[f], f))])
        return True

    def _candidates(self) -> list[_Candidate]:
        """Return the regions of the network and its blocks, and the blocks themselves.

        Regions that differ from all others in their number of nodes are left out, since they do not repeat.
        """
        owners: list[tuple[Block | None, int]] = [
            (None, 1),
            *self.undecided.items(),
            *((b, 1) for b in self.functions),
        ]
        regions: list[tuple[Block | None, Region, int]] = []
        for owner, times in owners:
            check_time()
            graph = self._graph(owner)
            for region in find_regions(graph):
                if owner is None or len(region.positions) < len(graph.nodes):
                    regions.append((owner, region, times))
        blocks = [(b, times) for b, times in self.undecided.items() if not b.is_unit]
        blocks += [(b, 1) for b in self.functions]
        times_by_size: Counter[int] = Counter()
        for _, region, times in regions:
            times_by_size[len(region.positions)] += times
        for block, times in blocks:
            times_by_size[len(self.body(block).nodes)] += times
        candidates = [
            _Candidate(owner, region.positions, times, region.graph)
            for owner, region, times in regions
            if times_by_size[len(region.positions)] > 1
            and (owner in self.functions or not self._is_unit(region.graph))
        ]
        return candidates + [_Candidate(b, [], times, self.body(b)) for b, times in blocks]

    def _graph(self, owner: Block | None) -> Block:
        """Return the current body of the block `owner`, or the network's graph if it is None."""
        return self.main if owner is None else self.body(owner)

    def _undecided_callee(self, node: Node) -> Block | None:
        """Return the undecided region that a node calls; None if it calls none."""
        callee = node.spec.callee
        return callee if callee in self.undecided else None

    def _length(self, region: Block) -> int:
        """Return the number of nodes of a region with undecided regions inlined."""
        callees = [self._undecided_callee(n) for n in region.nodes]
        return sum([1 if c is None else len(self.body(c).nodes) for c in callees])

    def _is_unit(self, region: Block) -> bool:
        """Return True if a region is a unit, also with undecided regions inlined."""
        return (
            region.is_unit
            and self._length(region) <= MAX_UNIT_NODES
            and all((c := self._undecided_callee(n)) is None or c.is_unit for n in region.nodes)
        )

    def _make_function(self, group: list[_Candidate]) -> None:
        """Make one function of equal regions, which may include called blocks."""
        function = next((c.owner for c in group if c.owner is not None and not c.positions), None)
        positions_by_owner: dict[Block | None, list[list[int]]] = defaultdict(list)
        for c in group:
            if c.positions:
                positions_by_owner[c.owner].append(c.positions)
        for owner, runs in positions_by_owner.items():
            graph = self._graph(owner)
            calls = [call_node(self._with_undecided_inlined(extract_subgraph(graph, run))) for run in runs]
            if function is None:
                function = calls[0].spec.callee
            assert function is not None
            calls = [Node(self._redirected(n.spec, function), n.values, n.outs) for n in calls]
            self._set_graph(owner, replace_with_calls(graph, list(zip(runs, calls, strict=True))))
        assert function is not None
        if function not in self.functions:
            self.functions.append(function)
        remaining = [b for n in self.main.nodes if (b := self._undecided_callee(n)) is not None]
        self.undecided = Counter([b for b in remaining if b is not function])

    def _set_graph(self, owner: Block | None, graph: Block) -> None:
        """Replace the body of the block `owner`, or the network's graph if it is None."""
        if owner is None:
            self.main = graph
        else:
            self.bodies[owner] = graph

    def _redirected(self, call: Spec, function: Block) -> Spec:
        """Return a call of `function` in place of the call of an equal block, with its leaves reordered."""
        if call.callee is function:
            return call
        ordered = self.body(function).canonical
        indices = [a.index for n in ordered.nodes for a in n.spec.leaves if isinstance(a, Param)]
        return call_spec(function, [a for _, a in sorted(zip(indices, call.leaves, strict=True), key=_first)])

    def inline_undecided(self) -> None:
        """Inline regions that did not become functions, except units; then merge equal parameters."""
        self.main = self._with_undecided_inlined(self.main, keep_units=True)
        self.undecided.clear()
        for block in self._callers_first():
            self._merge_params(block)

    def _with_undecided_inlined(self, graph: Block, keep_units: bool = False) -> Block:
        """Return a graph with undecided regions inlined; units stay calls if `keep_units` is set."""
        if not self.undecided:
            return graph
        nodes: list[Node] = []
        for n in graph.nodes:
            callee = self._undecided_callee(n)
            if callee is None:
                nodes.append(n)
            elif keep_units and callee.is_unit:
                nodes.append(Node(unit_call(n.spec), n.values, n.outs))
            else:
                nodes += inline_call(self.body(callee), n.values, n.outs, n.spec.leaves)
        return graph.with_nodes(nodes)

    def _callers_first(self) -> list[Block]:
        """Return the functions, callers before the functions that they call."""
        callees = {b: {n.spec.callee for n in self.body(b).nodes} for b in self.functions}
        order: list[Block] = []
        while len(order) < len(self.functions):
            check_time()
            order += [
                b
                for b in self.functions
                if b not in order and all(c in order for c in self.functions if b in callees[c])
            ]
        return order

    def _merge_params(self, block: Block) -> None:
        """Merge parameters of a block for which every call passes equal leaves."""
        check_time()
        owners: list[Block | None] = [None, *self.functions]
        calls = [n.spec for o in owners for n in self._graph(o).nodes if n.spec.callee is block]
        body, params = _with_merged_params(
            self.body(block), tuple([tuple(s.leaves) for s in dict.fromkeys(calls)])
        )
        if params is None:
            return
        self.bodies[block] = body
        shorter = {s: call_spec(block, [s.leaves[i] for i in params]) for s in dict.fromkeys(calls)}
        for o in owners:
            graph = self._graph(o)
            if any(n.spec in shorter for n in graph.nodes):
                self._set_graph(o, graph.with_specs([shorter.get(n.spec, n.spec) for n in graph.nodes]))

    def outline_units(self) -> None:
        """Replace units by calls; units that call a function become functions, since they change with it."""
        self.main = self._with_current_calls(with_unit_calls(self.main)).canonical
        units = [c for n in self.main.nodes if (c := n.spec.callee) is not None and c not in self.functions]
        num_before = len(self.functions)
        for unit in dict.fromkeys(units):
            self._add_if_it_calls_function(unit)
        for unit in reversed(self.functions[num_before:]):
            self._merge_params(unit)

    def _with_current_calls(self, graph: Block) -> Block:
        """Return a graph with a unit inlined if it equals a function whose parameters were merged."""
        nodes: list[Node] = []
        for n in graph.nodes:
            callee = n.spec.callee
            if callee in self.bodies and len(n.spec.leaves) != _num_params(self.bodies[callee]):
                nodes += inline_call(callee, n.values, n.outs, n.spec.leaves)
            else:
                nodes.append(n)
        return graph.with_nodes(nodes)

    def _add_if_it_calls_function(self, unit: Block) -> bool:
        """Make a function of a unit if it or an inner unit calls a function; return True if so."""
        callees = [c for n in unit.nodes if (c := n.spec.callee) is not None]
        is_function = [c in self.functions or self._add_if_it_calls_function(c) for c in callees]
        if any(is_function):
            self.functions.append(unit)
        return any(is_function)

    def outline_cells(self) -> None:
        """Make functions of repeated cells; a cell reads only the outputs of the two previous cells."""
        graph = order_by_dependencies(self.main)
        cells = [(p, extract_subgraph(graph, p)) for p in find_cells(graph) if len(p) > 1]
        times = Counter([cell.labels for _, cell in cells])
        calls = [(p, call_node(cell)) for p, cell in cells if saves_enough(times[cell.labels], len(p))]
        num_calls = Counter([n.spec.callee for _, n in calls])
        repeated = [(p, n) for p, n in calls if saves_enough(num_calls[n.spec.callee], len(p))]
        if repeated:
            self.main = graph
            self._make_functions(repeated)

    def _make_functions(self, calls: list[tuple[list[int], Node]]) -> bool:
        """Make functions of subgraphs of the network.

        A subgraph stays inline if a function of it exists whose parameters were merged: its calls pass other
        arguments.

        Args:
            calls: positions of the nodes of each subgraph, and the call that replaces them.

        Returns:
            False if all stay inline.
        """
        calls = [(positions, n) for positions, n in calls if n.spec.callee not in self.bodies]
        self.main = replace_with_calls(self.main, calls)
        for block in dict.fromkeys(n.spec.callee for _, n in calls):
            assert block is not None
            self.functions.append(block)
            self._merge_params(block)
        return bool(calls)

    def outline_sequence(self) -> bool:
        """Make a function of the repeated run in chains that saves most tokens; return False if none does."""
        check_time()
        nodes = self.main.nodes
        chains = [c for c in find_chains(self.main) if len(c) >= 2]
        symbols: dict[int, int] = {}

        def describe(i: int) -> tuple[int, tuple[StaticInput, ...]]:
            spec = nodes[i].spec
            return symbols.setdefault(spec.label, len(symbols)), tuple(spec.leaves)

        runs = best_runs(tuple([tuple([describe(i) for i in chain]) for chain in chains]))
        positions = [chains[k][start:end] for k, start, end in runs]
        return self._make_functions([(run, call_node(extract_subgraph(self.main, run))) for run in positions])

    def inline_single_call(self) -> bool:
        """Inline a function that has a single call; return False if there is none."""
        check_time()
        owners: list[Block | None] = [None, *self.functions]
        num_calls = Counter(n.spec.callee for o in owners for n in self._graph(o).nodes)
        for o in owners:
            graph = self._graph(o)
            for i, n in enumerate(graph.nodes):
                callee = n.spec.callee
                if callee is not None and num_calls[callee] == 1 and callee in self.functions:
                    inlined = inline_call(self.body(callee), n.values, n.outs, n.spec.leaves)
                    self._set_graph(o, graph.with_nodes([*graph.nodes[:i], *inlined, *graph.nodes[i + 1 :]]))
                    self.functions.remove(callee)
                    return True
        return False

    def result(self) -> tuple[Block, dict[Block, Block]]:
        """Return the network and the final bodies of its functions."""
        bodies: dict[Block, Block] = {}
        for block in reversed(self._callers_first()):
            body = self._with_final_callees(self.body(block), bodies)
            ordered = body if body.is_chain else body.canonical
            is_tied = not ordered.is_canonical and not ordered.is_chain
            bodies[block] = replace(body, tags=self._tags(block)) if is_tied else ordered
        return self._with_final_callees(self.main, bodies), bodies

    def _tags(self, block: Block) -> tuple[str, ...]:
        """Return, for each parameter of a block, the tags of all leaves that calls pass for it."""
        rows = set()
        for owner in (None, *self.functions):
            calls = [n.spec for n in self._graph(owner).nodes if n.spec.callee is block]
            tags = self._tags(owner) if owner is not None and calls else ()
            for s in calls:
                rows.add(tuple([tags[a.index] if isinstance(a, Param) else a.tag for a in s.leaves]))
        return tuple([" ".join(sorted(set(column))) for column in zip(*rows, strict=True)])

    def _with_final_callees(self, graph: Block, bodies: dict[Block, Block]) -> Block:
        """Return a graph that calls the final bodies; a chain is unchanged, since its order is known."""
        if graph.is_chain or not any(n.spec.callee in bodies for n in graph.nodes):
            return graph
        nodes = []
        for n in graph.nodes:
            callee = n.spec.callee
            spec = call_spec(bodies[callee], n.spec.leaves) if callee in bodies else n.spec
            nodes.append(Node(spec, n.values, n.outs))
        return graph.with_nodes(nodes)


@memoized
def _with_merged_params(
    body: Block, calls: tuple[tuple[StaticInput, ...], ...]
) -> tuple[Block, list[int] | None]:
    """Merge parameters of a block for which all calls pass equal leaves.

    Returns:
        The block, and the indices of the parameters that remain; None if all do.
    """
    columns = list(zip(*calls, strict=True))
    indices: dict[tuple[StaticInput, ...], int] = {}
    merged = [indices.setdefault(column, len(indices)) for column in columns]
    if len(indices) == len(columns):
        return body, None
    params: list[StaticInput] = [
        param(k, c[0].signature, c[0].is_matrix) for k, c in zip(merged, columns, strict=True)
    ]
    return with_params(body, tuple(params)), [merged.index(k) for k in range(len(indices))]


@memoized
def with_params(block: Block, params: tuple[StaticInput, ...]) -> Block:
    """Return a block with `params` in place of its parameters, by their indices."""
    return block.with_specs([substitute_params(n.spec, params) for n in block.nodes])


def _num_params(block: Block) -> int:
    """Return the number of parameters of a block."""
    return 1 + max([a.index for n in block.nodes for a in n.spec.leaves if isinstance(a, Param)], default=-1)


def _first(pair: tuple[int, StaticInput]) -> int:
    """Return the first element of a pair, as a sort key."""
    return pair[0]
