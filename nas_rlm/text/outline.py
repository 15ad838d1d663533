"""Outlining: repeated subgraphs become blocks, which are defined once and called where they occur.

Subgraphs become blocks in this order:

1. layers, always: a weight matrix and the element-wise operators around it, such as ReLU-Conv-BN;
2. regions that repeat: from a value that several nodes read to the node where all its paths have joined, such
   as a cell with one input;
3. units, always: short chains with shortcuts, such as a residual unit or squeeze-and-excitation;
4. cells that repeat: groups of nodes that read only the outputs of the two previous groups;
5. sequences that shorten the text: runs along a chain of nodes, such as a stage of five equal cells.

Layers and units become blocks even if they do not repeat, so that their text is the same in every network.
Any other block that has a single call in the end, such as a region within a sequence, is inlined again.
"""

from __future__ import annotations

from collections import Counter

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import Block, Node, Spec, StaticInput, call_spec, param
from nas_rlm.text.outliner import Outliner, with_params
from nas_rlm.text.regions import inner_regions, unit_call
from nas_rlm.text.repeats import MIN_SAVING, saves_enough


def outline(network: Block) -> tuple[Block, dict[Block, Block]]:
    """Return a network with its repeated subgraphs as calls of blocks.

    Args:
        network: graph of layers and operators. Regions may already be calls, see `regions.call_node`; this
            saves time and does not change the result.

    Returns:
        The graph with calls, and the final bodies of called blocks that have changed. Inlining all calls
        gives the flat graph again.
    """
    outlined = _outline_chain_of_regions(network)
    return Outliner(network).outlined() if outlined is None else outlined


def _outline_chain_of_regions(network: Block) -> tuple[Block, dict[Block, Block]] | None:
    """Outline a chain of operators and calls of regions; return None for any other network.

    All regions have to repeat, but nothing within them. The contents of the regions then do not matter, so
    that networks that differ only in them share one cached outline.
    """
    if not network.is_chain:
        return None
    numbers: dict[Block, int] = {}
    row: list[Spec | tuple[int, tuple[StaticInput, ...]]] = []
    for n in network.nodes:
        callee = n.spec.callee
        if callee is None or callee.is_chain:
            row.append(n.spec)
        elif callee.is_unit:
            row.append(unit_call(n.spec))
        else:
            row.append((numbers.setdefault(callee, len(numbers)), tuple(n.spec.leaves)))
    times = Counter(n.spec.callee for n in network.nodes)
    labels = [
        region.labels
        for block in numbers
        for region in (block, *inner_regions(block))
        if saves_enough(2, len(region.nodes))
    ]
    is_repeated_inside = len(set(labels)) < len(labels)
    if is_repeated_inside or not all(
        b.is_canonical and saves_enough(times[b], len(b.nodes)) for b in numbers
    ):
        return None
    outlined = _outline_row(tuple(row), network.input_types, network.output_types)
    if outlined is None:
        return None
    main, bodies, params = outlined
    regions = {b: with_params(region, params[b]) for b, region in zip(params, numbers, strict=True)}
    return main, bodies | regions


@memoized
def _outline_row(
    row: tuple[Spec | tuple[int, tuple[StaticInput, ...]], ...],
    input_types: tuple[str, ...],
    output_types: tuple[str, ...],
) -> tuple[Block, dict[Block, Block], dict[Block, tuple[StaticInput, ...]]] | None:
    """Outline a chain of operators and calls of regions.

    Args:
        row: for each node its operation, or for a region its number and the leaves that the call passes.
        input_types: ONNX types of the network's inputs.
        output_types: ONNX types of the network's outputs.

    Returns:
        The network, its bodies, and for the placeholder of each region the parameters that replace those of
        the region; None if a region does not become a function.
    """
    nodes, placeholders = [], {}
    for i, s in enumerate(row):
        if not isinstance(s, Spec):
            number, leaves = s
            placeholders[number] = _placeholder(number, tuple([(a.signature, a.is_matrix) for a in leaves]))
            s = call_spec(placeholders[number], leaves)
        nodes.append(Node(s, (i,), (i + 1,)))
    main, bodies = Outliner(Block((0,), (len(row),), nodes, input_types, output_types)).outlined()
    ordered = [placeholders[k] for k in range(len(placeholders))]
    if not all(b in bodies for b in ordered):
        return None
    return main, bodies, {b: tuple(bodies[b].nodes[0].spec.leaves) for b in ordered}


@memoized
def _placeholder(number: int, leaves: tuple[tuple[str, bool], ...]) -> Block:
    """Return a block in place of a region: equal to no other block, no unit, long enough to be outlined."""
    params = [param(i, *properties) for i, properties in enumerate(leaves)]
    first = Node(Spec(f"region {number}", "", (..., ..., *params), None), (0, 0), (1, -1))
    operation = Spec(f"region {number}", "", (...,), None)
    rest = [Node(operation, (i,), (i + 1,)) for i in range(1, MIN_SAVING + 1)]
    return Block((0,), rest[-1].outs, [first, *rest], is_canonical=True)
