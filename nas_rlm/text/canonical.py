"""Graphs as ONNX text: one text for all models that compute the same graph."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import onnx

from .ir import GROUP, Block, Leaf, Node, Param, canonical, is_part, live_values
from .normal import OPSET, check, normalised
from .outline import outline
from .reader import MAX_BYTES, inlined, load, read, weight_name

if TYPE_CHECKING:
    from search_spaces import SearchSpace

DOMAIN = "f"
_DIGITS = str.maketrans("0123456789abcdef", "abcefghijklmnopq")  # no d or v: those letters name values


def from_onnx(model: onnx.ModelProto | str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> str:
    """The text of an ONNX model.

    >>> import numpy as np, search_spaces
    >>> space = search_spaces.get("nasbench201")
    >>> text = from_onnx(space.to_onnx(space.sample(np.random.default_rng(0))))
    >>> onnx.checker.check_model(onnx.parser.parse_model(text))

    Weights become inputs named by their shape, values are numbered in an order that depends on the graph
    alone, attributes at their defaults and all names are dropped, and repeated parts become local functions
    (see `nas_rlm.text.outline`). Value names tell what matters: in a graph that forks, `v` values carry the
    input to the output and `d` values are computed but cut off from one of the two by a product with zero.

    Args:
        model: a model, or a path to an ONNX file.
        max_bytes: files larger than this are refused.

    Returns:
        Text in ONNX's own syntax: `onnx.parser.parse_model` reads it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not an ONNX file, too large, without operators, or with control flow.
    """
    loaded = load(model, max_bytes)
    try:
        check(loaded)
        return _print(outline(read(normalised(inlined(loaded)))))
    except (ValueError, TypeError, LookupError, RuntimeError, onnx.checker.ValidationError) as error:
        name = "the model" if isinstance(model, onnx.ModelProto) else repr(os.fspath(model))
        reason = str(error).strip() or type(error).__name__
        raise ValueError(f"{name} has no text: {reason.splitlines()[0]}") from None


def from_architecture(space: SearchSpace[Any], architecture: Any) -> str:
    """The text of an architecture of a search space: what `from_onnx` gives for its network, but quicker.

    The space's builder has already named the repeated parts as local functions; only a network built
    without any is searched for repeats.
    """
    model = space.to_onnx(architecture)
    return _print(outline(read(inlined(model))))


class _Printer:
    def __init__(self) -> None:
        self.functions: list[str] = []
        self.names: dict[int, str] = {}
        self.orders: dict[int, tuple[list[int], list[int]]] = {}
        self.texts: dict[str, str] = {}
        self.blocks = 0
        self.kept: list[Block] = []

    def call(self, node: Node, callee: Block) -> str:
        """The name of the callee; defines it at its first call."""
        if id(callee) not in self.names:
            self.kept.append(callee)
            position = len(self.functions)
            self.functions.append("")
            is_layer = callee.is_chain and not any(n.callee for n in callee.nodes)
            by_content = is_layer or is_part(callee)
            if not by_content:
                name = f"block{self.blocks}"
                self.blocks += 1
            head, *orders = self.body(callee, main=False)
            if by_content:
                ops = "".join(n.op for n in callee.nodes) if is_layer else "part"
                digest = hashlib.blake2b(head.encode(), digest_size=16).hexdigest().translate(_DIGITS)
                name = next(
                    n
                    for n in (f"{ops}_{digest[:k]}" for k in (4, 32))
                    if self.texts.setdefault(n, head) == head
                )
            self.names[id(callee)], self.orders[id(callee)] = name, (orders[0], orders[1])
            domain = f'<domain:"{DOMAIN}",opset_import:["":{OPSET},"{DOMAIN}":1]>\n'
            self.functions[position] = f"{domain}{name}{head}"
        return self.names[id(callee)]

    def body(self, block: Block, main: bool) -> tuple[str, list[int], list[int]]:
        """Header and statements of a graph, and the order in which its weights and groups are listed."""
        ordered = canonical(block)
        live = live_values(ordered)
        letters = None if ordered.is_chain else ("v", "d")
        names: dict[int, str] = {}

        def define(value: int) -> str:
            names[value] = f"{(letters[value not in live]) if letters else 'x'}{len(names)}"
            return names[value]

        inputs = [define(v) for v in ordered.inputs]
        leaves: dict[Leaf, str] = {}
        params: dict[int, str] = {}
        groups: dict[int, str] = {}

        def show(arg: int | Leaf | Param | None) -> str:
            if arg is None:
                return ""
            if isinstance(arg, int):
                return names[arg]
            if isinstance(arg, Param):
                return params.setdefault(arg.index, f"w{len(params)}")
            return leaves.setdefault(arg, _leaf_name(arg))

        def show_group(group: Leaf | Param) -> str:
            if isinstance(group, Leaf):
                return f"={group.value}"
            return f":int=@{groups.setdefault(group.index, f'g{len(groups)}')}"

        lines = []
        for n in ordered.nodes:
            op, args, handed, attrs = n.op, list(n.args), n.leaves, n.attrs
            if n.callee is not None:
                op = f"{DOMAIN}.{self.call(n, n.callee)}"
                order, of_groups = self.orders[id(n.callee)]
                args = [*n.values, *(handed[k] for k in order)]
                given = [f"g{k}{show_group(handed[g])}" for k, g in enumerate(of_groups)]
                attrs = f"<{','.join(given)}>" if given else ""
            elif f"{GROUP}@" in attrs:
                group = args.pop()
                assert isinstance(group, Leaf | Param)
                attrs = attrs.replace(f"{GROUP}@", f"{GROUP}{show_group(group)}")
            shown = ",".join(show(a) for a in args)
            lines.append(f"{','.join(define(v) for v in n.outs)}={op}{attrs}({shown})")
        constants = [f"{name}={_constant(leaf)}" for leaf, name in leaves.items() if leaf.value is not None]
        weights = [(leaf, name) for leaf, name in leaves.items() if leaf.value is None]
        outputs = [names[v] for v in ordered.outputs]
        if main:
            inputs = [f"{t} {n}" for t, n in zip(ordered.input_types, inputs, strict=True)]
            inputs += [f"{leaf.type}[{','.join(map(str, leaf.shape))}] {name}" for leaf, name in weights]
            outputs = [f"{t} {n}" for t, n in zip(ordered.output_types, outputs, strict=True)]
        else:
            inputs += params.values()
        declared = f"<{','.join(groups.values())}>" if groups else ""
        head = f"{declared}({','.join(inputs)})=>({','.join(outputs)})"
        return "\n".join([head, "{", *constants, *lines, "}"]), list(params), list(groups)


def _print(block: Block) -> str:
    printer = _Printer()
    main, *_ = printer.body(_fresh(block, {}), main=True)
    imports = f'"":{OPSET}' + (f',"{DOMAIN}":1' if printer.functions else "")
    return "\n".join([f"<ir_version:10,opset_import:[{imports}]>", f"main{main}", *printer.functions]) + "\n"


def _fresh(block: Block, seen: dict[int, Block]) -> Block:
    """A copy without remembered signatures, so that only what is printed decides the order."""
    if id(block) not in seen:
        nodes = [
            Node(n.op, n.args, n.outs, n.attrs, _fresh(n.callee, seen) if n.callee else None)
            for n in block.nodes
        ]
        seen[id(block)] = Block(
            block.inputs, block.outputs, nodes, block.params, block.input_types, block.output_types
        )
    return seen[id(block)]


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
