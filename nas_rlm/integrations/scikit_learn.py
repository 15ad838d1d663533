"""scikit-learn: a regressor of texts, for pipelines, grid search and cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from nas_rlm.rlm import RLM
from nas_rlm.training.text_sources import Source

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "TextRegressor needs scikit-learn, which is not installed: pip install 'nas-rlm[baselines]'",
        name=error.name,
    ) from None


ROWS_AS_TEXTS = ', or write rows as texts: X.to_json(orient="records", lines=True).splitlines()'


class TextRegressor(RegressorMixin, BaseEstimator):
    """A regression language model as an estimator of scikit-learn.

    Examples:
        >>> texts = [f"width={w} act={a}" for w in range(30) for a in ("relu", "tanh")]
        >>> values = [w + 5 * ("tanh" in text) for w, text in zip([w // 2 for w in range(60)], texts)]
        >>> model = TextRegressor(source="surrogate").fit(texts, values)
        >>> model.predict(["width=7 act=relu"]).round(), round(model.score(texts, values), 2)
        (array([7.]), 1.0)

    Args:
        source: what predicts: "network", "surrogate" (a Gaussian process on fields and n-grams, which takes
            seconds) or "both"; by default chosen on validation rows.
        size: size of the network; None to choose it by the number of rows.
        epochs: maximum number of epochs of the network; None to choose it by the amount of text.
        tokenizer: see `nas_rlm.RLM.fit`.
        random_state: seed of everything random, an integer; None for 0.
        verbose: show a progress bar.

    Attributes:
        rlm_: the fitted `nas_rlm.RLM`.
        n_features_in_: 1, a text.
        n_outputs_: number of targets.
    """

    def __init__(
        self,
        *,
        source: Source | None = None,
        size: int | None = None,
        epochs: int | None = None,
        tokenizer: str = "",
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.source = source
        self.size = size
        self.epochs = epochs
        self.tokenizer = tokenizer
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to texts.

        Args:
            X: N texts: a list, a series, or one column [N, 1].
            y: values [N], or of K targets [N, K]; NaN is missing.

        Raises:
            ValueError: an input is not of this kind, see `nas_rlm.RLM.fit`.
        """
        texts = _texts(X)
        if y is None:
            raise ValueError("TextRegressor requires y to be passed, but the target y is None")
        values = np.asarray(y)
        if values.ndim not in (1, 2):
            raise ValueError(f"y has the shape {values.shape}: expected [N] or [N, K]")
        self._is_multi_output = values.ndim == 2
        self.n_outputs_ = values.shape[1] if values.ndim == 2 else 1
        self.n_features_in_ = 1
        self.rlm_ = RLM.fit(
            texts,
            values.tolist(),
            holdout=0.0,
            source=self.source,
            size=self.size,
            epochs=self.epochs,
            tokenizer=self.tokenizer,
            seed=_seed(self.random_state),
            progress=self.verbose,
        )
        return self

    def predict(self, X: Any, quantiles: Sequence[float] | None = None) -> np.ndarray:
        """Predict texts.

        Args:
            X: N texts, as for `fit`.
            quantiles: Q levels between 0 and 1; None for the medians.

        Returns:
            float64 [N] medians, [N, K] for K targets in two dimensions; with levels [N, Q] or [N, K, Q].
        """
        check_is_fitted(self, "rlm_")
        targets = [name for name in self.rlm_.objectives if not name.startswith("failed/")]
        values = self.rlm_.predict_text(_texts(X), targets, quantiles)
        return values if self._is_multi_output else values[:, 0]

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn: inputs are strings in one dimension."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.input_tags.string = True
        tags.target_tags.required, tags.target_tags.multi_output = True, True
        return tags


def _texts(X: Any) -> list[str]:
    """Return an input as a list of texts."""
    if isinstance(X, str):
        raise ValueError(f"X is the string {X[:60]!r}: expected a list of strings")
    if hasattr(X, "toarray"):
        raise ValueError("X is sparse: expected a list of strings; sparse data was passed")
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"X has the shape {values.shape}: expected one text for each row."
            f" Reshape your data to [N] or [N, 1]{ROWS_AS_TEXTS if hasattr(X, 'columns') else ''}"
        )
    return [str(value) if isinstance(value, np.str_) else value for value in values.tolist()]


def _seed(random_state: int | None) -> int:
    """Return the seed of a random state."""
    if random_state is None:
        return 0
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state is {random_state!r}: expected an integer of at least 0, or None")
    return int(random_state)
