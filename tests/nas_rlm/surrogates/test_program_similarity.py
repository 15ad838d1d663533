import numpy as np
import pytest
from scipy.sparse import csr_matrix

from nas_rlm.surrogates.program_similarity import nearest, project


@pytest.fixture(scope="module")
def features():
    dense = np.random.default_rng(0).random((40, 3000)) < 0.03
    return csr_matrix(dense.astype(np.float32))


def test_a_copy_is_the_most_similar_program(features):
    found = project(features)
    assert nearest(found[:3], found) == pytest.approx(1, abs=0.02)


def test_programs_of_left_out_groups_do_not_count(features):
    found = project(features)
    groups = np.arange(40) // 2
    assert nearest(found, found, (groups, groups)).max() < 0.8
    assert not nearest(found, found[:0]).any()
