import multiprocessing
import os
import signal
import sys
import warnings

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM, forks

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
    found = list(forks.mapped(lambda item: (item**2, os.getpid(), torch.get_num_threads()), range(7)))
    assert [square for square, *_ in found] == [item**2 for item in range(7)]
    assert len({process for _, process, _ in found}) == count
    assert found[0][1] == os.getpid()
    assert {own for *_, own in found} == {1}
    assert torch.get_num_threads() == count
    assert list(forks.mapped(str, [])) == []


def test_what_a_copy_raises_is_raised(threads):
    threads(2)

    def work(item):
        if item == 3:
            raise ValueError(f"{item} is no good")
        return item

    found = forks.mapped(work, range(5))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3 is no good"):
        next(found)
    assert not multiprocessing.active_children()
    assert torch.get_num_threads() == 2


def test_what_a_copy_warns_of_is_warned_of(threads):
    threads(2)
    with pytest.warns(UserWarning, match="1 is odd"):
        assert list(
            forks.mapped(lambda i: warnings.warn(f"{i} is odd", stacklevel=1) if i % 2 else i, range(2))
        )


def test_a_killed_copy_is_told(threads):
    threads(2)
    found = forks.mapped(lambda item: os.kill(os.getpid(), signal.SIGKILL) if item == 1 else item, range(3))
    assert next(found) == 0
    with pytest.raises(MemoryError, match="was killed"):
        next(found)


def test_who_stops_asking_leaves_no_copy(threads):
    threads(2)
    found = forks.mapped(str, range(9))
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
