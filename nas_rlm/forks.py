"""Work shared with copies of this process, which have all that it has in memory."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

Item = TypeVar("Item")
Found = TypeVar("Found")


def mapped(work: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """What work finds of each item, in their order, as many at a time as torch has threads.

    Every so many items are this process's own; the others are those of its copies, which end with it.

    Args:
        work: what it finds can be pickled, and does not depend on what it was called with before.
        items: of work.

    Raises:
        Exception: what work raised, here or in a copy.
        MemoryError: a copy was killed, as the system does where memory is short.
    """
    processes = min(torch.get_num_threads(), len(items))
    # Elsewhere than on Linux copies of processes with threads are not safe, and daemons may have none.
    if processes < 2 or sys.platform != "linux" or multiprocessing.current_process().daemon:
        yield from map(work, items)
        return
    with _one_thread(), _copies(work, [items[k::processes] for k in range(1, processes)]) as pipes:
        for number, item in enumerate(items):
            mine = number % processes == 0
            yield work(item) if mine else _received(pipes[number % processes - 1])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within it torch computes with one thread, as the copies must."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _copies(work: Callable[[Any], Any], parts: Sequence[Sequence[Any]]) -> Iterator[list[Connection]]:
    """Copies of this process, each of which does a part; within it they are there, each behind a pipe."""
    context = multiprocessing.get_context("fork")
    started: list[ForkProcess] = []
    pipes = []
    try:
        for part in parts:
            receiving, sending = context.Pipe(duplex=False)
            pipes.append(receiving)
            copy = context.Process(target=_serve, args=(work, part, sending), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which torch keeps at rest
                copy.start()
            started.append(copy)
            sending.close()
        yield pipes
    finally:
        for copy in started:
            copy.kill()
            copy.join()
        for pipe in pipes:
            pipe.close()


def _serve(work: Callable[[Item], Any], items: Sequence[Item], pipe: Connection) -> None:
    for item in items:
        with warnings.catch_warnings(record=True) as warned:
            try:
                found = True, work(item)
            except Exception as error:
                found = False, error
        pipe.send((*found, [(str(one.message), one.category) for one in warned]))


def _received(pipe: Connection) -> Any:
    try:
        is_found, found, warned = pipe.recv()
    except EOFError:
        raise MemoryError("a copy of this process was killed: expected enough memory for it") from None
    for message, category in warned:
        warnings.warn(message, category, stacklevel=2)
    if not is_found:
        raise found
    return found
