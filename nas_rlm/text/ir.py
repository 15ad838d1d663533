"""The graph that the text is made from: nodes, leaves and blocks, and their canonical order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

COMMUTATIVE = {"Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"}
GROUP = "group"  # the type of a leaf that is a convolution's group attribute
MOST_OF_A_PART = 10
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Leaf:
    """What no node computes: a weight, known by shape; a small constant or a group attribute, by value.

    Args:
        type, shape: of the tensor.
        value: of a constant.
        is_size: a constant that goes with the sizes of the weights, as the shape that Reshape gives does.
    """

    type: str
    shape: tuple[int, ...]
    value: str | None = None
    is_size: bool = False

    @property
    def sort(self) -> str:
        """What is left when sizes may differ between repeats of a block."""
        if self.value is None:
            return f"{self.type}{'[]' * len(self.shape)}"
        return self.type if self.is_size else f"{self.type}{list(self.shape)}={self.value}"

    @property
    def is_fixed(self) -> bool:
        """Whether it is a part of each block that reads it, and not handed over."""
        return self.value is not None and not self.is_size

    @property
    def is_matrix(self) -> bool:
        return self.value is None and len(self.shape) >= 2

    @property
    def is_zero(self) -> bool:
        return self.value is not None and self.type == "float" and float(self.value) == 0.0


@dataclass(frozen=True)
class Param:
    """The k-th leaf that a block's caller hands over."""

    index: int
    sort: str
    is_matrix: bool = False


Arg = int | Leaf | Param | None  # an int is a value that a node computes; None an input left out


@dataclass
class Node:
    """One operator, or a call of a block: arguments in order, and the values it defines."""

    op: str
    args: tuple[Arg, ...]
    outs: tuple[int, ...]
    attrs: str = ""
    callee: Block | None = None

    @cached_property
    def values(self) -> list[int]:
        return [a for a in self.args if isinstance(a, int)]

    @cached_property
    def leaves(self) -> list[Leaf | Param]:
        return [a for a in self.args if isinstance(a, Leaf | Param)]

    @cached_property
    def label(self) -> str:
        """What the node does, its leaves known only by their sort."""
        op = f"call:{stable_hash(self.callee.signature()):x}" if self.callee else self.op
        args = ["_" if isinstance(a, int) else "" if a is None else a.sort for a in self.args]
        return f"{op}{self.attrs}({','.join(sorted(args) if self.commutes else args)})"

    @cached_property
    def commutes(self) -> bool:
        return self.callee is None and self.op in COMMUTATIVE

    @property
    def is_zeroing(self) -> bool:
        """A product with the constant zero: what flows in is computed but never matters."""
        return self.op == "Mul" and any(isinstance(a, Leaf) and a.is_zero for a in self.args)


@dataclass
class Block:
    """A graph with inputs and outputs: the network itself, or the body of one of its functions."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: list[Node]
    params: int = 0
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    is_canonical: bool = False
    _signature: str = field(default="", repr=False)

    @property
    def is_chain(self) -> bool:
        """Each node reads just what the one before wrote, so that the wiring says nothing."""
        last: Sequence[int] = self.inputs
        for node in self.nodes:
            if len(last) != 1 or node.values != [last[0]]:
                return False
            last = node.outs
        return len(self.inputs) == 1 and tuple(last) == self.outputs

    def signature(self) -> str:
        """The structure, as text: equal for blocks that differ only in shapes and integer constants."""
        if not self._signature:
            self._signature = structure(self)
        return self._signature


@lru_cache(maxsize=65536)
def stable_hash(text: str) -> int:
    """A 64-bit hash that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(*parts: int) -> int:
    """A 64-bit hash of integers in their order, the same everywhere."""
    h = 0x9E3779B97F4A7C15
    for p in parts:
        h = ((h ^ p) * 0xD6E8FEB86659FD93) & _MASK
        h ^= h >> 32
    return h


def canonical(block: Block) -> Block:
    """The same graph with its nodes in an order that depends on the graph alone, dead code left out.

    Values are coloured from the inputs up and from the outputs down, then visited depth first from the
    outputs; operands of commutative operators are visited, and kept, deepest first.
    """
    nodes = block.nodes
    if block.is_canonical or (block.is_chain and not any(n.commutes for n in nodes)):
        return block
    producer = {v: i for i, n in enumerate(nodes) for v in n.outs}
    labels = [stable_hash(n.label) for n in nodes]
    exact = [stable_hash(repr([a for a in n.args if isinstance(a, Leaf | Param)])) for n in nodes]
    up: dict[int, int] = {v: mix(1, i) for i, v in enumerate(block.inputs)}
    depth: dict[int, int] = dict.fromkeys(block.inputs, 0)
    for i, n in enumerate(nodes):
        above = [up[v] for v in n.values]
        h = mix(labels[i], *(sorted(above) if n.commutes else above))
        d = 1 + max((depth[v] for v in n.values), default=0)
        for k, v in enumerate(n.outs):
            up[v], depth[v] = mix(h, k), d
    below: dict[int, list[int]] = {v: [] for v in up}
    for k, v in enumerate(block.outputs):
        below[v].append(mix(2, k))
    colour: dict[int, int] = {}
    for i in range(len(nodes) - 1, -1, -1):
        n = nodes[i]
        for v in n.outs:
            colour[v] = mix(up[v], *sorted(below[v]))
        h = mix(labels[i], *(colour[v] for v in n.outs))
        for k, v in enumerate(n.values):
            below[v].append(h if n.commutes else mix(h, k))
    for v in block.inputs:
        colour[v] = mix(up[v], *sorted(below[v]))
    shaped: dict[int, int] = dict(colour)
    for i, n in enumerate(nodes):
        above = [shaped[v] for v in n.values]
        h = mix(exact[i], *(sorted(above) if n.commutes else above))
        for v in n.outs:
            shaped[v] = mix(colour[v], h)

    def operands(n: Node) -> tuple[Arg, ...]:
        if not n.commutes:
            return n.args
        values = sorted(n.values, key=lambda v: (-depth[v], colour[v], shaped[v]))
        leaves = sorted(n.leaves, key=lambda a: (a.sort, repr(a)))
        return (*values, *leaves)

    placed: list[Node] = []
    done = [False] * len(nodes)
    for out in block.outputs:
        stack = [(producer[out], False)] if out in producer else []
        while stack:
            i, ready = stack.pop()
            if done[i]:
                continue
            n = nodes[i]
            args = operands(n)
            if ready:
                done[i] = True
                placed.append(Node(n.op, args, n.outs, n.attrs, n.callee))
                continue
            stack.append((i, True))
            pending = [producer[a] for a in args if isinstance(a, int) and a in producer]
            stack.extend((p, False) for p in reversed(pending) if not done[p])
    return Block(
        block.inputs, block.outputs, placed, block.params, block.input_types, block.output_types, True
    )


def structure(block: Block) -> str:
    """The canonical form as text, leaves by their sort and values by number."""
    ordered = canonical(block)
    number = {v: i for i, v in enumerate(ordered.inputs)}
    lines = []
    for n in ordered.nodes:
        for v in n.outs:
            number[v] = len(number)
        args = ",".join(str(number[a]) if isinstance(a, int) else "" if a is None else a.sort for a in n.args)
        op = f"[{n.callee.signature()}]" if n.callee else n.op
        lines.append(f"{len(n.outs)}:{op}{n.attrs}({args})")
    return ";".join([*lines, ",".join(str(number[v]) for v in ordered.outputs)])


def uses(block: Block) -> dict[int, list[int]]:
    """For each value, the positions of the nodes that read it (a node once for each time it reads it)."""
    found: dict[int, list[int]] = {v: [] for v in block.inputs}
    for i, n in enumerate(block.nodes):
        for v in n.values:
            found[v].append(i)
        for v in n.outs:
            found[v] = []
    return found


def is_part(block: Block) -> bool:
    """A short chain with shortcuts: each node reads the one before, a few read an earlier value as well."""
    if not 2 <= len(block.nodes) <= MOST_OF_A_PART or len(block.inputs) != 1 or block.is_chain:
        return False
    before = block.inputs[0]
    for n in block.nodes:
        if len(n.outs) != 1 or before not in n.values:
            return False
        before = n.outs[0]
    return block.outputs == (before,)


def live_values(block: Block) -> set[int]:
    """Values that carry the input to the output: not cut off from either by a product with zero."""
    forward = set(block.inputs)
    for n in block.nodes:
        if not n.is_zeroing and any(v in forward for v in n.values):
            forward.update(n.outs)
    backward = set(block.outputs)
    for n in reversed(block.nodes):
        if not n.is_zeroing and any(v in backward for v in n.outs):
            backward.update(n.values)
    return forward & backward
