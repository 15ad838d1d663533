"""Loading of users' own search spaces from Python files and modules, with checks of their classes."""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from search_spaces.graph import INPUT_TYPES
from search_spaces.notation import most_similar
from search_spaces.space import DEFAULT_TASKS, SearchSpace

METHODS = ("decode", "encode", "parse", "write")  # that a subclass has to define
FORBIDDEN_IN_NAMES = " ,:<>=@/\\"  # characters that separate names in lists, locations and constraints


def is_location(name: str) -> bool:
    """Return True for the location of a space, such as `mine.py:MySpace`, and False for a name."""
    return ":" in name


def load_space(location: str) -> SearchSpace[Any]:
    """Load a space from a file or module, which is executed.

    Args:
        location: `FILE.py:CLASS` or `MODULE:CLASS`.

    Raises:
        ValueError: the file, module or class does not exist, raises an error, or is not a search space.
    """
    source, _, name = location.rpartition(":")
    if not source or not name:
        raise ValueError(
            f"search space {location!r} is not FILE.py:CLASS or MODULE:CLASS: try mine.py:MySpace"
        )
    where = f"search space {location!r}"
    module = load_module(source, where)
    kind = getattr(module, name, None)
    if kind is None:
        spaces = [n for n, v in vars(module).items() if _is_own_space(v)]
        known = f"did you mean {most_similar(name, spaces)!r}?" if spaces else "it has no SearchSpace at all"
        raise ValueError(f"{where}: {source} has no class {name!r}; {known}")
    space = instantiate(kind, where)
    space.location = absolute_location(location)
    return space


def absolute_location(location: str) -> str:
    """Return a location with the absolute path of its file."""
    source, _, name = location.rpartition(":")
    return f"{Path(source).resolve() if source.endswith('.py') else source}:{name}"


def instantiate(kind: Any, where: str) -> SearchSpace[Any]:
    """Return an object of a class of search spaces.

    Args:
        kind: the class.
        where: where it comes from, for messages.

    Raises:
        ValueError: it is not a subclass of SearchSpace, lacks methods or attributes, needs arguments, or
            raises an error.
    """
    if not inspect.isclass(kind) or not issubclass(kind, SearchSpace):
        found = f"{kind.__name__} is a class" if inspect.isclass(kind) else f"it is a {type(kind).__name__}"
        raise ValueError(f"{where}: {found}, expected a subclass of search_spaces.SearchSpace")
    if missing := [name for name in METHODS if name in kind.__abstractmethods__]:
        missing += sorted(kind.__abstractmethods__.difference(missing))
        raise ValueError(f"{where}: {kind.__name__} does not define {', '.join(missing)}")
    required = [
        p.name
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        raise ValueError(
            f"{where}: the constructor of {kind.__name__} needs {', '.join(required)}: expected defaults,"
            " or a subclass without arguments"
        )
    try:
        space: SearchSpace[Any] = kind()
        check_attributes(space, where)
    except (Exception, SystemExit) as error:  # user code may raise anything
        if isinstance(error, ValueError) and str(error).startswith(where):
            raise
        raise ValueError(f"{where}: {kind.__name__}() failed: {_describe(error)}") from error
    return space


def check_attributes(space: SearchSpace[Any], where: str) -> None:
    """Check the attributes of a space.

    Args:
        space: the space.
        where: where it comes from, for messages.

    Raises:
        ValueError: one is missing, or has a wrong type or value.
    """
    kind = type(space).__name__
    for attribute in ("name", "size", "genes", "input_shape", "input_type", "task", "batch_size"):
        if not hasattr(space, attribute):
            raise ValueError(f"{where}: {kind} has no attribute {attribute!r}")
    if not isinstance(space.name, str) or not space.name or any(c in FORBIDDEN_IN_NAMES for c in space.name):
        raise ValueError(
            f"{where}: the name of {kind} is {space.name!r}, expected a text without blanks and , : < > = @ /"
        )
    if space.size is not None and not _is_positive(space.size):
        raise ValueError(
            f"{where}: the size of {kind} is {space.size!r}, expected a positive integer or None"
        )
    for attribute, values in (("genes", space.genes), ("input_shape", space.input_shape)):
        if not isinstance(values, tuple) or not values or not all(map(_is_positive, values)):
            raise ValueError(
                f"{where}: {attribute} of {kind} is {values!r}, expected a tuple of positive integers"
            )
    if not _is_positive(space.batch_size):
        raise ValueError(
            f"{where}: the batch_size of {kind} is {space.batch_size!r}, expected a positive integer"
        )
    if space.input_type not in INPUT_TYPES:
        raise ValueError(
            f"{where}: input_type of {kind} is {space.input_type!r}, expected {' or '.join(INPUT_TYPES)}"
        )
    if not isinstance(space.task, str):
        raise ValueError(
            f"{where}: task of {kind} is {space.task!r}, expected a text such as 'image classification'"
        )
    if len(space.input_shape) > (len(DEFAULT_TASKS) if space.input_type == "float" else 1):
        expected = (
            "one number of features, or channels and up to three sizes, such as (3, 32, 32) of images"
            if space.input_type == "float"
            else "the number of tokens"
        )
        raise ValueError(f"{where}: input_shape of {kind} is {space.input_shape!r}, expected {expected}")


def load_module(source: str, where: str) -> ModuleType:
    """Execute a Python file, or import a module.

    Modules beside the file, or in the working directory, can be imported meanwhile.

    Args:
        source: `FILE.py`, or the dotted name of a module.
        where: what it is for, for messages.

    Raises:
        ValueError: it does not exist, or raises an error.
    """
    is_file = source.endswith(".py")
    path = Path(source)
    if is_file and not path.is_file():
        raise ValueError(f"{where}: there is no file {source}")
    try:
        with _import_directory(path.resolve().parent if is_file else Path.cwd()):
            return _execute(path) if is_file else importlib.import_module(source)
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise ValueError(f"{where}: {source} cannot be run: {_describe(error)}") from error


def fingerprint(space: SearchSpace[Any]) -> str:
    """Return a hash of the source of a space that may change between runs; empty for a built-in one."""
    if space.is_built_in:
        return ""
    try:
        content = Path(inspect.getfile(type(space))).read_bytes()
    except (OSError, TypeError):
        content = repr(type(space)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def network_fingerprint(space: SearchSpace[Any], architecture: Any) -> str:
    """Return a hash of the network of an architecture of a space that may change between runs.

    It is empty for a built-in space, and that of an empty text where the network is not valid.
    """
    if space.is_built_in:
        return ""
    is_valid = not space.network_error(architecture)
    content = space.to_onnx(architecture).SerializeToString(deterministic=True) if is_valid else b""
    return hashlib.sha256(content).hexdigest()[:16]


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time: bytecode counts as valid after a change of less than a second."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled source of a module."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _execute(path: Path) -> ModuleType:
    """Execute a Python file as a module with a name of its own, again only if the file was changed."""
    digest = hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:8]
    name = f"nas_rlm_user_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look the module up by its name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _import_directory(directory: Path) -> Iterator[None]:
    """Let modules of a directory be imported within a `with` block."""
    entry = str(directory)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _is_own_space(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, SearchSpace) and value is not SearchSpace


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _describe(error: BaseException) -> str:
    reason = " ".join(str(error).split())
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
