import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.utils import process_pool

SPACE = search_spaces.get("nasbench201")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked only on Linux")


@pytest.fixture
def threads():
    """Sets the number of torch's threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_work_is_shared_and_results_come_in_order(threads, count):
    threads(count)
    results = list(
        process_pool.map_in_processes(lambda item: (item**2, os.getpid(), torch.get_num_threads()), range(7))
    )
    assert [square for square, *_ in results] == [item**2 for item in range(7)]
    assert len({process for _, process, _ in results}) == count
    assert results[0][1] == os.getpid()
    assert {num_threads for *_, num_threads in results} == {1}
    assert torch.get_num_threads() == count
    assert list(process_pool.map_in_processes(str, [])) == []


def test_exceptions_of_workers_are_raised(threads):
    threads(2)

    def work(item):
        if item == 3:
            raise ValueError(f"{item} is invalid")
        return item

    results = process_pool.map_in_processes(work, range(5))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3 is invalid"):
        next(results)
    assert not multiprocessing.active_children()
    assert torch.get_num_threads() == 2


def test_warnings_of_workers_are_repeated(threads):
    threads(2)
    with pytest.warns(UserWarning, match="1 is odd"):
        assert list(
            process_pool.map_in_processes(
                lambda i: warnings.warn(f"{i} is odd", stacklevel=1) if i % 2 else i, range(2)
            )
        )


def test_a_killed_worker_is_reported(threads):
    threads(2)
    results = process_pool.map_in_processes(
        lambda item: os.kill(os.getpid(), signal.SIGKILL) if item == 1 else item, range(3)
    )
    assert next(results) == 0
    with pytest.raises(MemoryError, match="was killed"):
        next(results)


def test_a_worker_that_is_killed_while_idle_is_reported_and_replaced(threads):
    threads(2)
    with process_pool.reused_workers():
        (_, worker) = process_pool.map_in_processes(lambda item: os.getpid(), [1, 2], ("work",))
        os.kill(worker, signal.SIGKILL)
        multiprocessing.active_children()[0].join()
        with pytest.raises(MemoryError, match="was killed"):
            list(process_pool.map_in_processes(lambda item: os.getpid(), [1, 2], ("work",)))
        assert list(process_pool.map_in_processes(lambda item: item, [1, 2], ("work",))) == [1, 2]


def test_workers_end_if_the_iteration_is_not_completed(threads):
    threads(2)
    results = process_pool.map_in_processes(str, range(9))
    assert next(results) == "0"
    results.close()
    assert not multiprocessing.active_children()


def test_predictions_are_the_same_in_one_process_and_in_several(tiny_checkpoint, threads):
    rlm = RLM.load(tiny_checkpoint)
    rng = np.random.default_rng(0)
    archs = [SPACE.sample(rng) for _ in range(50)]
    predictions = []
    for count in (1, 2):
        threads(count)
        predictions.append(rlm.predict(SPACE, archs, rlm.objectives, (0.1, 0.5), batch_size=8))
    assert np.array_equal(*predictions)


def test_workers_and_their_state_are_kept(threads):
    threads(2)
    worked_on = []

    def work(item):
        worked_on.append(item)
        return os.getpid(), list(worked_on)

    with process_pool.reused_workers():
        first, second = (
            list(process_pool.map_in_processes(work, items, ("work",))) for items in ([1, 2], [3, 4])
        )
        assert [process for process, _ in first] == [process for process, _ in second]
        assert [results for _, results in second] == [[1, 3], [2, 4]]
        other = list(process_pool.map_in_processes(work, [5, 6], ("another",)))
        assert other[1] == (other[1][0], [1, 3, 6])
        assert other[1][0] != first[1][0]
        assert len(multiprocessing.active_children()) == 1
    assert not multiprocessing.active_children()


def test_kept_workers_are_replaced_after_an_error(threads):
    threads(2)
    with process_pool.reused_workers():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                list(process_pool.map_in_processes(lambda item: 1 / item, [1, 0], ("work",)))
        assert list(process_pool.map_in_processes(lambda item: 1 / item, [1, 2, 4], ("work",))) == [
            1,
            0.5,
            0.25,
        ]


def test_items_that_cannot_be_pickled_are_inherited(threads):
    class Local:
        value = 3

    threads(2)
    with process_pool.reused_workers():
        assert list(
            process_pool.map_in_processes(lambda item: item.value, [Local(), Local()], ("work",))
        ) == [3, 3]


def test_a_search_does_not_depend_on_the_number_of_processes(tiny_checkpoint, threads):
    from nas_rlm.search.loop import search
    from nas_rlm.search.settings import SearchSettings

    rlm = RLM.load(tiny_checkpoint)
    settings = SearchSettings("nasbench201", rlm.objectives[:2], population=64, generations=3)
    results = []
    for count in (1, 2):
        threads(count)
        results.append(search(SPACE, rlm, settings))
    assert results[0].architectures == results[1].architectures
    assert np.array_equal(results[0].values, results[1].values)
    assert not multiprocessing.active_children()


def test_workers_end_if_their_parent_is_killed():
    program = """
import os, signal, torch
from nas_rlm.utils import process_pool
torch.set_num_threads(3)
with process_pool.reused_workers():
    pids = list(process_pool.map_in_processes(lambda item: os.getpid(), range(3), ("work",)))
    print(*pids[1:], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    pids = [int(pid) for pid in process.stdout.split()]
    assert len(pids) == 2 and not process.stderr
    for _ in range(100):
        if not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"some of {pids} are still running")


def draw_matrix(seed):
    rng = np.random.default_rng(seed)
    return np.tanh(rng.normal(size=(30, 30)) @ rng.normal(size=(30, 4)))


def map_with_executor(work, items):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
            return list(executor.map(work, items))
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results_and_their_order_are_those_of_an_executor(threads):
    threads(2)
    rounds = [range(0, 7), range(7, 9), range(9, 10), range(0)]
    expected = [map_with_executor(draw_matrix, items) for items in rounds]
    with process_pool.reused_workers():
        kept = [list(process_pool.map_in_processes(draw_matrix, items, ("draw",))) for items in rounds]
    new = [list(process_pool.map_in_processes(draw_matrix, items)) for items in rounds]
    for found in (kept, new):
        assert [len(matrices) for matrices in found] == [7, 2, 1, 0]
        for matrices, of_executor in zip(found, expected, strict=True):
            assert all(map(np.array_equal, matrices, of_executor))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_exception_is_that_of_an_executor(threads):
    threads(2)
    with pytest.raises(TypeError) as expected:
        map_with_executor(operator.neg, [1, "a", 2])
    with pytest.raises(TypeError) as found:
        list(process_pool.map_in_processes(operator.neg, [1, "a", 2]))
    assert str(found.value) == str(expected.value)
    assert not multiprocessing.active_children()
