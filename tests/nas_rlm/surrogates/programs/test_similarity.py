import numpy as np
import pytest
from scipy.sparse import csr_matrix

from nas_rlm.surrogates.programs.similarity import nearest, project


@pytest.fixture(scope="module")
def features():
    dense = np.random.default_rng(0).random((40, 3000)) < 0.03
    return csr_matrix(dense.astype(np.float32))


def test_a_copy_is_the_most_similar_program(features):
    found = project(features)
    scores = np.arange(40.0) - 20
    similarities, means = nearest(found[:3], found, scores)
    assert similarities == pytest.approx(1, abs=0.02) and means == pytest.approx(scores[:3], rel=0.15)


def test_programs_of_left_out_groups_do_not_count(features):
    found = project(features)
    groups = np.arange(40) // 2
    similarities, _ = nearest(found, found, np.zeros(40), (groups, groups))
    assert similarities.max() < 0.8
    nothing, means = nearest(found, found[:0], np.zeros(0))
    assert not nothing.any() and not means.any()
