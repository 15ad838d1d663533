from itertools import pairwise

from nas_rlm.text.ir import Block, Node, leaf, spec
from nas_rlm.text.repeats import best_runs, stretches

A, B = (leaf("float", (n,)) for n in (8, 16))


def rows(*words):
    return tuple(tuple((ord(c), (A, B)) for c in word) for word in words)


def test_the_run_that_saves_most_is_found_wherever_it_occurs():
    assert best_runs(rows("xabcdyabcdzabcd")) == [(0, 1, 5), (0, 6, 10), (0, 11, 15)]
    assert best_runs(rows("abcdexyzabcde", "qabcde")) == [(0, 0, 5), (0, 8, 13), (1, 1, 6)]


def test_runs_do_not_overlap():
    found = best_runs(rows("a" * 12))
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(found))
    assert len(found) > 1


def test_nothing_that_saves_nothing():
    assert best_runs(rows("abcdefgh")) == []
    assert best_runs(rows("abab")) == []
    assert best_runs(()) == []


def test_stretches_read_the_two_before_them():
    join, layer = spec("Add", "", (..., ...)), spec("Conv", "", (..., A))
    nodes, before, x = [], 0, 0
    for k in range(4):
        a, b, out = 10 * k + 1, 10 * k + 2, 10 * k + 3
        nodes += [Node(layer, (before,), (a,)), Node(layer, (x,), (b,)), Node(join, (a, b), (out,))]
        before, x = x, out
    found = stretches(Block((0,), (x,), nodes))
    assert len(found) >= 3
    assert [i for run in found for i in run] == list(range(found[-1][-1] + 1))
    for run in found:
        made = {v for i in run for v in nodes[i].outs}
        assert len({v for i in run for v in nodes[i].values} - made) <= 2
