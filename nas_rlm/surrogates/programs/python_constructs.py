"""Constructs of Python programs, as words: what is called, allocated, repeated and looped over, and how deep.

N-grams of tokens depend on how variables are named. Constructs are read from the syntax tree and say the
same of `[0] * n` and `[None] * length`: a list repeated as often as a variable says. Programs for other
problems share them. Programs that are not in Python 3 have none.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

MAX_CHARACTERS = 100_000  # of a program that is parsed
MAX_DEPTH = 3  # of loops that are told apart
MAX_ARGUMENTS = 6  # that are counted
READ_ARGUMENTS = 2  # of a call, whose kinds are words
SMALL = 100  # constants below are told apart from larger ones
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def constructs(program: str) -> list[str]:
    r"""Return the constructs of a program; none if it is not in Python 3.

    Examples:
        >>> found = constructs("def f(n):\n    return [0] * n + f(n - 1)")
        >>> "repeat variable" in found, "recursion" in found
        (True, True)
        >>> constructs("int main() {}")
        []

    Args:
        program: the source.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of literals and escapes
            tree = ast.parse(program[:MAX_CHARACTERS])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_words(tree))


def _words(tree: ast.Module) -> Iterator[str]:
    """Yield the words of all nodes of a syntax tree."""
    waiting: list[tuple[ast.AST, str, int, frozenset[str]]] = [(tree, "", 0, frozenset())]
    while waiting:
        node, parent, depth, functions = waiting.pop()
        kind = type(node).__name__
        yield kind
        yield f"{parent}>{kind}"
        yield from _words_of_node(node, parent, depth, functions)
        if isinstance(node, _FUNCTIONS):
            functions = functions | {node.name}
        inner = depth + isinstance(node, (*_LOOPS, *_COMPREHENSIONS))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context):
                is_clause = isinstance(child, ast.comprehension)  # which counts as a loop itself
                waiting.append((child, kind, depth if is_clause else inner, functions))


def _words_of_node(node: ast.AST, parent: str, depth: int, functions: frozenset[str]) -> Iterator[str]:
    """Yield the words of one node, beside its type.

    Args:
        node: the node.
        parent: type of the parent.
        depth: number of loops around it.
        functions: names of the functions around it.
    """
    at = f"@{min(depth, MAX_DEPTH)}"
    if isinstance(node, _LOOPS):
        over = "condition" if isinstance(node, ast.While) else _kind(node.iter)
        yield from (f"loop {over}", f"loop {over}{at}")
    elif isinstance(node, _COMPREHENSIONS):
        element = node.key if isinstance(node, ast.DictComp) else node.elt
        kind = type(node).__name__
        yield from (f"{kind}{at}", f"{kind} of {_kind(element)} over {_kind(node.generators[0].iter)}")
    elif isinstance(node, ast.Call):
        name = _called(node)
        yield from (f"call {name}", f"call {name}{at}")
        yield from (f"call {name} {_kind(argument)}" for argument in node.args[:READ_ARGUMENTS])
        if name.removeprefix(".") in functions:
            yield from ("recursion", f"recursion{at}")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if (times := _repetitions(node)) is not None:
            yield from (f"repeat {_kind(times)}", f"{parent}>repeat {_kind(times)}")
    elif isinstance(node, ast.Subscript):
        yield from _words_of_subscript(node, at)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        yield from (f"assign {_kind(node.value)}", f"assign {_kind(node.value)}{at}")
    elif isinstance(node, ast.AugAssign):
        yield f"change {type(node.op).__name__} {_kind(node.value)}{at}"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield f"return {_kind(node.value)}"
    elif isinstance(node, _FUNCTIONS):
        yield from _words_of_function(node, len(functions))
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"number {_kind(node)}"


def _words_of_subscript(node: ast.Subscript, at: str) -> Iterator[str]:
    """Yield the words of an index or a slice."""
    kind = type(node.slice).__name__
    yield f"index {kind}"
    if isinstance(node.slice, ast.Slice):
        yield f"slice{at}"
    if isinstance(node.ctx, ast.Store):
        yield from (f"store {kind}{at}", f"store in {type(node.value).__name__}")


def _words_of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, nesting: int) -> Iterator[str]:
    """Yield the words of a function's definition."""
    yield f"function in {min(nesting, MAX_DEPTH)}"
    yield f"{min(len(node.args.args), MAX_ARGUMENTS)} arguments"
    yield from (f"decorator {_kind(decorator)}" for decorator in node.decorator_list)
    annotations = [argument.annotation for argument in node.args.args if argument.annotation is not None]
    yield from (f"argument {_type_name(annotation)}" for annotation in annotations)
    if node.returns is not None:
        yield f"result {_type_name(node.returns)}"


def _repetitions(node: ast.BinOp) -> ast.expr | None:
    """Return how often a list is repeated; None if the product is not of a list."""
    if isinstance(node.left, ast.List | ast.ListComp):
        return node.right
    return node.left if isinstance(node.right, ast.List | ast.ListComp) else None


def _called(node: ast.Call) -> str:
    """Return the name of what is called; that of a method starts with a dot."""
    if isinstance(node.func, ast.Name):
        return node.func.id
    return f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else "expression"


def _kind(node: ast.expr) -> str:
    """Return the kind of an expression: a constant by its size, a call by its name, else the type."""
    if isinstance(node, ast.Name):
        return "variable"
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float):
            return "constant"
        return "0 or 1" if abs(node.value) <= 1 else "small" if abs(node.value) < SMALL else "large"
    if isinstance(node, ast.Call):
        name = _called(node)
        bounds = node.args[:READ_ARGUMENTS] if name == "range" else ()
        return f"{name}({', '.join(map(_bound_kind, bounds))})"
    return type(node).__name__


def _bound_kind(node: ast.expr) -> str:
    """Return the kind of a bound of a range."""
    return f"{_called(node)}()" if isinstance(node, ast.Call) else _kind(node)


def _type_name(annotation: ast.expr) -> str:
    """Return an annotation as text: names and their subscripts, without modules."""
    if isinstance(annotation, ast.Subscript):
        return f"{_type_name(annotation.value)}[{_type_name(annotation.slice)}]"
    if isinstance(annotation, ast.Attribute):
        return annotation.attr
    if isinstance(annotation, ast.Constant):
        return str(annotation.value)
    return annotation.id if isinstance(annotation, ast.Name) else type(annotation).__name__
