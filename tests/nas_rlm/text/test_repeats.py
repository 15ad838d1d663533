from itertools import pairwise

from nas_rlm.graph.ir import Block, Node, leaf, spec
from nas_rlm.text.repeats import best_runs, find_cells, order_by_dependencies

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


def test_runs_that_save_no_tokens_are_not_returned():
    assert best_runs(rows("abcdefgh")) == []
    assert best_runs(rows("abab")) == []
    assert best_runs(()) == []


def test_cells_read_only_the_two_previous_cells():
    join, layer = spec("Add", "", (..., ...)), spec("Conv", "", (..., A))
    nodes, before, x = [], 0, 0
    for k in range(4):
        a, b, out = 10 * k + 1, 10 * k + 2, 10 * k + 3
        nodes += [Node(layer, (before,), (a,)), Node(layer, (x,), (b,)), Node(join, (a, b), (out,))]
        before, x = x, out
    found = find_cells(Block((0,), (x,), nodes))
    assert len(found) >= 3
    assert [i for run in found for i in run] == list(range(found[-1][-1] + 1))
    for run in found:
        made = {v for i in run for v in nodes[i].outs}
        assert len({v for i in run for v in nodes[i].values} - made) <= 2


def test_cell_comes_after_all_nodes_of_the_previous_cell():
    join, layer = spec("Concat", "", (..., ...)), spec("Conv", "", (..., A))
    early, late, before, x = [], [], 0, 0
    for k in range(7):
        a, b, c, out = range(10 * k + 1, 10 * k + 5)
        early.append(Node(layer, (before,), (a,)))  # which the first operand of a join is made of
        late += [Node(layer, (a,), (b,)), Node(layer, (x,), (c,)), Node(join, (b, c), (out,))]
        before, x = x, out
    nodes = [late[0], early[0], early[1], *late[1:3]]
    for k in range(1, 7):
        nodes += [*early[k + 1 : k + 2], *late[3 * k : 3 * k + 3]]
    nodes[:2] = nodes[1::-1]
    found = order_by_dependencies(Block((0,), (x,), nodes))
    assert sorted(map(id, found.nodes)) == sorted(map(id, nodes))
    known = {0}
    for n in found.nodes:
        assert known.issuperset(n.values)
        known.update(n.outs)
    assert [len(run) for run in find_cells(found)][1:-2] == [4] * 4
    assert [len(run) for run in find_cells(Block((0,), (x,), nodes))].count(4) < 4
