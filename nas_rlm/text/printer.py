"""Graphs in ONNX's own syntax."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

from nas_rlm.graph.cache import remembered
from nas_rlm.graph.ir import GROUP, Block, Given, Leaf, Node, Param, live_values
from nas_rlm.graph.reader import DOMAIN, OPSET, weight_name

_LETTERS = str.maketrans("0123456789abcdef", "abcefghijklmnopq")  # no d or v: those letters name values
_SHORT, _LONG = 4, 32  # letters that tell functions from others of the same operators


def printed(network: Block, bodies: dict[Block, Block]) -> str:
    """The text of a network and of the blocks that it calls.

    Args:
        network: the network.
        bodies: what called blocks consist of, where that is not what they are called by.
    """
    try:
        return _Printer(_SHORT, bodies).network(network)
    except _NameTaken:
        return _Printer(_LONG, bodies).network(network)


class _NameTaken(Exception):
    """Two functions of one network have the same short name."""


class _Function(NamedTuple):
    """A function as its callers need it.

    Args:
        name: of the function.
        text: of its definition.
        order: for each parameter, the block's parameter that it is.
        groups: the same for the parameters that are attributes.
        calls: the functions that it calls.
        domains: of the operators in it that are not ONNX's own.
    """

    name: str
    text: str
    order: tuple[int, ...]
    groups: tuple[int, ...]
    calls: tuple[Block, ...]
    domains: tuple[str, ...]

    def named(self, name: str) -> _Function:
        """The definition of a function without a name."""
        imports = _imports((*self.domains, DOMAIN))
        head = f'<domain:"{DOMAIN}",{imports}>\n{name}{self.text}'
        return self._replace(name=name, text=head)


class _Printer:
    def __init__(self, letters: int, bodies: dict[Block, Block]) -> None:
        self.letters, self.bodies = letters, bodies
        self.functions: dict[Block, _Function | None] = {}
        self.texts: dict[str, str] = {}
        self.domains: set[str] = set()
        self.numbered = 0

    def network(self, network: Block) -> str:
        head, _, _ = self.body(network, main=True)
        first = f"<ir_version:10,{_imports((*sorted(self.domains), *([DOMAIN] if self.texts else [])))}>"
        return "\n".join([first, f"main{head}", *self.texts.values(), ""])

    def function(self, block: Block) -> _Function:
        """The function of a block, printed at its first call."""
        block = self.bodies.get(block, block)
        found = self.functions.get(block)
        if found is None:
            self.functions[block] = None  # its place is before that of the functions that it calls
            found = self.functions[block] = self._printed(block)
        return found

    def _printed(self, block: Block) -> _Function:
        if block.is_named:
            found = _by_content(block, self.letters)
        else:
            name = f"block{self.numbered}"
            self.numbered += 1
            if block.is_plain:
                found = _alone(block, self.letters).named(name)
            else:
                self.texts[name] = ""
                found = _Function("", *self.body(block), (), _domains(block)).named(name)
                self.texts[name] = found.text
        self.domains.update(found.domains)
        if self.texts.setdefault(found.name, found.text) != found.text:
            raise _NameTaken
        for called in found.calls:
            self.function(called)
        return found

    def body(self, block: Block, main: bool = False) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Header and statements of a graph, and the order in which its parameters and groups are listed."""
        ordered = block.canonical
        self.domains.update(_domains(ordered))
        names = _Names()
        live = None if ordered.is_chain else live_values(ordered)
        for v in (*ordered.inputs, *(v for n in ordered.nodes for v in n.outs)):
            names[v] = f"{'x' if live is None else 'v' if v in live else 'd'}{len(names)}"
        lines = [self.statement(n, names) for n in ordered.nodes]
        shown = {names[a]: a for a in names.leaves}  # two leaves of one name differ in no value
        constants = [f"{name}={_constant(a)}" for name, a in shown.items() if a.value is not None]
        inputs = [names[v] for v in ordered.inputs]
        outputs = [names[v] for v in ordered.outputs]
        if main:
            inputs = [f"{t} {n}" for t, n in zip(ordered.input_types, inputs, strict=True)]
            inputs += [f"{_declared(a)} {name}" for name, a in shown.items() if a.value is None]
            outputs = [f"{t} {n}" for t, n in zip(ordered.output_types, outputs, strict=True)]
        else:
            inputs += [f"w{k}" for k in range(len(names.params))]
        declared = f"<{','.join(names.groups.values())}>" if names.groups else ""
        head = f"{declared}({','.join(inputs)})=>({','.join(outputs)})"
        text = "\n".join([head, "{", *constants, *lines, "}"])
        return text, tuple(names.params), tuple(names.groups)

    def statement(self, node: Node, names: _Names) -> str:
        done = node.spec
        if done.callee is not None:
            function, handed = self.function(done.callee), done.handed
            op = f"{DOMAIN}.{function.name}"
            if function.groups:
                shown = [f"g{k}{names.group(handed[g])}" for k, g in enumerate(function.groups)]
                op += f"<{','.join(shown)}>"
            args = [*[names[v] for v in node.values], *[names[handed[k]] for k in function.order]]
        else:
            op, given = done.op + done.attrs, node.args
            if f"{GROUP}@" in done.attrs:
                group = given.pop()
                assert isinstance(group, Leaf | Param)
                op = op.replace(f"{GROUP}@", f"{GROUP}{names.group(group)}")
            args = ["" if a is None else names[a] for a in given]
        return f"{','.join([names[v] for v in node.outs])}={op}({','.join(args)})"


class _Names(dict[int | Given, str]):
    """The names of a graph's values, and of the leaves and parameters that it has read so far."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[Leaf] = []
        self.params: list[int] = []
        self.groups: dict[int, str] = {}

    def __missing__(self, given: int | Given) -> str:
        assert not isinstance(given, int)
        if isinstance(given, Param):
            self[given] = f"w{len(self.params)}"
            self.params.append(given.index)
        else:
            self[given] = _leaf_name(given)
            self.leaves.append(given)
        return self[given]

    def group(self, given: Given) -> str:
        """The value of a convolution's group attribute."""
        if isinstance(given, Leaf):
            return f"={given.value}"
        return f":int=@{self.groups.setdefault(given.index, f'g{len(self.groups)}')}"


@remembered
def _alone(block: Block, letters: int) -> _Function:
    """The function of a plain block, without a name."""
    alone = _Printer(letters, {})
    text, order, groups = alone.body(block)
    return _Function("", text, order, groups, tuple(alone.functions), _domains(block))


@remembered
def _by_content(block: Block, letters: int) -> _Function:
    """The function of a block whose name tells its content."""
    found = _alone(block, letters)
    kind = "".join(n.spec.op.rpartition(".")[2] for n in block.nodes) if block.is_layer else "part"
    digest = hashlib.blake2b(found.text.encode(), digest_size=16).hexdigest().translate(_LETTERS)
    return found.named(f"{kind}_{digest[:letters]}")


def _domains(block: Block) -> tuple[str, ...]:
    """Domains of the operators of a block that are not ONNX's own."""
    ops = {n.spec.op for n in block.nodes if n.spec.callee is None and "." in n.spec.op}
    return tuple(sorted({op.rpartition(".")[0] for op in ops}))


def _imports(domains: tuple[str, ...]) -> str:
    return f'opset_import:["":{OPSET}' + "".join([f',"{d}":1' for d in domains]) + "]"


@cache
def _declared(leaf: Leaf) -> str:
    return f"{leaf.type}[{','.join(map(str, leaf.shape))}]" if leaf.shape else leaf.type


@cache
def _leaf_name(leaf: Leaf) -> str:
    if leaf.value is None:
        return weight_name(leaf.type, leaf.shape)
    mangled = leaf.value.translate(str.maketrans("-.,", "np_", "+"))
    kind = {"int64": "I", "float": "F"}.get(leaf.type, leaf.type)
    return f"{kind}{'_'.join(['', *map(str, leaf.shape)]) + '_' if leaf.shape else ''}{mangled}"


def _constant(leaf: Leaf) -> str:
    assert leaf.value is not None
    if leaf.type == "float" and not leaf.shape:
        return f"Constant<value_float={leaf.value}>()"
    if leaf.type == "int64" and not leaf.shape:
        return f"Constant<value_int={leaf.value}>()"
    if leaf.type == "int64" and len(leaf.shape) == 1 and leaf.value:
        return f"Constant<value_ints=[{leaf.value}]>()"
    shape = f"[{','.join(map(str, leaf.shape))}]" if leaf.shape else ""
    return f"Constant<value={leaf.type}{shape}{{{leaf.value}}}>()"
