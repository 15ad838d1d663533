"""Layers: a weight matrix and the pointwise operators around it (ReLU-Conv-BN) become one block.

Their text is the same in every network, so they are made once and remembered.
"""

from __future__ import annotations

from itertools import pairwise

from nas_rlm.graph.cache import remembered
from nas_rlm.graph.ir import FRESH, Block, Given, Node, Spec, call_spec, param, uses

POINTWISE = {
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"),
    *("Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu"),
    *("Celu", "Softplus", "Softsign", "Gelu", "Mish", "Swish", "Add", "Sub", "Mul", "Div"),
}


def layered(block: Block) -> Block:
    """The graph without dead code, each of its layers of two operators or more a call."""
    nodes = needed(block)
    live = Block(block.inputs, block.outputs, nodes)
    ends: dict[int, list[Node]] = {}  # the last node of a chain: what the chain becomes
    gone: set[int] = set()
    for chain in chains(live):
        made = _cut(tuple([s for i in chain for s in nodes[i].spec.chain]))
        if len(made) == len(chain) and all(s is nodes[i].spec for s, i in zip(made, chain, strict=True)):
            continue
        values = [next(FRESH) for _ in made[1:]]
        first, last = nodes[chain[0]], nodes[chain[-1]]
        places = [*first.values, *values, *last.outs]
        ends[chain[-1]] = [Node(s, (a,), (b,)) for s, (a, b) in zip(made, pairwise(places), strict=True)]
        gone.update(chain)
    if gone:
        nodes = [m for i, n in enumerate(nodes) if i in ends or i not in gone for m in ends.get(i, (n,))]
    return Block(block.inputs, block.outputs, nodes, block.input_types, block.output_types)


def chains(block: Block) -> list[list[int]]:
    """Maximal runs of nodes, each the only reader of the one before, which is all that it reads."""
    readers = uses(block)
    outputs = set(block.outputs)
    found: list[list[int]] = []
    open_at: dict[int, list[int]] = {}  # the value that a chain ends with so far
    for i, n in enumerate(block.nodes):
        if len(n.values) != 1 or len(n.outs) != 1:
            continue
        chain = open_at.pop(n.values[0], None)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(i)
        v = n.outs[0]
        if len(readers[v]) == 1 and v not in outputs:
            open_at[v] = chain
    return found


def needed(block: Block) -> list[Node]:
    """The nodes that the outputs depend on."""
    read = set(block.outputs)
    kept = []
    for n in reversed(block.nodes):
        if not read.isdisjoint(n.outs):
            read.update(n.values)
            kept.append(n)
    kept.reverse()
    return kept


@remembered
def _cut(chain: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """A chain of operators with its layers as calls.

    What precedes the first matrix of a run of matrices and pointwise operators (ReLU, where activation comes
    first) precedes the others too; all else follows its matrix.
    """
    made: list[Spec] = []
    run: list[Spec] = []
    for s in (*chain, None):
        if s is not None and s.callee is None and (s.is_matrix or s.op in POINTWISE):
            run.append(s)
            continue
        made += _layers(run)
        run = []
        if s is not None:
            made.append(s)
    return tuple(made)


def _layers(run: list[Spec]) -> list[Spec]:
    matrices = [k for k, s in enumerate(run) if s.is_matrix]
    if not matrices:
        return run
    ops = [s.op for s in run]
    prefix = ops[: matrices[0]]
    starts = [0]
    for k in matrices[1:]:
        before = k - len(prefix)
        starts.append(before if before > starts[-1] and ops[before:k] == prefix else k)
    return [layer(tuple(run[a:b])) if b > a + 1 else run[a] for a, b in pairwise([*starts, len(run)])]


@remembered
def layer(specs: tuple[Spec, ...]) -> Spec:
    """The call of a layer; leaves that are one are handed over once."""
    places: dict[Given, int] = {}
    bare = []
    for s in specs:
        given: list[Given] = []
        for a in s.handed:
            if a.is_fixed:
                given.append(a)
            else:
                given.append(param(places.setdefault(a, len(places)), a.sort, a.is_matrix))
        bare.append(s.handing(given))
    return call_spec(_layer(tuple(bare)), places)


@remembered
def _layer(specs: tuple[Spec, ...]) -> Block:
    nodes = [Node(s, (i,), (i + 1,)) for i, s in enumerate(specs)]
    return Block((0,), (len(specs),), nodes, is_canonical=True)
