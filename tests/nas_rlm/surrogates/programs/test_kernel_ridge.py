import numpy as np
import pytest
from scipy.sparse import random_array

from nas_rlm.surrogates.programs.kernel_ridge import dual_weights, gram, left_out_predictions


@pytest.fixture(scope="module")
def rows():
    return random_array((60, 500), density=0.05, rng=np.random.default_rng(0), format="csr", dtype=np.float32)


def test_products_of_frequent_rare_and_single_columns_are_exact(rows):
    dense = rows.toarray()
    assert gram(rows) == pytest.approx(dense @ dense.T, abs=1e-5)


def test_left_out_predictions_are_those_of_new_fits(rows):
    products, groups = gram(rows), np.arange(60) // 3
    scores = np.random.default_rng(1).normal(size=60)
    without_row, without_group = left_out_predictions(products, scores, 0.3, groups)
    for left_out, found in (([7], without_row), ([6, 7, 8], without_group)):
        kept = [i for i in range(60) if i not in left_out]
        weights = dual_weights(products[np.ix_(kept, kept)], scores[kept], 0.3)
        assert products[7, kept] @ weights == pytest.approx(found[7], abs=1e-4)
