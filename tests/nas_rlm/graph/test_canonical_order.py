from nas_rlm.graph.canonical_order import canonical_order

INPUT, CONV, POOL, ADD = 1, 11, 12, 13


def order(nodes, outputs, exact=()):
    found = canonical_order((1, tuple(nodes), outputs), exact)
    return found and [i for i, _ in found]


def test_deepest_operands_come_first_and_dead_code_is_left_out():
    nodes = [
        (POOL, False, (0,), 1),  # value 1
        (CONV, False, (0,), 1),  # value 2, dead
        (CONV, False, (0,), 1),  # value 3
        (CONV, False, (3,), 1),  # value 4
        (ADD, True, (1, 4), 1),  # value 5
    ]
    assert order(nodes, (5,)) == [2, 3, 0, 4]


def test_operands_that_differ_only_in_leaves_need_leaf_hashes():
    nodes = [(CONV, False, (0,), 1), (CONV, False, (0,), 1), (ADD, True, (1, 2), 1)]
    assert order(nodes, (3,)) is None
    first, second = order(nodes, (3,), (5, 6, 0)), order(nodes, (3,), (6, 5, 0))
    assert {tuple(first), tuple(second)} == {(0, 1, 2), (1, 0, 2)}


def test_the_same_value_twice_is_no_tie():
    assert order([(CONV, False, (0,), 1), (ADD, True, (1, 1), 1)], (2,)) == [0, 1]


def test_readers_decide_between_operands_of_equal_depth():
    def network(first, second):
        return [
            (CONV, False, (0,), 1),
            (CONV, False, (0,), 1),
            (POOL, False, (second,), 1),
            (ADD, True, (first, second), 1),
            (ADD, True, (3, 4), 1),
        ]

    one, other = order(network(1, 2), (5,)), order(network(2, 1), (5,))
    assert [{0: 1, 1: 0}.get(i, i) for i in other] == one


def test_dependent_ties_do_not_depend_on_the_file():
    def ring(places):
        """Six branches, the sum of each with the next, and the sum of all."""
        sums = [(ADD, True, (1 + places[i], 1 + places[(i + 1) % 6]), 1) for i in range(6)]
        return [*[(CONV, False, (0,), 1)] * 6, *sums, (ADD, True, tuple(range(7, 13)), 1)]

    def text(nodes):
        """Which earlier nodes each node reads, in the canonical order."""
        found = canonical_order((1, tuple(nodes), (13,)), (0,) * 13)
        place = {0: 0, **{i + 1: k + 1 for k, (i, _) in enumerate(found)}}
        return [
            [place[nodes[i][2][k]] for k in (range(len(nodes[i][2])) if operands is None else operands)]
            for i, operands in found
        ]

    one = text(ring(range(6)))
    for places in ((3, 1, 4, 0, 5, 2), (5, 4, 3, 2, 1, 0), (2, 0, 1, 5, 3, 4)):
        assert text(ring(places)) == one
