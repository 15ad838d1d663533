"""Parallel map over forked worker processes, which share the memory of this process."""

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
Result = TypeVar("Result")


def map_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], key: tuple[Hashable, ...] = ()
) -> Iterator[Result]:
    """Yield the results of a function of each item, in order, computed in parallel processes.

    The number of processes is torch's number of threads. Items are assigned to them in turn. The calling
    process is one of them; the others are forked workers, which are ended with the iteration.

    Args:
        work: function of an item; its result can be pickled and does not depend on earlier calls.
        items: arguments of `work`.
        key: key of `work`; within `reused_workers`, calls with equal keys share their worker processes.

    Raises:
        Exception: any exception of `work`.
        MemoryError: a worker was killed, as the operating system does when memory runs out.
    """
    import torch  # slow to import, and not needed by every search

    processes = min(torch.get_num_threads(), len(items))
    # Only on Linux it is safe to fork a process with threads, and daemons may not fork.
    if processes < 2 or sys.platform != "linux" or multiprocessing.current_process().daemon:
        yield from map(work, items)
        return
    with one_thread():
        if key and _reused_pool is not None and _is_picklable(items[0]):
            yield from _reused_pool.get(work, key, processes).map_in_processes(items)
        else:
            # Indices are sent instead of items, which the workers have inherited.
            with closing(_Pool[int, Result](lambda index: work(items[index]), processes)) as pool:
                yield from pool.map_in_processes(range(len(items)))


@contextmanager
def reused_workers() -> Iterator[None]:
    """Reuse workers and their caches in calls of `map_in_processes` with equal keys, in a `with` block."""
    global _reused_pool
    before, _reused_pool = _reused_pool, _ReusedPool()
    try:
        yield
    finally:
        _reused_pool.close()
        _reused_pool = before


class _Pool(Generic[Item, Result]):
    """This process and its forked workers.

    Args:
        work: function of an item.
        processes: number of processes, this one included.
    """

    def __init__(self, work: Callable[[Item], Result], processes: int) -> None:
        self.work, self.processes = work, processes
        self.workers: list[ForkProcess] = []
        self.pipes: list[Connection] = []
        context = multiprocessing.get_context("fork")
        for _ in range(1, processes):
            parent_end, worker_end = context.Pipe()
            self.pipes.append(parent_end)
            worker = context.Process(target=_serve, args=(work, worker_end, self.pipes), daemon=True)
            with warnings.catch_warnings():
                # Of forking a process with threads; torch's are idle here.
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            self.workers.append(worker)
            worker_end.close()

    def map_in_processes(self, items: Sequence[Item]) -> Iterator[Result]:
        """Yield the result of each item in order; if the iteration is aborted, end the workers."""
        try:
            for pipe, item in zip(self.pipes, items[1 : self.processes], strict=False):
                _send(pipe, item)
            for index, item in enumerate(items):
                process = index % self.processes
                if process == 0:
                    yield self.work(item)
                    continue
                result = _receive(self.pipes[process - 1])
                if index + self.processes < len(items):
                    _send(self.pipes[process - 1], items[index + self.processes])
                yield result
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.kill()
            worker.join()
        for pipe in self.pipes:
            pipe.close()
        self.workers, self.pipes = [], []


class _ReusedPool:
    """A pool that is reused for calls with equal keys."""

    def __init__(self) -> None:
        self.key: tuple[Hashable, ...] = ()
        self.pool: _Pool[Any, Any] | None = None

    def get(
        self, work: Callable[[Item], Result], key: tuple[Hashable, ...], processes: int
    ) -> _Pool[Item, Result]:
        """Return the pool, a new one if the last key was another or more processes are needed."""
        if self.pool is None or key != self.key or len(self.pool.workers) < processes - 1:
            self.close()
            self.key, self.pool = key, _Pool(work, processes)
        return self.pool

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()


_reused_pool: _ReusedPool | None = None


def _is_picklable(item: Any) -> bool:
    """Return whether an item can be pickled; an instance of a class defined in a function cannot."""
    try:
        pickle.dumps(item)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def _report_killed_worker() -> Iterator[None]:
    """Raise a MemoryError if the worker at the other end of a pipe was killed."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise MemoryError("a worker process was killed, perhaps because memory ran out") from None


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread within a `with` block.

    Forked workers cannot use more. Operations on small matrices gain nothing from more, and wait long for
    them on a busy machine.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _serve(work: Callable[[Item], Any], pipe: Connection, inherited_pipes: Sequence[Connection]) -> None:
    """Run a worker until the parent process ends.

    Args:
        work: function of an item.
        pipe: connection to the parent process.
        inherited_pipes: the parent's ends of the workers' pipes, which are closed here.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its workers
    gc.disable()  # a collection would touch, and so copy, all inherited memory
    for inherited in inherited_pipes:
        inherited.close()  # else a worker keeps the pipes open after the parent has ended
    with suppress(EOFError, BrokenPipeError):
        _answer_requests(work, pipe)


def _answer_requests(work: Callable[[Item], Any], pipe: Connection) -> None:
    """Receive items, and send back for each whether it succeeded, its result or error, and its warnings."""
    while True:
        item = pipe.recv()
        with warnings.catch_warnings(record=True) as caught:
            try:
                reply = True, work(item)
            except Exception as error:
                reply = False, error
        pipe.send((*reply, [(str(warning.message), warning.category) for warning in caught]))


def _send(pipe: Connection, item: Any) -> None:
    """Send an item to a worker."""
    with _report_killed_worker():
        pipe.send(item)


def _receive(pipe: Connection) -> Any:
    """Receive a result from a worker, and repeat its warnings and exceptions in this process."""
    with _report_killed_worker():
        succeeded, result, caught = pipe.recv()
    for message, category in caught:
        warnings.warn(message, category, stacklevel=2)
    if not succeeded:
        raise result
    return result
