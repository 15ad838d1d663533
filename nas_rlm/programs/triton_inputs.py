"""Shapes of the inputs that a Triton kernel's file creates, read from its syntax tree without running it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from nas_rlm.programs.source import TRITON_KERNEL, python_error
from nas_rlm.surrogates.programs.ngrams import input_shapes

INPUT_FUNCTION = "get_inputs"
SEVERAL_SIZES = ("rand", "randn", "zeros", "ones", "empty")  # of torch, with sizes as arguments or as a list
SIZE_POSITIONS = {"full": 0, "randint": -1}  # of the list of sizes among the arguments
CONVERSIONS = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "int", "long", "contiguous")
OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.LShift: lambda a, b: a << b,
    ast.Pow: lambda a, b: a**b,
}
MAX_SIZE, MAX_EXPONENT = 2**63, 63  # of a tensor's sizes, and as the second number of an operation in GROWING
GROWING = (ast.LShift, ast.Pow)
MAX_INPUTS = 1000
_STATES_SIZES = re.compile(r"#\s*inputs?\b", re.IGNORECASE)


class _Tensor(tuple[int, ...]):
    """The shape of a tensor."""


class _UnknownError(Exception):
    """The source does not say a value."""


def contradiction(source: str) -> str:
    r"""Return how the first line of a Triton kernel contradicts its `get_inputs()`; empty if it does not.

    The numbers of elements of the largest inputs are compared, on which predictions depend. Sizes that are
    not written in the source as numbers or named constants are not compared.

    Examples:
        >>> kernel = "@triton.jit\ndef f(x): pass\ndef get_inputs():\n    return [torch.rand(8, 4)]\n"
        >>> contradiction("# input: [[16, 4]]\n" + kernel)
        'its first line has the input sizes [[16, 4]], and its get_inputs() has [[8, 4]]'

    Args:
        source: the source of a program.
    """
    declared = input_shapes(source) if _STATES_SIZES.match(source) else []
    if not declared or not TRITON_KERNEL.search(source) or python_error(source):
        return ""
    try:
        created = _created_shapes(ast.parse(source))
    except (_UnknownError, ArithmeticError, ValueError, TypeError, RecursionError):
        return ""
    if not created or max(map(math.prod, created)) == max(map(math.prod, declared)):
        return ""
    first, second = (
        ", ".join(f"[{', '.join(f'{n:.0f}' for n in shape)}]" for shape in shapes)
        for shapes in (declared, created)
    )
    return f"its first line has the input sizes [{first}], and its {INPUT_FUNCTION}() has [{second}]"


def _created_shapes(module: ast.Module) -> list[_Tensor]:
    """Return the shapes of the tensors that `get_inputs` returns; none without such a function.

    Raises:
        _UnknownError: the source does not say them.
    """
    definitions = [node for node in ast.walk(module) if _name_of_definition(node) == INPUT_FUNCTION]
    if not definitions:
        return []
    function = definitions[0]
    if len(definitions) > 1 or not isinstance(function, ast.FunctionDef) or function.decorator_list:
        raise _UnknownError
    names: dict[str, Any] = {}
    for statement in module.body:
        _execute(statement, names)
    for node in ast.walk(module):
        if isinstance(node, ast.Global):
            _remove(names, node.names)
    _remove(names, [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)])
    for statement in function.body:
        if isinstance(statement, ast.Return) and statement.value:
            returned = _value(statement.value, names)
            if any(isinstance(value, list) for value in returned):
                raise _UnknownError
            return [value for value in returned if isinstance(value, _Tensor)]
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            raise _UnknownError
        _execute(statement, names)
    raise _UnknownError


def _name_of_definition(node: ast.AST) -> str:
    """Return the name that a node defines or assigns; empty for another node."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.alias(name=name, asname=other):
            return other or name.partition(".")[0]
    return ""


def _execute(statement: ast.stmt, names: dict[str, Any]) -> None:
    """Set the names that a statement assigns; remove those whose values it does not say or may change."""
    pairs: list[tuple[ast.expr, Any]] = []
    if isinstance(statement, ast.Assign):
        with suppress(_UnknownError):
            pairs = [(target, _value(statement.value, names)) for target in statement.targets]
    is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    nodes = [statement] if is_definition else list(ast.walk(statement))
    defined = [name for node in nodes if (name := _name_of_definition(node))]
    used = [node.id for node in nodes if isinstance(node, ast.Name)]
    parts = [part for target, _ in pairs for part in ast.walk(target)]
    is_changed = not parts or any(isinstance(part, ast.Subscript | ast.Attribute) for part in parts)
    if is_changed and any(isinstance(names.get(name), list | _Tensor) for name in used):
        # It may be changed, also under the other names that it has.
        _remove(names, [name for name, value in names.items() if isinstance(value, list | _Tensor)])
    _remove(names, names if "*" in defined else defined)
    for target, value in pairs:
        names.update(_targets(target, value))


def _remove(names: dict[str, Any], removed: Iterable[str]) -> None:
    """Remove some names, which need not be known."""
    for name in tuple(removed):
        names.pop(name, None)


def _targets(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of a target with their values."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, list) and len(value) == len(target.elts):
        for part, own in zip(target.elts, value, strict=True):
            yield from _targets(part, own)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the number, the list or the shape of the tensor that an expression stands for.

    Raises:
        _UnknownError: the source does not say it.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, names) for part in parts]
        case ast.ListComp(elt=element, generators=[ast.comprehension(target=target, iter=items, ifs=[])]):
            if any(isinstance(part, ast.ListComp) for part in ast.walk(element)):
                raise _UnknownError  # it may take long
            return [
                _value(element, {**names, **dict(_targets(target, item))}) for item in _items(items, names)
            ]
        case ast.BinOp(left=left, op=operator, right=right):
            return _result(operator, _value(left, names), _value(right, names))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
            return _created(name, node, names)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in CONVERSIONS:
            return _value(inner, names)
    raise _UnknownError


def _items(node: ast.expr, names: Mapping[str, Any]) -> list[Any]:
    """Return the values over which a comprehension goes: a list, or a `range` of one number."""
    match node:
        case ast.Call(func=ast.Name(id="range"), args=[stop]):
            if (count := _value(stop, names)) > MAX_INPUTS:
                raise _UnknownError
            return list(range(count))
    items = _value(node, names)
    if not isinstance(items, list):
        raise _UnknownError
    return items


def _result(operator: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of an operation on two numbers, or on a tensor and a number."""
    if isinstance(left, int) and isinstance(right, int) and type(operator) in OPERATIONS:
        largest = MAX_EXPONENT if isinstance(operator, GROWING) else MAX_SIZE
        if abs(left) > MAX_SIZE or abs(right) > largest:
            raise _UnknownError
        return OPERATIONS[type(operator)](left, right)
    tensors = [value for value in (left, right) if isinstance(value, _Tensor)]
    others = [value for value in (left, right) if isinstance(value, int | float)]
    if len(tensors) == len(others) == 1:
        return tensors[0]
    raise _UnknownError


def _created(name: str, call: ast.Call, names: Mapping[str, Any]) -> _Tensor:
    """Return the shape of the tensor that a function of torch creates."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "size"]
    arguments = named or call.args
    if not named and name in SIZE_POSITIONS:
        arguments = [call.args[SIZE_POSITIONS[name]]] if call.args else []
    elif name not in SEVERAL_SIZES and name not in SIZE_POSITIONS:
        raise _UnknownError
    values = [_value(argument, names) for argument in arguments]
    sizes = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if not all(isinstance(size, int) for size in sizes):
        raise _UnknownError
    return _Tensor(sizes)
