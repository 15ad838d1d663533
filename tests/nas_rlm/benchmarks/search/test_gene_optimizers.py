import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.search.gene_optimizers import GENE_OPTIMIZERS, SMAC, gene_optimizer, nearest_new
from nas_rlm.utils import extras
from nas_rlm.utils.extras import is_installed


@pytest.mark.parametrize("method", GENE_OPTIMIZERS)
@pytest.mark.parametrize("num_objectives", [1, 2])
def test_genomes_are_of_the_space_and_the_costs_matter(method, num_objectives):
    """After some costs, genomes with a low first gene are suggested more often than at random."""
    extra = "smac" if method == SMAC else "optuna"
    if not is_installed(extra):
        pytest.skip(f"{extra} is not installed")
    space = search_spaces.get("nasbench201")
    count = 40 if method == SMAC else 18  # SMAC draws more of them at random, and not always the same
    optimizer = gene_optimizer(method, space, num_objectives, count, 0)
    genomes = []
    for _ in range(count):
        genomes.append(optimizer.ask())
        optimizer.tell([float(genomes[-1][0])] * num_objectives)
    assert all(0 <= gene < size for genome in genomes for gene, size in zip(genome, space.genes, strict=True))
    assert np.mean([genome[0] for genome in genomes[count // 2 :]]) < 1.8


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for method, package in (("tpe", "optuna"), (SMAC, "smac")):
        with pytest.raises(ValueError, match=f"needs {package}.*not installed"):
            gene_optimizer(method, search_spaces.get("nasbench201"), 1, 5, 0)


def test_the_nearest_genome_that_is_new_replaces_a_suggestion():
    genomes = np.array([[0, 0], [0, 3], [4, 4]])
    is_new = np.ones(3, dtype=bool)
    assert nearest_new(genomes, [0, 1], is_new) == 0
    assert nearest_new(genomes, [0, 1], is_new) == 1
    is_new[:] = True
    assert nearest_new(genomes, [3, 3], is_new, is_ordered=True) == 2
    assert is_new.tolist() == [True, True, False]
