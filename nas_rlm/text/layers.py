"""Layers: a weight matrix and the element-wise operators around it, such as ReLU-Conv-BN, become one block.

A matrix here is any operator with a weight of two or more dimensions. The text of a layer is the same in
every network, so that layers are cached.
"""

from __future__ import annotations

from itertools import pairwise

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import VALUE_IDS, Block, Node, Spec, StaticInput, call_spec, param

POINTWISE = {
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"),
    *("Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu"),
    *("Celu", "Softplus", "Softsign", "Gelu", "Mish", "Swish", "Add", "Sub", "Mul", "Div"),
}


def with_layer_calls(block: Block) -> Block:
    """Return the graph without dead code, with each layer of two or more operators as a call."""
    nodes = live_nodes(block)
    live = Block(block.inputs, block.outputs, nodes)
    replacements: dict[int, list[Node]] = {}  # nodes that replace a chain, by the position of its last node
    replaced: set[int] = set()
    for chain in find_chains(live):
        specs = tuple([nodes[i].spec for i in chain])
        grouped = _group_layers(tuple([part for s in specs for part in s.chain]))
        if grouped == specs:
            continue
        first, last = nodes[chain[0]], nodes[chain[-1]]
        values = [*first.values, *[next(VALUE_IDS) for _ in grouped[1:]], *last.outs]
        steps = zip(grouped, pairwise(values), strict=True)
        replacements[chain[-1]] = [Node(s, (a,), (b,)) for s, (a, b) in steps]
        replaced.update(chain)
    if replaced:
        nodes = [
            m
            for i, n in enumerate(nodes)
            if i in replacements or i not in replaced
            for m in replacements.get(i, (n,))
        ]
    return Block(block.inputs, block.outputs, nodes, block.input_types, block.output_types)


def find_chains(block: Block) -> list[list[int]]:
    """Return the positions of the nodes of each chain that cannot be extended.

    Each node of a chain reads only the output of the previous one, and no other node reads it.
    """
    num_reads = dict.fromkeys(block.outputs, 2)  # an output is read outside of the graph, too
    for n in block.nodes:
        for v in n.values:
            num_reads[v] = num_reads.get(v, 0) + 1
    chains: list[list[int]] = []
    chain_by_end: dict[int, list[int]] = {}  # chains that can be extended, by their last value
    for i, n in enumerate(block.nodes):
        if len(n.values) != 1 or len(n.outs) != 1:
            continue
        chain = chain_by_end.pop(n.values[0], None)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(i)
        v = n.outs[0]
        if num_reads.get(v) == 1:
            chain_by_end[v] = chain
    return chains


def live_nodes(block: Block) -> list[Node]:
    """Return the nodes that the outputs depend on."""
    needed = set(block.outputs)
    live = []
    for n in reversed(block.nodes):
        if not needed.isdisjoint(n.outs):
            needed.update(n.values)
            live.append(n)
    live.reverse()
    return live


@memoized
def _group_layers(chain: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Return a chain of operators with its layers as calls.

    A run is a part of the chain without other operators than matrices and element-wise ones. If it starts
    with element-wise operators, such as the ReLU of pre-activation networks, the same operators also start
    the following layers. Any other operator belongs to the layer of the preceding matrix.
    """
    grouped: list[Spec] = []
    run: list[Spec] = []
    for s in (*chain, None):
        if s is not None and s.callee is None and (s.is_matrix or s.op in POINTWISE):
            run.append(s)
            continue
        grouped += _split_run(run)
        run = []
        if s is not None:
            grouped.append(s)
    return tuple(grouped)


def _split_run(run: list[Spec]) -> list[Spec]:
    """Return a run of matrices and element-wise operators with its layers as calls."""
    matrices = [k for k, s in enumerate(run) if s.is_matrix]
    if not matrices:
        return run
    ops = [s.op for s in run]
    prefix = ops[: matrices[0]]
    starts = [0]
    for k in matrices[1:]:
        start = k - len(prefix)
        starts.append(start if start > starts[-1] and ops[start:k] == prefix else k)
    return [layer_call(tuple(run[a:b])) if b > a + 1 else run[a] for a, b in pairwise([*starts, len(run)])]


@memoized
def layer_call(specs: tuple[Spec, ...]) -> Spec:
    """Return the call of the layer of these operators; equal leaves share one argument."""
    arguments: dict[StaticInput, int] = {}
    body = []
    for s in specs:
        params: list[StaticInput] = []
        for a in s.leaves:
            if a.is_fixed:
                params.append(a)
            else:
                params.append(param(arguments.setdefault(a, len(arguments)), a.signature, a.is_matrix))
        body.append(s.with_leaves(params))
    return call_spec(_layer_block(tuple(body)), arguments)


@memoized
def _layer_block(specs: tuple[Spec, ...]) -> Block:
    """Return the chain of these operators as a block."""
    nodes = [Node(s, (i,), (i + 1,)) for i, s in enumerate(specs)]
    return Block((0,), (len(specs),), nodes, is_canonical=True)
