"""Work shared with copies of this process, which have all that it has in memory."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

Item = TypeVar("Item")
Found = TypeVar("Found")


def mapped(
    work: Callable[[Item], Found], items: Sequence[Item], key: tuple[Hashable, ...] = ()
) -> Iterator[Found]:
    """What work finds of each item, in their order, as many at a time as torch has threads.

    Every so many items are this process's own; the others are those of its copies, which end with it.

    Args:
        work: what it finds can be pickled, and does not depend on what it was called with before.
        items: of work.
        key: equal where work is the same as before; within `staying` the same copies then go on with it.

    Raises:
        Exception: what work raised, here or in a copy.
        MemoryError: a copy was killed, as the system does where memory is short.
    """
    import torch  # takes a second, and a search whose predictor is another one needs none

    processes = min(torch.get_num_threads(), len(items))
    # Elsewhere than on Linux copies of processes with threads are not safe, and daemons may have none.
    if processes < 2 or sys.platform != "linux" or multiprocessing.current_process().daemon:
        yield from map(work, items)
        return
    with _one_thread():
        if key and _place is not None and _can_be_sent(items[0]):
            yield from _place.crew(work, key, processes).mapped(items)
        else:
            with closing(_Crew[int, Found](lambda number: work(items[number]), processes)) as crew:
                yield from crew.mapped(range(len(items)))


@contextmanager
def staying() -> Iterator[None]:
    """Within it copies stay for the next items of the same work, and keep what they have remembered."""
    global _place
    before, _place = _place, _Place()
    try:
        yield
    finally:
        _place.close()
        _place = before


class _Crew(Generic[Item, Found]):
    """This process and its copies, each of which does every so many items.

    Args:
        work: of each.
        processes: so many, with this one.
    """

    def __init__(self, work: Callable[[Item], Found], processes: int) -> None:
        self.work, self.processes = work, processes
        self.copies: list[ForkProcess] = []
        self.pipes: list[Connection] = []
        context = multiprocessing.get_context("fork")
        for _ in range(1, processes):
            here, there = context.Pipe()
            self.pipes.append(here)
            copy = context.Process(target=_serve, args=(work, there, self.pipes), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which torch keeps at rest
                copy.start()
            self.copies.append(copy)
            there.close()

    def mapped(self, items: Sequence[Item]) -> Iterator[Found]:
        """What work finds of each item, in their order; who stops asking ends the copies."""
        try:
            for pipe, item in zip(self.pipes, items[1 : self.processes], strict=False):
                _send(pipe, item)
            for number, item in enumerate(items):
                place = number % self.processes
                if place == 0:
                    yield self.work(item)
                    continue
                found = _received(self.pipes[place - 1])
                if number + self.processes < len(items):
                    _send(self.pipes[place - 1], items[number + self.processes])
                yield found
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the copies."""
        for copy in self.copies:
            copy.kill()
            copy.join()
        for pipe in self.pipes:
            pipe.close()
        self.copies, self.pipes = [], []


class _Place:
    """Where a crew stays until other work comes."""

    def __init__(self) -> None:
        self.key: tuple[Hashable, ...] = ()
        self.stays: _Crew[Any, Any] | None = None

    def crew(
        self, work: Callable[[Item], Found], key: tuple[Hashable, ...], processes: int
    ) -> _Crew[Item, Found]:
        """A crew for some work, that of before if it can do it."""
        if self.stays is None or key != self.key or len(self.stays.copies) < processes - 1:
            self.close()
            self.key, self.stays = key, _Crew(work, processes)
        return self.stays

    def close(self) -> None:
        if self.stays is not None:
            self.stays.close()


_place: _Place | None = None


def _can_be_sent(item: Any) -> bool:
    """Whether it can be pickled: what is of a class within a function cannot."""
    try:
        pickle.dumps(item)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def _killed_is_told() -> Iterator[None]:
    """A copy that does not answer, or is not there to be asked, was killed."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise MemoryError("a copy of this process was killed: expected enough memory for it") from None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within it torch computes with one thread, as the copies must."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _serve(work: Callable[[Item], Any], pipe: Connection, others: Sequence[Connection]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks is interrupted, and ends its copies
    gc.disable()  # else all that was inherited is looked at, and copied, again and again
    for other in others:
        other.close()  # else nobody would notice when the process that asks has ended
    with suppress(EOFError, BrokenPipeError):
        _serve_all(work, pipe)


def _serve_all(work: Callable[[Item], Any], pipe: Connection) -> None:
    while True:
        item = pipe.recv()
        with warnings.catch_warnings(record=True) as warned:
            try:
                found = True, work(item)
            except Exception as error:
                found = False, error
        pipe.send((*found, [(str(one.message), one.category) for one in warned]))


def _send(pipe: Connection, item: Any) -> None:
    with _killed_is_told():
        pipe.send(item)


def _received(pipe: Connection) -> Any:
    with _killed_is_told():
        is_found, found, warned = pipe.recv()
    for message, category in warned:
        warnings.warn(message, category, stacklevel=2)
    if not is_found:
        raise found
    return found
