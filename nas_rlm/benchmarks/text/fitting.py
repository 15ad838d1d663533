"""How well `RLM.fit` learns any texts, beside regressions on n-grams and boosted trees on columns."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.benchmarks.text.tasks import TASKS, Task
from nas_rlm.data.text_data import text_data
from nas_rlm.rlm import RLM
from nas_rlm.training.text_network import LEVELS
from nas_rlm.training.text_report import (
    MEDIAN,
    NGRAMS,
    RLM_METHOD,
    HoldoutMetrics,
    constant_quantiles,
    ngram_quantiles,
)
from nas_rlm.training.text_sources import BOTH, NETWORK, SURROGATE, Source
from nas_rlm.training.texts import TextSettings, fit_texts
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar

TREES, TF_IDF = "trees", "tf-idf"
# What predicts; None where validation chooses.
SOURCES: dict[str, Source | None] = {RLM_METHOD: None, NETWORK: NETWORK, SURROGATE: SURROGATE, BOTH: BOTH}
METHODS = (*SOURCES, NGRAMS, MEDIAN, TF_IDF, TREES)
NUM_TEST_ROWS = 300  # less where the task has fewer
Key = tuple[str, int, str, int]
KEY_NAMES = ("task", "learnt", "method", "seed")  # a result has `rows`, those that it predicts


@dataclass(frozen=True)
class TextResult(HoldoutMetrics):
    """How well a method predicts test rows, and the CPU time of its training in seconds.

    The method `rlm` fits what it chooses from: the network too, if another method needs it. Otherwise its
    result is that of `surrogate`.
    """

    seconds: float = 0.0


def texts_benchmark(
    task: str,
    rows: int,
    seeds: Sequence[int],
    methods: Sequence[str] = METHODS,
    finished: Collection[Key] = (),
    epochs: int | None = None,
) -> Iterator[tuple[Key, TextResult]]:
    """Fit models to rows of a task and predict `NUM_TEST_ROWS` others.

    Args:
        task: one of `TASKS`.
        rows: number of rows that each method learns.
        seeds: seeds of the rows and the models.
        methods: some of `METHODS`; without network and both, the surrogate alone is fitted.
        finished: keys to skip.
        epochs: maximum number of epochs of the network; None for the default.

    Yields:
        Task, rows, method and seed, and the result, as soon as each is available.

    Raises:
        ValueError: scikit-learn is needed and not installed.
    """
    for name in {TREES, TF_IDF} & set(methods):
        require("baselines", f"the method {name}")
    with_network = bool({NETWORK, BOTH} & set(methods))
    for seed in progress_bar(seeds, f"fit {task}", unit="seed"):
        remaining = [name for name in methods if (task, rows, name, seed) not in finished]
        if not remaining:
            continue
        drawn = TASKS[task](rows + NUM_TEST_ROWS, np.random.default_rng(seed))
        known, test = _split(drawn, rows)
        results: dict[str, TextResult] = {}
        for name in remaining:
            if name == TREES and drawn.columns is None:
                continue
            # Without a network there is nothing to choose from.
            predictor = SURROGATE if name == RLM_METHOD and not with_network else name
            if predictor not in results:
                results[predictor] = _result(predictor, known, test, seed, epochs)
            yield (task, rows, name, seed), results[predictor]


def _result(method: str, known: Task, test: Task, seed: int, epochs: int | None) -> TextResult:
    """Return how well a method that learns the known rows predicts the test rows."""
    start = time.process_time()
    if method == TREES:
        predicted = _trees(known, test, seed)
    elif method == TF_IDF:
        predicted = np.repeat(_tf_idf(known, test)[:, None], len(LEVELS), 1)
    elif method == NGRAMS:
        predicted = ngram_quantiles(known.texts, known.values, test.texts)
    elif method == MEDIAN:
        predicted = constant_quantiles(known.values, len(test.texts))
    else:
        settings = TextSettings(0, epochs=epochs, source=SOURCES[method], seed=seed, progress=False)
        model, _ = fit_texts(RLM, text_data(known.texts, known.values), settings)
        predicted = model.predict_text(test.texts, ["y"], LEVELS)[:, 0]
    seconds = time.process_time() - start
    metrics = HoldoutMetrics.of(predicted, test.values)
    return TextResult(**{**vars(metrics), "seconds": seconds})


def _split(task: Task, rows: int) -> tuple[Task, Task]:
    """Return the first rows of a task, and the others without texts that are among these."""
    known = set(task.texts[:rows])
    others = [i for i in range(rows, len(task.texts)) if task.texts[i] not in known]
    return task.select(range(rows)), task.select(others)


def _tf_idf(known: Task, test: Task) -> np.ndarray:
    """Predict test rows [N] by ridge regression on TF-IDF of one to three characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    ridge = RidgeCV(np.logspace(-3, 2, 6))
    model = make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 3)), ridge)
    predicted: np.ndarray = model.fit(known.texts, known.values).predict(test.texts)
    return predicted


def _trees(known: Task, test: Task, seed: int) -> np.ndarray:
    """Predict quantiles [N, 3] of test rows by boosted trees on columns, fitted to each quantile."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    quantiles = []
    for level in LEVELS:
        loss = {"loss": "squared_error"} if level == 0.5 else {"loss": "quantile", "quantile": level}
        trees = HistGradientBoostingRegressor(
            **loss, categorical_features=list(known.categories), random_state=seed
        )
        quantiles.append(trees.fit(known.columns, known.values).predict(test.columns))
    return np.stack(quantiles, 1)
