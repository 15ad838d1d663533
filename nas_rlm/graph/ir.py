"""The graph that the text is made from: nodes, leaves and blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from types import EllipsisType

from nas_rlm.graph.cache import remembered
from nas_rlm.graph.canonical_order import Form, canonical_order

COMMUTATIVE = {"Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"}
GROUP = "group"  # the type of a leaf that is a convolution's group attribute
MOST_OF_A_PART = 10
FRESH = count(1 << 32)  # values that no graph has yet


@dataclass(frozen=True, eq=False)
class Leaf:
    """What no node computes: a weight, known by shape; a small constant or a group attribute, by value.

    Made by `leaf`, so that equal ones are one object.

    Args:
        type, shape: of the tensor.
        value: of a constant.
        is_size: a constant that goes with the sizes of the weights, as the shape that Reshape gives does.
    """

    type: str
    shape: tuple[int, ...]
    value: str | None
    is_size: bool

    @cached_property
    def sort(self) -> str:
        """What is left when sizes may differ between repeats of a block."""
        if self.value is None:
            return f"{self.type}{'[]' * len(self.shape)}"
        return self.type if self.is_size else f"{self.type}{list(self.shape)}={self.value}"

    @cached_property
    def tag(self) -> str:
        """What tells it from all others."""
        return repr(self)

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


@cache
def leaf(type: str, shape: tuple[int, ...], value: str | None = None, is_size: bool = False) -> Leaf:
    """The leaf of these properties."""
    return Leaf(type, shape, value, is_size)


@dataclass(frozen=True, eq=False)
class Param:
    """The k-th leaf that a block's caller hands over. Made by `param`, so that equal ones are one object."""

    index: int
    sort: str
    is_matrix: bool

    is_fixed = False
    is_zero = False

    @cached_property
    def tag(self) -> str:
        """What tells it from all others of its block."""
        return str(self.index)


@cache
def param(index: int, sort: str, is_matrix: bool = False) -> Param:
    """The parameter of these properties."""
    return Param(index, sort, is_matrix)


Given = Leaf | Param
Pattern = tuple[Given | EllipsisType | None, ...]  # ... is a value that a node computes; None is left out


class Spec:
    """What a node does, but for the values that it reads and defines: an operator, or a call of a block.

    Attributes:
        label: a hash of all but the sizes.
        handed: the leaves, in order.
    """

    __slots__ = (
        *("_chain", "attrs", "callee", "commutes", "handed", "is_matrix", "is_zeroing", "label", "op"),
        "pattern",
    )

    def __init__(
        self, op: str, attrs: str, pattern: Pattern, callee: Block | None, chain: tuple[Spec, ...] = ()
    ) -> None:
        self.op, self.attrs, self.callee = op, attrs, callee
        self._chain = chain
        self.commutes = callee is None and op in COMMUTATIVE
        if self.commutes:
            leaves = sorted((a for a in pattern if isinstance(a, Given)), key=lambda a: (a.sort, a.tag))
            pattern = (*(a for a in pattern if a is ...), *leaves)
        self.pattern = pattern
        self.handed: list[Given] = [a for a in pattern if isinstance(a, Given)]
        does = f"call:{callee.digest:x}" if callee else op
        args = ["_" if a is ... else "" if a is None else a.sort for a in pattern]
        self.label = stable_hash(f"{does}{attrs}({','.join(sorted(args) if self.commutes else args)})")
        self.is_matrix = any(a.is_matrix for a in self.handed)
        self.is_zeroing = op == "Mul" and any(a.is_zero for a in self.handed)

    @property
    def chain(self) -> tuple[Spec, ...]:
        """What it consists of: itself, but for a chain of operators in the place of one."""
        return self._chain or (self,)

    def shown(self, numbers: Sequence[int]) -> str:
        """The same as text, values by number."""
        number = iter(numbers)
        args = [str(next(number)) if a is ... else "" if a is None else a.sort for a in self.pattern]
        does = f"[{self.callee.signature}]" if self.callee else self.op
        return f"{does}{self.attrs}({','.join(args)})"

    def handing(self, leaves: Iterable[Given]) -> Spec:
        """The same with other leaves."""
        given = iter(leaves)
        pattern = tuple([next(given) if isinstance(a, Given) else a for a in self.pattern])
        return spec(self.op, self.attrs, pattern, self.callee)


@remembered
def spec(op: str, attrs: str, pattern: Pattern, callee: Block | None = None) -> Spec:
    """What a node does: equal ones are one object."""
    return Spec(op, attrs, pattern, callee)


def call_spec(callee: Block, handed: Iterable[Given]) -> Spec:
    """What the call of a block does."""
    return spec("", "", (*(...,) * len(callee.inputs), *handed), callee)


@remembered
def chain_spec(chain: tuple[Spec, ...]) -> Spec:
    """Operators that follow each other, as one."""
    if len(chain) == 1:
        return chain[0]
    shown = " ".join(f"{s.label:x}" for s in chain)
    return Spec(shown, "", (..., *(a for s in chain for a in s.handed)), None, chain)


class Node:
    """A node of a graph: what it does, the values it reads in order, and those it defines."""

    __slots__ = ("outs", "spec", "values")

    def __init__(self, spec: Spec, values: tuple[int, ...], outs: tuple[int, ...]) -> None:
        self.spec, self.values, self.outs = spec, values, outs

    @property
    def args(self) -> list[int | Given | None]:
        """Values and leaves as the operator takes them."""
        if len(self.values) == len(self.spec.pattern):
            return list(self.values)
        values = iter(self.values)
        return [next(values) if a is ... else a for a in self.spec.pattern]


@dataclass(eq=False)
class Block:
    """A graph with inputs and outputs: the network itself, or the body of one of its functions.

    Args:
        inputs, outputs: values.
        nodes: in an order in which each reads what was defined before it.
        input_types, output_types: of a network.
        is_canonical: the nodes are in their canonical order.
        tags: what tells each of its parameters from the others, where the callers are known.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: list[Node]
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    is_canonical: bool = False
    tags: tuple[str, ...] = ()

    @cached_property
    def is_chain(self) -> bool:
        """Each node reads just what the one before wrote, so that the wiring says nothing."""
        last: Sequence[int] = self.inputs
        for node in self.nodes:
            if len(last) != 1 or node.values != (last[0],):
                return False
            last = node.outs
        return len(self.inputs) == len(self.outputs) == 1 and tuple(last) == self.outputs

    @cached_property
    def is_part(self) -> bool:
        """A short chain with shortcuts: each node reads the one before, a few read an earlier value too."""
        if not 2 <= len(self.nodes) <= MOST_OF_A_PART or len(self.inputs) != 1 or self.is_chain:
            return False
        before = self.inputs[0]
        for n in self.nodes:
            if len(n.outs) != 1 or before not in n.values:
                return False
            before = n.outs[0]
        return self.outputs == (before,)

    @cached_property
    def is_layer(self) -> bool:
        """A chain of operators."""
        return self.is_chain and all(n.spec.callee is None for n in self.nodes)

    @cached_property
    def is_plain(self) -> bool:
        """Whether all that it calls is called by its content, so that its text is the same everywhere."""
        return all(n.spec.callee is None or n.spec.callee.is_named for n in self.nodes)

    @cached_property
    def is_named(self) -> bool:
        """Whether it is called by its content: layers and parts of them have the same name everywhere."""
        return self.is_layer or (self.is_part and self.is_plain)

    @cached_property
    def form(self) -> Form:
        """What it does and how it is wired: labels, and values numbered in the order of their making."""
        number = {v: i for i, v in enumerate(self.inputs)}
        described = []
        for n in self.nodes:
            s = n.spec
            described.append((s.label, s.commutes, tuple([number[v] for v in n.values]), len(n.outs)))
            for v in n.outs:
                number[v] = len(number)
        return len(self.inputs), tuple(described), tuple([number[v] for v in self.outputs])

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """What its nodes do, in no order: equal for blocks of one form."""
        return tuple(sorted([n.spec.label for n in self.nodes]))

    @property
    def canonical(self) -> Block:
        """The same with its nodes in an order that depends on the graph alone, dead code left out.

        It is marked as canonical unless leaves had to decide, since other leaves may take their place.
        """
        return self if self.is_canonical else self._ordered

    @cached_property
    def _ordered(self) -> Block:
        order = canonical_order(self.form, ())
        is_tied = order is None
        if order is None:
            order = canonical_order(self.form, tuple(map(self._exact, self.nodes)))
        assert order is not None
        placed = []
        for i, operands in order:
            n = self.nodes[i]
            if operands is not None:
                n = Node(n.spec, tuple([n.values[k] for k in operands]), n.outs)
            placed.append(n)
        types = self.input_types, self.output_types
        return Block(self.inputs, self.outputs, placed, *types, not is_tied, self.tags)

    def _exact(self, node: Node) -> int:
        """A hash of the leaves of a node."""
        tags = self.tags
        handed = node.spec.handed
        return _hash_of(tuple([tags[a.index] if tags and isinstance(a, Param) else a.tag for a in handed]))

    @cached_property
    def signature(self) -> str:
        """The structure, as text: equal for blocks that differ only in shapes and integer constants."""
        ordered = self.canonical
        number = {v: i for i, v in enumerate(ordered.inputs)}
        lines = []
        for n in ordered.nodes:
            for v in n.outs:
                number[v] = len(number)
            lines.append(f"{len(n.outs)}:{n.spec.shown([number[v] for v in n.values])}")
        return ";".join([*lines, ",".join(str(number[v]) for v in ordered.outputs)])

    @cached_property
    def digest(self) -> int:
        """A hash of the signature."""
        return stable_hash(self.signature)

    def with_nodes(self, nodes: list[Node]) -> Block:
        """The same with other nodes, in no particular order."""
        return Block(self.inputs, self.outputs, nodes, self.input_types, self.output_types, tags=self.tags)

    def with_specs(self, specs: Iterable[Spec]) -> Block:
        """The same with nodes that do the same with other leaves, which leaves the order as it is."""
        nodes = [Node(s, n.values, n.outs) for s, n in zip(specs, self.nodes, strict=True)]
        types = self.input_types, self.output_types
        return Block(self.inputs, self.outputs, nodes, *types, self.is_canonical, self.tags)


@remembered
def _hash_of(tags: tuple[str, ...]) -> int:
    return stable_hash(repr(list(tags)))


def stable_hash(text: str) -> int:
    """A 64-bit hash that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def uses(block: Block) -> dict[int, list[int]]:
    """For each value, the positions of the nodes that read it (a node once for each time it reads it)."""
    found: dict[int, list[int]] = {v: [] for v in block.inputs}
    for i, n in enumerate(block.nodes):
        for v in n.values:
            found[v].append(i)
        for v in n.outs:
            found[v] = []
    return found


def live_values(block: Block) -> set[int]:
    """Values that carry the input to the output: not cut off from either by a product with zero."""
    steps = [(n.values, n.outs) for n in block.nodes if not n.spec.is_zeroing]
    forward, backward = set(block.inputs), set(block.outputs)
    for read, made in steps:
        if not forward.isdisjoint(read):
            forward.update(made)
    for read, made in reversed(steps):
        if not backward.isdisjoint(made):
            backward.update(read)
    return forward & backward
