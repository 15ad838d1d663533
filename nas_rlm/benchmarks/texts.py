"""How well `RLM.fit` learns any texts, beside regressions on n-grams and boosted trees on columns."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.benchmarks.text_tasks import TASKS, Task
from nas_rlm.data.text_data import TextData, text_data
from nas_rlm.rlm import RLM
from nas_rlm.training.text_network import LEVELS
from nas_rlm.training.text_report import METHODS as FIT_METHODS
from nas_rlm.training.text_report import HoldoutMetrics
from nas_rlm.training.texts import Source, TextSettings, fit_texts, split_texts
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar

TREES, TF_IDF = "trees", "tf-idf"
METHODS = (*FIT_METHODS, TF_IDF, TREES)
TREE_METHOD = "boosted trees on the columns, from which the texts are made"
MAX_TEST_ROWS = 500
Key = tuple[str, int, str, int]
KEY_NAMES = ("task", "learnt", "method", "seed")  # a result has `rows`, those that it predicts


@dataclass(frozen=True)
class TextResult(HoldoutMetrics):
    """How well a method predicts test rows, and the CPU time of its training in seconds.

    The time of the method `rlm` is that of the whole fit, with the network, the surrogate and both.
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
    """Fit models to rows of a task and predict others, at most `MAX_TEST_ROWS` and at most as many.

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
    with_network = bool({"network", "both"} & set(methods))
    for seed in progress_bar(seeds, f"fit {task}", unit="seed"):
        remaining = [name for name in methods if (task, rows, name, seed) not in finished]
        if not remaining:
            continue
        num_test = min(MAX_TEST_ROWS, rows)
        drawn = TASKS[task](rows + num_test, np.random.default_rng(seed))
        data, holdout = text_data(drawn.texts, drawn.values), num_test / (rows + num_test)
        source: Source | None = None if with_network else "surrogate"
        settings = TextSettings(holdout, epochs=epochs, source=source, refit=False, seed=seed, progress=False)
        start = time.process_time()
        _, report = fit_texts(RLM, data, settings)
        seconds = time.process_time() - start
        found = {m: TextResult(**vars(metrics)) for m, metrics in report.metrics["y"].items()}
        found["rlm"] = TextResult(**{**vars(found["rlm"]), "seconds": seconds})
        if source:
            found[source] = found["rlm"]
        parts = split_texts(data, holdout, seed)
        if TREES in remaining and drawn.columns is not None:
            found[TREES] = _trees(drawn, drawn.columns, parts, seed)
        if TF_IDF in remaining:
            found[TF_IDF] = _tf_idf(parts)
        for name in remaining:
            if name in found:
                yield (task, rows, name, seed), found[name]


def _tf_idf(parts: Sequence[TextData]) -> TextResult:
    """Return the result of ridge regression on TF-IDF of one to three characters, without intervals."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    train, validation, holdout = parts
    start = time.process_time()
    ridge = RidgeCV(np.logspace(-3, 2, 6))
    model = make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 3)), ridge)
    values = [part.values["y"] for part in (train, validation)]
    predicted = model.fit([*train.texts, *validation.texts], np.concatenate(values)).predict(holdout.texts)
    seconds = time.process_time() - start
    metrics = HoldoutMetrics.of(np.repeat(predicted[:, None], len(LEVELS), 1), holdout.values["y"])
    return TextResult(**{**vars(metrics), "seconds": seconds})


def _trees(task: Task, columns: np.ndarray, parts: Sequence[TextData], seed: int) -> TextResult:
    """Return the result of boosted trees that are fitted to columns, for three quantiles."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    row_of = {text: i for i, text in enumerate(task.texts)}
    train, validation, holdout = ([row_of[text] for text in part.texts] for part in parts)
    learnt = [*train, *validation]
    start, quantiles = time.process_time(), []
    for level in LEVELS:
        loss = {"loss": "squared_error"} if level == 0.5 else {"loss": "quantile", "quantile": level}
        trees = HistGradientBoostingRegressor(
            **loss, categorical_features=list(task.categories), random_state=seed
        )
        quantiles.append(trees.fit(columns[learnt], task.values[learnt]).predict(columns[holdout]))
    seconds = time.process_time() - start
    metrics = HoldoutMetrics.of(np.stack(quantiles, 1), task.values[holdout])
    return TextResult(**{**vars(metrics), "seconds": seconds})
