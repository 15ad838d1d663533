"""Kernel ridge regression on sparse features, with predictions of left-out rows and left-out groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # imported where it is used: networks need no scipy

FREQUENT_SHARE = 0.03  # of rows, above which a column is multiplied as a dense one


def gram(rows: csr_matrix) -> np.ndarray:
    """Return the inner products of rows, float32 [M, M].

    Columns that many rows have are multiplied as a dense matrix, which is many times faster.

    Args:
        rows: features, sparse [M, F].
    """
    by_column = rows.tocsc()
    num_rows = np.diff(by_column.indptr)
    frequent = np.flatnonzero(num_rows > FREQUENT_SHARE * rows.shape[0])
    rare = np.flatnonzero((num_rows > 1) & (num_rows <= FREQUENT_SHARE * rows.shape[0]))
    dense = by_column[:, frequent].toarray().astype(np.float32)
    sparse = by_column[:, rare].tocsr()
    products = (sparse @ sparse.T).toarray().astype(np.float32)
    products += dense @ dense.T  # NumPy computes half of a symmetric product
    single = by_column[:, np.flatnonzero(num_rows == 1)]
    np.fill_diagonal(products, products.diagonal() + np.asarray(single.multiply(single).sum(1)).ravel())
    return products


def dual_weights(products: np.ndarray, scores: np.ndarray, penalty: float) -> np.ndarray:
    """Return the dual coefficients of a ridge regression, one for each row, float32 [M].

    Args:
        products: inner products of the rows, float32 [M, M].
        scores: targets, float64 [M].
        penalty: the ridge penalty.
    """
    from scipy.linalg import cho_factor, cho_solve

    regularised = products.copy()
    np.fill_diagonal(regularised, products.diagonal() + penalty)
    factor = cho_factor(regularised, overwrite_a=True, check_finite=False)
    weights: np.ndarray = cho_solve(factor, scores.astype(np.float32), check_finite=False)
    return weights


def left_out_predictions(
    products: np.ndarray, scores: np.ndarray, penalty: float, groups: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a ridge regression predicts for each row without the row, and without its group.

    Both follow from the inverse of the regularised matrix, without fitting again: with it, the residuals of a
    left-out group are the solution of the group's block for its dual coefficients.

    Args:
        products: inner products of the rows, float32 [M, M].
        scores: targets, float64 [M].
        penalty: the ridge penalty.
        groups: group of each row, int [M].

    Returns:
        Predictions without the row, float64 [M], and without its group, float64 [M].
    """
    from scipy.linalg import cholesky, lapack

    regularised = products.copy()
    np.fill_diagonal(regularised, products.diagonal() + penalty)
    factor = cholesky(regularised, lower=True, overwrite_a=True, check_finite=False)
    inverse, _ = lapack.spotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ scores.astype(np.float32)
    without_row = scores - weights / inverse.diagonal()
    without_group = without_row.copy()
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(np.asarray(groups)[order])) + 1
    for members in np.split(order, ends):
        if len(members) > 1:
            block = inverse[np.ix_(members, members)]
            without_group[members] = scores[members] - np.linalg.solve(block, weights[members])
    return without_row, without_group
