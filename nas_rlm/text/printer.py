"""Writing of outlined graphs as ONNX text."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import GROUP, Block, Leaf, Node, Param, StaticInput, live_values
from nas_rlm.graph.onnx_graphs.flat_graph import OPSET
from nas_rlm.graph.onnx_graphs.weight_names import constant_name, weight_name
from nas_rlm.graph.operator_text import FUNCTION_DOMAIN
from nas_rlm.graph.reader import PLACEHOLDER

_LETTERS = str.maketrans("0123456789abcdef", "abcefghijklmnopq")  # no d or v: those letters name values
_DOMAIN_VERSIONS = {"ai.onnx.ml": 4}  # of operators in the text; 1 for other domains
_NEW_TREES = {"ai.onnx.ml.TreeEnsemble"}  # operators that need version 5, which refuses earlier ones
_SHORT_HASH, _LONG_HASH = 4, 32  # letters of the hash in the name of a function


def format_network(network: Block, bodies: dict[Block, Block], opset: int = OPSET) -> str:
    """Return the text of a network and of the blocks that it calls.

    Args:
        network: graph that may call blocks.
        bodies: final bodies of changed blocks, as `nas_rlm.text.outline.outline` returns them.
        opset: version of ONNX's own operators.
    """
    try:
        return _Printer(_SHORT_HASH, bodies, opset).print_network(network)
    except _NameCollisionError:
        return _Printer(_LONG_HASH, bodies, opset).print_network(network)


class _NameCollisionError(Exception):
    """Two functions of one network have the same short name."""


class _Function(NamedTuple):
    """The text of a function, and the order of its arguments in a call.

    Args:
        name: name of the function; empty if it has none yet.
        text: definition of the function.
        order: for each parameter of the function, the index of the block's parameter.
        groups: for each attribute of the function, the index of the block's parameter that is a `group`.
        calls: blocks that it calls.
        domains: domains of its operators other than ONNX's own.
    """

    name: str
    text: str
    order: tuple[int, ...]
    groups: tuple[int, ...]
    calls: tuple[Block, ...]
    domains: tuple[str, ...]

    def with_name(self, name: str, opset: int) -> _Function:
        """Return the function with a name, whose operators have this version."""
        imports = _imports((*self.domains, FUNCTION_DOMAIN), opset)
        head = f'<domain:"{FUNCTION_DOMAIN}",{imports}>\n{name}{self.text}'
        return self._replace(name=name, text=head)


class _Printer:
    """Printer of a network and its functions; each function is printed at its first call.

    Args:
        num_letters: number of letters of the hash in the names of functions.
        bodies: see `format_network`.
        opset: see `format_network`.
    """

    def __init__(self, num_letters: int, bodies: dict[Block, Block], opset: int) -> None:
        self.num_letters, self.bodies, self.opset = num_letters, bodies, opset
        self.functions: dict[Block, _Function | None] = {}
        self.texts: dict[str, str] = {}
        self.domains: set[str] = set()
        self.num_numbered = 0

    def print_network(self, network: Block) -> str:
        """Return the text of the network and its functions."""
        head, _, _ = self.print_graph(network, main=True)
        domains = (*sorted(self.domains), *([FUNCTION_DOMAIN] if self.texts else []))
        first = f"<ir_version:10,{_imports(domains, self.opset)}>"
        return "\n".join([first, f"main{head}", *self.texts.values(), ""])

    def function(self, block: Block) -> _Function:
        """Return the function of a block; at the first call it is printed."""
        block = self.bodies.get(block, block)
        function = self.functions.get(block)
        if function is None:
            self.functions[block] = None  # reserves a place before the functions that it calls
            function = self.functions[block] = self._print_function(block)
        return function

    def _print_function(self, block: Block) -> _Function:
        """Print the function of a block: layers and units are named by content, others are numbered."""
        is_stable = not any(self.bodies.get(c, c) is not c for n in block.nodes if (c := n.spec.callee))
        if block.is_named_by_content and is_stable:
            function = _content_named_function(block, self.num_letters, self.opset)
        else:
            name = f"block{self.num_numbered}"
            self.num_numbered += 1
            if block.has_stable_text and is_stable:
                function = _anonymous_function(block, self.num_letters, self.opset).with_name(
                    name, self.opset
                )
            else:
                self.texts[name] = ""
                function = _Function("", *self.print_graph(block), (), _custom_domains(block))
                function = function.with_name(name, self.opset)
                self.texts[name] = function.text
        self.domains.update(function.domains)
        if self.texts.setdefault(function.name, function.text) != function.text:
            raise _NameCollisionError
        for callee in function.calls:
            self.function(callee)
        return function

    def print_graph(self, block: Block, main: bool = False) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Return the header and statements of a graph as text.

        Args:
            block: graph.
            main: True for the network, whose header has types; False for a function.

        Returns:
            The text, and the indices of the block's parameters in the order of the function's parameters and
            attributes.
        """
        ordered = block.canonical
        self.domains.update(_custom_domains(ordered))
        names = _Names()
        live = None if ordered.is_chain else live_values(ordered)
        for v in (*ordered.inputs, *(v for n in ordered.nodes for v in n.outs)):
            names[v] = f"{'x' if live is None else 'v' if v in live else 'd'}{len(names)}"
        lines = [self.print_statement(n, names) for n in ordered.nodes]
        leaf_by_name = {names[a]: a for a in names.leaves}  # leaves of one name have one value
        constants = [f"{name}={_constant(a)}" for name, a in leaf_by_name.items() if not a.is_input]
        inputs = [names[v] for v in ordered.inputs]
        outputs = [names[v] for v in ordered.outputs]
        if main:
            inputs = [f"{t} {n}" for t, n in zip(ordered.input_types, inputs, strict=True)]
            inputs += [f"{_declared_type(a)} {name}" for name, a in leaf_by_name.items() if a.is_input]
            outputs = [f"{t} {n}" for t, n in zip(ordered.output_types, outputs, strict=True)]
        else:
            inputs += [f"w{k}" for k in range(len(names.params))]
        attributes = f"<{','.join(names.groups.values())}>" if names.groups else ""
        head = f"{attributes}({','.join(inputs)})=>({','.join(outputs)})"
        text = "\n".join([head, "{", *constants, *lines, "}"])
        return text, tuple(names.params), tuple(names.groups)

    def print_statement(self, node: Node, names: _Names) -> str:
        """Return the statement of a node as text."""
        spec = node.spec
        if spec.callee is not None:
            function, leaves = self.function(spec.callee), spec.leaves
            op = f"{FUNCTION_DOMAIN}.{function.name}"
            if function.groups:
                groups = [f"g{k}{names.group(leaves[g])}" for k, g in enumerate(function.groups)]
                op += f"<{','.join(groups)}>"
            args = [*[names[v] for v in node.values], *[names[leaves[k]] for k in function.order]]
        else:
            op, inputs = spec.op + spec.attrs, node.args
            if f"{GROUP}@" in spec.attrs:
                group = inputs.pop()
                assert isinstance(group, Leaf | Param)
                op = op.replace(f"{GROUP}@", f"{GROUP}{names.group(group)}")
            args = ["" if a is None else names[a] for a in inputs]
            if PLACEHOLDER in op:
                op, args = _with_captured_names(op, args)
        return f"{','.join([names[v] for v in node.outs])}={op}({','.join(args)})"


class _Names(dict[int | StaticInput, str]):
    """The names of the values, leaves and parameters of a graph; a lookup names a new leaf or parameter.

    Attributes:
        leaves: leaves that have a name.
        params: indices of the parameters that have a name.
        groups: for each parameter that is the `group` of a convolution, the name of its attribute, by index.
        ties: for each shared weight, its number in the text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[Leaf] = []
        self.params: list[int] = []
        self.groups: dict[int, str] = {}
        self.ties: dict[int, int] = {}

    def __missing__(self, key: int | StaticInput) -> str:
        assert not isinstance(key, int)
        if isinstance(key, Param):
            self[key] = f"w{len(self.params)}"
            self.params.append(key.index)
        else:
            tie = self.ties.setdefault(key.tie, len(self.ties) + 1) if key.tie else 0
            self[key] = _leaf_name(key, tie)
            self.leaves.append(key)
        return self[key]

    def group(self, leaf: StaticInput) -> str:
        """Return the value of a `group` attribute as ONNX text."""
        if isinstance(leaf, Leaf):
            return f"={leaf.value}"
        return f":int=@{self.groups.setdefault(leaf.index, f'g{len(self.groups)}')}"


def _with_captured_names(op: str, args: list[str]) -> tuple[str, list[str]]:
    """Return an operator with names in place of the placeholders in its subgraphs, and its own inputs."""
    parts = op.split(PLACEHOLDER)
    positions = sorted({int(k) for k in parts[1::2]})
    parts[1::2] = [args[int(k)] for k in parts[1::2]]
    inputs = args[: positions[0]]
    while inputs and not inputs[-1]:
        inputs.pop()
    return "".join(parts), inputs


@memoized
def _anonymous_function(block: Block, num_letters: int, opset: int) -> _Function:
    """Return the function, without a name, of a block whose text is the same in all networks."""
    printer = _Printer(num_letters, {}, opset)
    text, order, groups = printer.print_graph(block)
    return _Function("", text, order, groups, tuple(printer.functions), _custom_domains(block))


@memoized
def _content_named_function(block: Block, num_letters: int, opset: int) -> _Function:
    """Return the function of a block, named by its operators and a hash of its text."""
    function = _anonymous_function(block, num_letters, opset)
    kind = "".join(n.spec.op.rpartition(".")[2] for n in block.nodes) if block.is_layer else "part"
    digest = hashlib.blake2b(function.text.encode(), digest_size=16).hexdigest().translate(_LETTERS)
    return function.with_name(f"{kind}_{digest[:num_letters]}", opset)


def _custom_domains(block: Block) -> tuple[str, ...]:
    """Return the domains of the operators of a block, without ONNX's own."""
    ops = {n.spec.op for n in block.nodes if n.spec.callee is None and "." in n.spec.op}
    return tuple(sorted({op.rpartition(".")[0] + (":5" if op in _NEW_TREES else "") for op in ops}))


def _imports(domains: tuple[str, ...], opset: int) -> str:
    """Return the imports of operator sets as ONNX text."""
    versions: dict[str, int] = {}
    for domain in domains:
        name, _, version = domain.partition(":")
        versions[name] = max(versions.get(name, 1), int(version or _DOMAIN_VERSIONS.get(name, 1)))
    return f'opset_import:["":{opset}' + "".join([f',"{d}":{v}' for d, v in versions.items()]) + "]"


@cache
def _declared_type(leaf: Leaf) -> str:
    """Return the type of a weight as ONNX text."""
    return f"{leaf.type}[{','.join(map(str, leaf.shape))}]" if leaf.shape else leaf.type


def _literals(type_name: str, values: str) -> str:
    """Return elements as ONNX text, which has small floats as the bits of their encoding."""
    if not values or type_name in ("float", "double") or not type_name.startswith(("float", "bfloat")):
        return values
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(type_name.upper()))
    array = np.array([float(v) for v in values.split(",")]).astype(dtype)
    return ",".join(str(int(v)) for v in array.view(f"uint{8 * array.itemsize}"))


@cache
def _leaf_name(leaf: Leaf, tie: int) -> str:
    """Return the name of a weight or constant, made of its type, shape and value."""
    if leaf.value is None:
        return weight_name(leaf.type, leaf.shape, tie, leaf.learnt)
    if leaf.is_input:
        return constant_name(leaf.type, leaf.shape)
    if leaf.type == "string":
        mangled = hashlib.sha256(leaf.value.encode()).hexdigest()[:12].translate(_LETTERS)
    else:
        mangled = leaf.value.translate(str.maketrans("-.,", "np_", "+"))
    kind = {"int64": "I", "float": "F"}.get(leaf.type, leaf.type)
    return f"{kind}{'_'.join(['', *map(str, leaf.shape)]) + '_' if leaf.shape else ''}{mangled}"


def _constant(leaf: Leaf) -> str:
    """Return the Constant operator of a constant as ONNX text."""
    assert leaf.value is not None
    if leaf.type == "float" and not leaf.shape:
        return f"Constant<value_float={leaf.value}>()"
    if leaf.type == "int64" and not leaf.shape:
        return f"Constant<value_int={leaf.value}>()"
    if leaf.type == "int64" and len(leaf.shape) == 1 and leaf.value:
        return f"Constant<value_ints=[{leaf.value}]>()"
    shape = f"[{','.join(map(str, leaf.shape))}]" if leaf.shape else ""
    return f"Constant<value={leaf.type}{shape}{{{_literals(leaf.type, leaf.value)}}}>()"
