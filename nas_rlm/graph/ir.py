"""Intermediate representation of a network: nodes, leaves (weights and constants) and blocks.

See `nas_rlm.graph` for the terms. A signature is a text that is equal for objects that differ only in sizes,
and a label is a hash of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count
from types import EllipsisType

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.canonical_order import Form, canonical_order

COMMUTATIVE = {"Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"}
GROUP = "group"  # the type of a leaf that is a convolution's group attribute
UNKNOWN_VALUE = "?"
MAX_UNIT_NODES = 10
VALUE_IDS = count(1 << 32)  # ids for values of new calls, above the ids that readers and builders assign


@dataclass(frozen=True, eq=False)
class Leaf:
    """An input of a node that no other node computes: a weight, a small constant or a `group` attribute.

    Create leaves with `leaf`, which returns one object for equal leaves.

    Args:
        type: element type of the tensor, such as `float`.
        shape: shape of the tensor.
        value: value of a constant as text; None for a weight, and UNKNOWN_VALUE for a computed constant
            whose values are not part of the text.
        is_size: True for a constant that depends on the sizes of the network, such as the target of Reshape.
        tie: number of a weight that several nodes share; 0 for one that a single node reads.
        learnt: number of learnt parameters from which the weight, or all weights of one `tie`, are computed;
            0 if it is the number of elements.
    """

    type: str
    shape: tuple[int, ...]
    value: str | None
    is_size: bool
    tie: int = field(default=0, repr=False)
    learnt: int = field(default=0, repr=False)

    @cached_property
    def signature(self) -> str:
        """The leaf as text without its sizes, which may differ between repeats of a block."""
        if self.value is None:
            return f"{self.type}{'[]' * len(self.shape)}"
        return self.type if self.is_size else f"{self.type}{list(self.shape)}={self.value}"

    @cached_property
    def tag(self) -> str:
        """A string that is unique to the leaf; it breaks ties in the canonical order."""
        return repr(self)

    @property
    def is_fixed(self) -> bool:
        """True if the leaf is part of the body of a block; False if calls pass it as an argument."""
        return self.value is not None and not self.is_size

    @property
    def is_matrix(self) -> bool:
        """True for a weight of two or more dimensions."""
        return self.value is None and len(self.shape) >= 2

    @property
    def is_zero(self) -> bool:
        """True for a float constant that is 0."""
        is_scalar = self.value is not None and self.type == "float" and not self.shape
        return is_scalar and self.value != UNKNOWN_VALUE and float(self.value or 0) == 0.0

    @property
    def is_input(self) -> bool:
        """True for a weight, and for a computed constant: both are inputs in the text."""
        return self.value is None or self.value == UNKNOWN_VALUE


@cache
def leaf(
    type: str,
    shape: tuple[int, ...],
    value: str | None = None,
    is_size: bool = False,
    tie: int = 0,
    learnt: int = 0,
) -> Leaf:
    """Return the leaf with these properties; equal leaves are one object. See `Leaf` for the arguments."""
    return Leaf(type, shape, value, is_size, tie, learnt)


@dataclass(frozen=True, eq=False)
class Param:
    """A parameter of a block, for which each call passes a leaf.

    Create parameters with `param`, which returns one object for equal parameters.

    Args:
        index: position in the argument list of a call.
        signature: signature of the leaves that calls pass.
        is_matrix: True if calls pass weights of two or more dimensions.
    """

    index: int
    signature: str
    is_matrix: bool

    is_fixed = False
    is_zero = False

    @cached_property
    def tag(self) -> str:
        """A string that is unique among the parameters of a block."""
        return str(self.index)


@cache
def param(index: int, signature: str, is_matrix: bool = False) -> Param:
    """Return the parameter with these properties; equal parameters are one object."""
    return Param(index, signature, is_matrix)


StaticInput = Leaf | Param
# The inputs of a node: ... for a value that another node computes, None for an omitted optional input.
Pattern = tuple[StaticInput | EllipsisType | None, ...]


class Spec:
    """The operation of a node: an operator or the call of a block, without the values it reads and defines.

    Create operations with `spec`, `call_spec` or `chain_spec`, which return one object for equal operations.

    Args:
        op: ONNX operator, with its domain if that is not ONNX's own; empty for a call.
        attrs: attributes as ONNX text.
        pattern: inputs of the operation, see `Pattern`; leaves of commutative operators are sorted.
        callee: called block; None for an operator.
        chain: operations that this one replaces, if it is a chain of several; otherwise empty.

    Attributes:
        commutes: True if the order of the inputs does not matter.
        leaves: leaves and parameters among the inputs, in order.
        label: 64-bit hash of the operation without sizes.
        is_matrix: True if the operation reads a weight of two or more dimensions.
        is_zeroing: True for a multiplication by zero.
    """

    __slots__ = (
        *("_chain", "attrs", "callee", "commutes", "leaves", "is_matrix", "is_zeroing", "label", "op"),
        "pattern",
    )

    def __init__(
        self, op: str, attrs: str, pattern: Pattern, callee: Block | None, chain: tuple[Spec, ...] = ()
    ) -> None:
        self.op, self.attrs, self.callee = op, attrs, callee
        self._chain = chain
        self.commutes = callee is None and op in COMMUTATIVE
        if self.commutes:
            leaves = sorted(_static_inputs(pattern), key=lambda a: (a.signature, a.tag))
            pattern = (*(a for a in pattern if a is ...), *leaves)
        self.pattern = pattern
        self.leaves: list[StaticInput] = _static_inputs(pattern)
        name = f"call:{callee.digest:x}" if callee else op
        args = ["_" if a is ... else "" if a is None else a.signature for a in pattern]
        self.label = stable_hash(f"{name}{attrs}({','.join(sorted(args) if self.commutes else args)})")
        self.is_matrix = any(a.is_matrix for a in self.leaves)
        self.is_zeroing = op == "Mul" and any(a.is_zero for a in self.leaves)

    @property
    def chain(self) -> tuple[Spec, ...]:
        """The operations of a chain; otherwise only this operation."""
        return self._chain or (self,)

    def as_text(self, numbers: Sequence[int]) -> str:
        """Return the operation as text without sizes, with these numbers for the values that it reads."""
        remaining = iter(numbers)
        args = [str(next(remaining)) if a is ... else "" if a is None else a.signature for a in self.pattern]
        name = f"[{self.callee.signature}]" if self.callee else self.op
        return f"{name}{self.attrs}({','.join(args)})"

    def with_leaves(self, leaves: Iterable[StaticInput]) -> Spec:
        """Return the same operation with other leaves."""
        remaining = iter(leaves)
        pattern = tuple([a if a is ... or a is None else next(remaining) for a in self.pattern])
        return spec(self.op, self.attrs, pattern, self.callee)


def _static_inputs(pattern: Pattern) -> list[StaticInput]:
    """Return the leaves and parameters among the inputs of a node, in order."""
    return [a for a in pattern if a is not ... and a is not None]


@memoized
def spec(op: str, attrs: str, pattern: Pattern, callee: Block | None = None) -> Spec:
    """Return an operation; equal operations are one object. See `Spec` for the arguments."""
    return Spec(op, attrs, pattern, callee)


def call_spec(callee: Block, leaves: Iterable[StaticInput]) -> Spec:
    """Return the operation that calls a block and passes it these leaves."""
    return spec("", "", (*(...,) * len(callee.inputs), *leaves), callee)


@memoized
def chain_spec(chain: tuple[Spec, ...]) -> Spec:
    """Return one operation that replaces a chain of operations."""
    if len(chain) == 1:
        return chain[0]
    labels = " ".join(f"{s.label:x}" for s in chain)
    return Spec(labels, "", (..., *(a for s in chain for a in s.leaves)), None, chain)


class Node:
    """A node of a graph.

    Args:
        spec: operation.
        values: ids of the values that the node reads, in order.
        outs: ids of the values that the node defines.
    """

    __slots__ = ("outs", "spec", "values")

    def __init__(self, spec: Spec, values: tuple[int, ...], outs: tuple[int, ...]) -> None:
        self.spec, self.values, self.outs = spec, values, outs

    def with_operands(self, order: tuple[int, ...]) -> Node:
        """Return the node with the values that it reads in another order."""
        return Node(self.spec, tuple([self.values[k] for k in order]), self.outs)

    @property
    def args(self) -> list[int | StaticInput | None]:
        """Return all inputs in the order of the operator: value ids, leaves, and None for omitted inputs."""
        if len(self.values) == len(self.spec.pattern):
            return list(self.values)
        values = iter(self.values)
        return [next(values) if a is ... else a for a in self.spec.pattern]


@dataclass(eq=False)
class Block:
    """A graph with inputs and outputs: a whole network, or the body of one of its functions.

    Args:
        inputs: ids of the input values.
        outputs: ids of the output values.
        nodes: nodes in topological order.
        input_types: ONNX types of the inputs of a network, such as `float[1,3,32,32]`; empty for a function.
        output_types: ONNX types of the outputs of a network; empty for a function.
        is_canonical: True if the nodes are known to be in canonical order.
        tags: for each parameter, the tags of the leaves that all calls pass for it; empty if unknown.
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
        """True if each node reads only the output of the previous node."""
        last: Sequence[int] = self.inputs
        for node in self.nodes:
            if len(last) != 1 or node.values != (last[0],):
                return False
            last = node.outs
        return len(self.inputs) == len(self.outputs) == 1 and tuple(last) == self.outputs

    @cached_property
    def is_unit(self) -> bool:
        """True for a short chain with shortcuts, such as a residual unit or squeeze-and-excitation.

        Each node reads the output of the previous one; some also read an earlier value.
        """
        if not 2 <= len(self.nodes) <= MAX_UNIT_NODES or len(self.inputs) != 1 or self.is_chain:
            return False
        previous = self.inputs[0]
        for n in self.nodes:
            if len(n.outs) != 1 or previous not in n.values:
                return False
            previous = n.outs[0]
        return self.outputs == (previous,)

    @cached_property
    def is_layer(self) -> bool:
        """True for a chain that calls no other block."""
        return self.is_chain and all(n.spec.callee is None for n in self.nodes)

    @cached_property
    def has_stable_text(self) -> bool:
        """True if all called blocks are named by content, so that the text is the same in all networks."""
        return all(n.spec.callee is None or n.spec.callee.is_named_by_content for n in self.nodes)

    @cached_property
    def is_named_by_content(self) -> bool:
        """True for layers and units of layers, whose functions are named by a hash of their content."""
        return self.is_layer or (self.is_unit and self.has_stable_text)

    @cached_property
    def form(self) -> Form:
        """The labels of the operations and the wiring, for `canonical_order`."""
        number = {v: i for i, v in enumerate(self.inputs)}
        described = []
        for n in self.nodes:
            s, values = n.spec, n.values
            numbers = (number[values[0]],) if len(values) == 1 else tuple([number[v] for v in values])
            described.append((s.label, s.commutes, numbers, len(n.outs)))
            for v in n.outs:
                number[v] = len(number)
        return len(self.inputs), tuple(described), tuple([number[v] for v in self.outputs])

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The sorted operation labels; equal for blocks of one form."""
        return tuple(sorted([n.spec.label for n in self.nodes]))

    @property
    def canonical(self) -> Block:
        """The block without dead code, its nodes in canonical order.

        `is_canonical` of the result is False if leaves broke a tie, since calls may pass other leaves.
        """
        return self if self.is_canonical else self._ordered

    @cached_property
    def _ordered(self) -> Block:
        """The block in canonical order, computed even if the nodes are marked as canonical."""
        order = canonical_order(self.form, ())
        is_tied = order is None
        if order is None:
            order = canonical_order(self.form, tuple(map(self._leaf_hash, self.nodes)))
        assert order is not None
        nodes = [
            self.nodes[i] if operands is None else self.nodes[i].with_operands(operands)
            for i, operands in order
        ]
        types = self.input_types, self.output_types
        return Block(self.inputs, self.outputs, nodes, *types, not is_tied, self.tags)

    def _leaf_hash(self, node: Node) -> int:
        """Return a hash of the leaves of a node, with parameters replaced by the tags of the block."""
        tags = self.tags
        leaves = node.spec.leaves
        return _hash_tags(tuple([tags[a.index] if tags and isinstance(a, Param) else a.tag for a in leaves]))

    @cached_property
    def signature(self) -> str:
        """The nodes as text; equal for blocks that differ only in shapes and integer constants."""
        ordered = self.canonical
        number = {v: i for i, v in enumerate(ordered.inputs)}
        lines = []
        for n in ordered.nodes:
            for v in n.outs:
                number[v] = len(number)
            lines.append(f"{len(n.outs)}:{n.spec.as_text([number[v] for v in n.values])}")
        return ";".join([*lines, ",".join(str(number[v]) for v in ordered.outputs)])

    @cached_property
    def digest(self) -> int:
        """64-bit hash of the signature."""
        return stable_hash(self.signature)

    def with_nodes(self, nodes: list[Node]) -> Block:
        """Return a copy with other nodes, not marked as canonical."""
        return Block(self.inputs, self.outputs, nodes, self.input_types, self.output_types, tags=self.tags)

    def with_specs(self, specs: Iterable[Spec]) -> Block:
        """Return a copy with operations that differ from the old ones only in their leaves."""
        nodes = [Node(s, n.values, n.outs) for s, n in zip(specs, self.nodes, strict=True)]
        types = self.input_types, self.output_types
        return Block(self.inputs, self.outputs, nodes, *types, self.is_canonical, self.tags)


@memoized
def _hash_tags(tags: tuple[str, ...]) -> int:
    """Return a hash of tags, the same on every machine."""
    return stable_hash(repr(list(tags)))


def stable_hash(text: str) -> int:
    """Return a 64-bit hash of a text that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def readers_by_value(block: Block) -> dict[int, list[int]]:
    """Return, for each value, the positions of the nodes that read it, once for each read."""
    readers: dict[int, list[int]] = {v: [] for v in block.inputs}
    for i, n in enumerate(block.nodes):
        for v in n.values:
            readers[v].append(i)
        for v in n.outs:
            readers[v] = []
    return readers


def live_values(block: Block) -> set[int]:
    """Return the values on a path from an input to an output that no multiplication by zero interrupts."""
    steps = [(n.values, n.outs) for n in block.nodes if not n.spec.is_zeroing]
    forward, backward = set(block.inputs), set(block.outputs)
    for values, outs in steps:
        if not forward.isdisjoint(values):
            forward.update(outs)
    for values, outs in reversed(steps):
        if not backward.isdisjoint(outs):
            backward.update(values)
    return forward & backward
