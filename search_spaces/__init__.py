"""Search spaces: notation, genome, variation operators and network of architectures.

Terms:

- architecture: a member of a space; its `str` is its text in the notation of the benchmark;
- genome: an architecture as an array of integers (genes), which mutation and crossover change;
- block: a part of a network that `Graph.block` writes; repeated blocks become ONNX local functions;
- leaf: a weight or constant that an operator reads.

May import: only numpy and onnx. A checked graph looks up `nas_rlm.graph.builder_checks` by name, when the
network of a user's own space is built.
"""

from __future__ import annotations

import inspect
import os
import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from search_spaces.loading import absolute_location, check_attributes, instantiate, is_location, load_space
from search_spaces.notation import most_similar
from search_spaces.space import IMAGE_CLASSIFICATION, LANGUAGE_MODELLING, SearchSpace

__all__ = [
    "IMAGE_CLASSIFICATION",
    "LANGUAGE_MODELLING",
    "SearchSpace",
    "checked",
    "get",
    "location_of",
    "name_of",
    "names",
    "register",
    "registered_name",
    "task_of",
]

_BUILT_IN = {
    "fbnet": "fbnet:FBNet",
    "gpt_l": "gpt:GPTLarge",
    "gpt_m": "gpt:GPTMedium",
    "gpt_s": "gpt:GPTSmall",
    "hiaml": "hiaml:HiAML",
    "inception": "inception:Inception",
    "nasbench101": "nasbench101:NASBench101",
    "nasbench201": "nasbench201:NASBench201",
    "nats_size": "nats_size:NATSSize",
    "nds_amoeba": "nds:Amoeba",
    "nds_darts": "nds:DARTS",
    "nds_enas": "nds:ENAS",
    "nds_nasnet": "nds:NASNet",
    "nds_pnas": "nds:PNAS",
    "nds_resnet": "nds_blocks:ResNet",
    "nds_resnext_a": "nds_blocks:ResNeXtA",
    "nds_resnext_b": "nds_blocks:ResNeXtB",
    "nds_vanilla": "nds_blocks:Vanilla",
    "ofa_mbv3": "ofa:OFAMobileNetV3",
    "ofa_proxyless": "ofa:OFAProxyless",
    "ofa_resnet50": "ofa:OFAResNet50",
    "snas": "snas:SNAS",
    "two_path": "two_path:TwoPath",
}
ENTRY_POINT_GROUP = "nas_rlm.search_spaces"
_registered: dict[str, SearchSpace[Any]] = {}  # by `register` or by `get` with a location


def names() -> list[str]:
    """Return the names of all spaces: those of this package, of installed packages, and of `register`."""
    return sorted({*_BUILT_IN, *_registered, *_installed().names})


def get(name: str) -> SearchSpace[Any]:
    """Return a search space by name, or load one from a file or module.

    A loaded space is registered: its name is known in this process from then on.

    Examples:
        >>> get("nasbench201").size
        15625
        >>> get("mine.py:MySpace")  # doctest: +SKIP

    Args:
        name: name of a space, `FILE.py:CLASS` or `MODULE:CLASS`. The file or module is executed.

    Raises:
        ValueError: no space has this name, and the message suggests the most similar one; or the space cannot
            be loaded, is not valid, or has the name of another space.
    """
    if name in _BUILT_IN:
        module, kind = _BUILT_IN[name].split(":")
        space: SearchSpace[Any] = getattr(import_module(f"search_spaces.{module}"), kind)()
        return space
    if name in _registered:
        return _registered[name]
    if is_location(name):
        return register(load_space(name))
    for entry in _installed().select(name=name):
        return _load_entry_point(entry)
    if name.endswith(".py"):
        raise ValueError(f"search space {name!r} is a file: expected FILE.py:CLASS, such as {name}:MySpace")
    problem = f"no search space {name!r}; did you mean {most_similar(name, names())!r}? Known:"
    raise ValueError(
        f"{problem if name else 'the name of a search space is empty: expected one of'}"
        f" {', '.join(names())}; or FILE.py:CLASS for your own, or register_space in Python"
    )


def register(space: str | SearchSpace[Any]) -> SearchSpace[Any]:
    """Make a space known by its name in this process, so that rows of tables can name it; return it.

    A changed class of the same file and class name replaces its earlier version.

    Args:
        space: an object, or the name or location of a space.

    Raises:
        ValueError: see `checked`.
    """
    space = checked(space)
    if not space.is_built_in:
        _registered[space.name] = space
    return space


def checked(space: str | SearchSpace[Any]) -> SearchSpace[Any]:
    """Return a space that is given by its name or location, or as an object, which is not registered.

    Raises:
        ValueError: no space has the name, or the object is no space, has an attribute that is not valid, or
            has the name of another space.
    """
    if isinstance(space, str):
        return get(space)
    if not isinstance(space, SearchSpace):
        found = f"the class {space.__name__}" if isinstance(space, type) else repr(space)
        raise ValueError(f"the search space is {found}: expected an object such as MySpace(), or its name")
    check_attributes(space, f"search space {space.location or type(space).__name__!r}")
    _check_name(space)
    return space


def _check_name(space: SearchSpace[Any]) -> None:
    """Check that no other space has the name of a space.

    Raises:
        ValueError: a registered space has it.
    """
    if space.is_built_in:
        return
    name, kind = space.name, type(space)
    other = _registered.get(name)
    is_other = other is not None and _identity(other) != _identity(space)
    points = _installed().select(name=name)
    is_other |= any(_identity(_load_entry_point(e)) != _identity(space) for e in points)
    if name in _BUILT_IN or is_other:
        raise ValueError(
            f"search space {space.location or kind.__qualname__!r} has the name {name!r}, which another"
            " search space has: choose another name"
        )


def name_of(name: str) -> str:
    """Return the name of a space that is given by its name, which may be unknown, or by its location."""
    return get(name).name if is_location(name) else name


def registered_name(name: str) -> str:
    """Return the name of a space that is given by its name, or by its location if it was loaded before.

    Nothing is loaded: an unknown location is returned as it is.
    """
    if not is_location(name):
        return name
    found = [space.name for space in _registered.values() if space.location == absolute_location(name)]
    return found[0] if found else name


def task_of(name: str) -> str:
    """Return the task of a space that is known by its name; empty for an unknown one.

    Examples:
        >>> task_of("nasbench201"), task_of("gpt_s"), task_of("unknown")
        ('image classification', 'language modelling', '')
    """
    if name not in names():
        return ""
    return get(name).known_task


def location_of(space: SearchSpace[Any]) -> str:
    """Return from where a user's own space can be loaded again; empty for a registered or a local one."""
    kind = type(space)
    is_named = space.is_built_in or space.name in _installed().names
    if is_named or space.location:
        return "" if is_named else space.location
    is_local = kind.__module__ == "__main__" or "." in kind.__qualname__
    return "" if is_local else f"{kind.__module__}:{kind.__qualname__}"


def _installed() -> EntryPoints:
    """Return the entry points of installed packages that are search spaces.

    Reading them takes longer than predicting a network, and predictions look up spaces by name: they are read
    again only where a directory of packages has changed.
    """
    return _entry_points_of(tuple((path, _time_of_change(path)) for path in sys.path))


@lru_cache(maxsize=1)
def _entry_points_of(directories: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return the entry points that are search spaces, as of the given directories and times of change."""
    return entry_points(group=ENTRY_POINT_GROUP)


def _time_of_change(path: str) -> int:
    """Return when a directory or archive was changed, in nanoseconds; 0 where there is none."""
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _identity(space: SearchSpace[Any]) -> tuple[str, str]:
    """Return what is equal for two versions of one space: its class, and the file or module of that."""
    kind = type(space)
    try:
        source = inspect.getfile(kind)
    except (OSError, TypeError):
        source = kind.__module__
    return source, kind.__qualname__


def _load_entry_point(entry: EntryPoint) -> SearchSpace[Any]:
    """Return the space of an entry point.

    Raises:
        ValueError: it cannot be loaded, is not valid, or has another name.
    """
    where = f"search space {entry.name!r}, the entry point {entry.value!r}"
    try:
        kind = entry.load()
    except Exception as error:  # code of a package may raise anything
        raise ValueError(f"{where}, cannot be loaded: {type(error).__name__}: {error}") from error
    space = instantiate(kind, where)
    if space.name != entry.name:
        raise ValueError(f"{where}, has the name {space.name!r}: expected equal names")
    return space
