import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.utils import process_pool

SPACE = search_spaces.get("nasbench201")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes copy themselves on Linux alone")


@pytest.fixture
def threads():
    """Lets torch have some threads, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_work_is_shared_and_comes_in_order(threads, count):
    threads(count)
    found = list(process_pool.mapped(lambda item: (item**2, os.getpid(), torch.get_num_threads()), range(7)))
    assert [square for square, *_ in found] == [item**2 for item in range(7)]
    assert len({process for _, process, _ in found}) == count
    assert found[0][1] == os.getpid()
    assert {own for *_, own in found} == {1}
    assert torch.get_num_threads() == count
    assert list(process_pool.mapped(str, [])) == []


def test_what_a_copy_raises_is_raised(threads):
    threads(2)

    def work(item):
        if item == 3:
            raise ValueError(f"{item} is no good")
        return item

    found = process_pool.mapped(work, range(5))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3 is no good"):
        next(found)
    assert not multiprocessing.active_children()
    assert torch.get_num_threads() == 2


def test_what_a_copy_warns_of_is_warned_of(threads):
    threads(2)
    with pytest.warns(UserWarning, match="1 is odd"):
        assert list(
            process_pool.mapped(
                lambda i: warnings.warn(f"{i} is odd", stacklevel=1) if i % 2 else i, range(2)
            )
        )


def test_a_killed_copy_is_told(threads):
    threads(2)
    found = process_pool.mapped(
        lambda item: os.kill(os.getpid(), signal.SIGKILL) if item == 1 else item, range(3)
    )
    assert next(found) == 0
    with pytest.raises(MemoryError, match="was killed"):
        next(found)


def test_a_copy_that_is_killed_while_it_waits_is_told_and_another_one_takes_its_place(threads):
    threads(2)
    with process_pool.staying():
        (_, copy) = process_pool.mapped(lambda item: os.getpid(), [1, 2], ("work",))
        os.kill(copy, signal.SIGKILL)
        multiprocessing.active_children()[0].join()
        with pytest.raises(MemoryError, match="was killed"):
            list(process_pool.mapped(lambda item: os.getpid(), [1, 2], ("work",)))
        assert list(process_pool.mapped(lambda item: item, [1, 2], ("work",))) == [1, 2]


def test_who_stops_asking_leaves_no_copy(threads):
    threads(2)
    found = process_pool.mapped(str, range(9))
    assert next(found) == "0"
    found.close()
    assert not multiprocessing.active_children()


def test_predictions_are_the_same_in_one_process_and_in_several(tiny_checkpoint, threads):
    rlm = RLM.load(tiny_checkpoint)
    rng = np.random.default_rng(0)
    archs = [SPACE.sample(rng) for _ in range(50)]
    told = []
    for count in (1, 2):
        threads(count)
        told.append(rlm.predict(SPACE, archs, rlm.objectives, (0.1, 0.5), batch_size=8))
    assert np.array_equal(*told)


def test_copies_stay_and_remember(threads):
    threads(2)
    remembered = []

    def work(item):
        remembered.append(item)
        return os.getpid(), list(remembered)

    with process_pool.staying():
        first, second = (list(process_pool.mapped(work, items, ("work",))) for items in ([1, 2], [3, 4]))
        assert [process for process, _ in first] == [process for process, _ in second]
        assert [found for _, found in second] == [[1, 3], [2, 4]]
        other = list(process_pool.mapped(work, [5, 6], ("another",)))
        assert other[1] == (other[1][0], [1, 3, 6])
        assert other[1][0] != first[1][0]
        assert len(multiprocessing.active_children()) == 1
    assert not multiprocessing.active_children()


def test_copies_that_stay_end_with_an_error_and_others_go_on(threads):
    threads(2)
    with process_pool.staying():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                list(process_pool.mapped(lambda item: 1 / item, [1, 0], ("work",)))
        assert list(process_pool.mapped(lambda item: 1 / item, [1, 2, 4], ("work",))) == [1, 0.5, 0.25]


def test_what_cannot_be_sent_is_inherited(threads):
    class Local:
        value = 3

    threads(2)
    with process_pool.staying():
        assert list(process_pool.mapped(lambda item: item.value, [Local(), Local()], ("work",))) == [3, 3]


def test_a_search_of_several_processes_is_that_of_one(tiny_checkpoint, threads):
    from nas_rlm.search.loop import search
    from nas_rlm.search.settings import Settings

    rlm = RLM.load(tiny_checkpoint)
    settings = Settings("nasbench201", rlm.objectives[:2], population=64, generations=3)
    found = []
    for count in (1, 2):
        threads(count)
        found.append(search(SPACE, rlm, settings))
    assert found[0].architectures == found[1].architectures
    assert np.array_equal(found[0].values, found[1].values)
    assert not multiprocessing.active_children()


def test_copies_end_with_a_process_that_is_killed():
    program = """
import os, signal, torch
from nas_rlm import forks
torch.set_num_threads(3)
with forks.staying():
    found = list(forks.mapped(lambda item: os.getpid(), range(3), ("work",)))
    print(*found[1:], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    copies = [int(number) for number in done.stdout.split()]
    assert len(copies) == 2 and not done.stderr
    for _ in range(100):
        if not any(Path(f"/proc/{copy}/cmdline").exists() for copy in copies):
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"of {copies} some are still there")
