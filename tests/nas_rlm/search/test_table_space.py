from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.search.table_space import TableSpace
from tests.search_spaces.plain_space import PlainSpace

SPACE = search_spaces.get("nasbench201")


def test_a_table_space_varies_architectures_within_the_table():
    names_rng = np.random.default_rng(1)
    names = [*{str(SPACE.sample(names_rng)): None for _ in range(1020)}][:900]
    table_space, rng = TableSpace(SPACE, names), np.random.default_rng(0)
    parents = [table_space.sample(rng) for _ in range(50)]
    children = [table_space.mutate(a, rng) for a in parents]
    children += [table_space.crossover(a, b, rng) for a, b in pairwise(parents)]
    assert {str(a) for a in parents + children} <= set(names)
    assert sum(str(a) != str(b) for a, b in zip(parents, children, strict=False)) > 10
    assert table_space.size == 900


@pytest.mark.parametrize("name", ["nasbench201", "nasbench101", "fbnet", "ofa_mbv3", "nds_darts", "gpt_s"])
def test_few_candidates_of_a_large_space_vary_to_other_near_ones(name):
    """Hardly any mutation is among the candidates, and none stays where it is."""
    space, rng = search_spaces.get(name), np.random.default_rng(0)
    names = [*{str(space.sample(rng)): None for _ in range(60)}][:50]
    candidates = TableSpace(space, names)
    parents = [candidates.sample(rng) for _ in range(40)]
    children = [candidates.mutate(parent, rng) for parent in parents]
    assert {str(child) for child in children} <= set(names)
    assert all(str(a) != str(b) for a, b in zip(parents, children, strict=True))

    def distance(a, b):
        return (space.encode(a) != space.encode(b)).sum()

    near = [distance(a, b) for a, b in zip(parents, children, strict=True)]
    usual = [distance(a, b) for a, b in zip(parents, children[::-1], strict=True)]
    assert np.mean(near) < np.mean(usual) - 0.5
    assert str(candidates.crossover(*parents[:2], rng)) in names


def test_a_single_candidate_is_its_own_neighbour():
    cell = SPACE.sample(np.random.default_rng(0))
    assert TableSpace(SPACE, [str(cell)]).mutate(cell, np.random.default_rng(1)) == cell


def test_the_nearest_is_the_other_that_shares_most_genes():
    rng = np.random.default_rng(0)
    names = [*{str(SPACE.sample(rng)): None for _ in range(40)}]
    candidates, excluded, found = TableSpace(SPACE, names), [names[0]], []
    genome = SPACE.encode(SPACE.parse(names[0]))
    while (nearest := candidates.nearest(SPACE.parse(names[0]), excluded, rng)) is not None:
        found.append(int((SPACE.encode(nearest) != genome).sum()))
        excluded.append(str(nearest))
    assert sorted(excluded) == sorted(names)
    assert found == sorted(found)


def test_networks_of_an_own_space_are_built_once_for_all_lists_of_candidates():
    class Counted(PlainSpace):
        num_written = 0

        def write(self, graph, architecture):
            self.num_written += 1
            return super().write(graph, architecture)

    space = Counted()
    architecture = space.parse("1x16 3x16 5x16")
    errors = [TableSpace(space, [str(architecture)]).network_error(architecture) for _ in range(3)]
    assert errors == [""] * 3
    assert space.num_written == 1
