"""How well `RLM.fit` learns any texts: numbers, configurations and rows of tables, beside boosted trees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.data.text_data import TextData, text_data
from nas_rlm.rlm import RLM
from nas_rlm.training.text_network import LEVELS
from nas_rlm.training.text_report import METHODS as FIT_METHODS
from nas_rlm.training.text_report import HoldoutMetrics
from nas_rlm.training.texts import Source, TextSettings, fit_texts, split_texts
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar

TREES = "trees"
METHODS = (*FIT_METHODS, TREES)
TREE_METHOD = "boosted trees on the columns, from which the texts are made"
MAX_TEST_ROWS = 500
KEYS, KEYS_THAT_MATTER = 20, 5
KINDS = ("relu", "tanh", "gelu", "silu")
Key = tuple[str, int, str, int]
KEY_NAMES = ("task", "learnt", "method", "seed")  # a result has `rows`, those that it predicts


@dataclass(frozen=True)
class TextResult(HoldoutMetrics):
    """How well a method predicts test rows, and the CPU time of its training in seconds.

    The time of the method `rlm` is that of the whole fit, with the network, the surrogate and both.
    """

    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """Texts with values, and the columns that they are made of.

    Args:
        texts: N texts.
        values: a value for each, float64 [N].
        columns: the same content as numbers, float64 [N, C].
        categories: whether each column is a category, bool [C].
    """

    texts: list[str]
    values: np.ndarray
    columns: np.ndarray
    categories: Sequence[bool]


def identity(rows: int, rng: np.random.Generator) -> Task:
    """Return y = x: the text is the number, between -1,000 and 1,000 with two decimals."""
    values = np.round(rng.uniform(-1000, 1000, rows), 2)
    return Task([str(v) for v in values], values, values[:, None], [False])


def configurations(rows: int, rng: np.random.Generator) -> Task:
    """Return configurations of 20 keys, of which 5 matter: two numbers, a logarithm and two categories."""
    numbers = {f"p{j}": rng.random(rows).round(3) for j in range(10)}
    rates = {f"rate{j}": 10 ** rng.uniform(-5, -1, rows) for j in range(5)}
    kinds = {f"kind{j}": rng.integers(len(KINDS), size=rows) for j in range(5)}
    effect = np.array([0.0, -2.0, 1.0, 2.0])[kinds["kind0"]]
    values = (
        3 * np.sin(3 * numbers["p0"])
        + 4 * numbers["p0"] * numbers["p1"]
        - (np.log10(rates["rate0"]) + 3) ** 2
        + effect * (1 + numbers["p1"])
        + 1.5 * (kinds["kind1"] == 0)
        + rng.normal(0, 0.3, rows)
    )
    texts = []
    for i in range(rows):
        parts = [f"{key}={column[i]:g}" for key, column in numbers.items()]
        parts += [f"{key}={column[i]:.3g}" for key, column in rates.items()]
        parts += [f"{key}={KINDS[column[i]]}" for key, column in kinds.items()]
        texts.append(", ".join(parts))
    columns = np.column_stack([*numbers.values(), *rates.values(), *kinds.values()])
    return Task(texts, values, columns, [False] * 15 + [True] * 5)


def table(rows: int, rng: np.random.Generator) -> Task:
    """Return rows of a table as JSON: Friedman's first function of ten numbers, with a category added.

    Source: Friedman 1991, Multivariate Adaptive Regression Splines, section 4.3.
    """
    x, kind = rng.random((rows, 10)).round(3), rng.integers(len(KINDS), size=rows)
    values = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    values = values + np.array([0.0, 2.0, -3.0, 5.0])[kind] + rng.normal(0, 1, rows)
    texts = [
        json.dumps({**{f"x{j}": float(v) for j, v in enumerate(row)}, "kind": KINDS[k]})
        for row, k in zip(x, kind, strict=True)
    ]
    return Task(texts, values, np.column_stack([x, kind]), [False] * 10 + [True])


def diabetes(rows: int, rng: np.random.Generator) -> Task:
    """Return rows of scikit-learn's diabetes data as JSON, at most 442.

    Source: Efron et al. 2004, Least Angle Regression.
    """
    require("baselines", "the task diabetes")
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    drawn = rng.permutation(len(bunch.data))[:rows]
    columns, values = bunch.data[drawn], bunch.target[drawn]
    texts = [json.dumps(dict(zip(bunch.feature_names, map(float, row), strict=True))) for row in columns]
    return Task(texts, values, columns, [False] * columns.shape[1])


TASKS: dict[str, Callable[[int, np.random.Generator], Task]] = {
    "identity": identity,
    "configurations": configurations,
    "table": table,
    "diabetes": diabetes,
}


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
    if TREES in methods:
        require("baselines", "the method trees")
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
        if TREES in remaining:
            found[TREES] = _trees(drawn, split_texts(data, holdout, seed), seed)
        for name in remaining:
            if name in found:
                yield (task, rows, name, seed), found[name]


def _trees(task: Task, parts: Sequence[TextData], seed: int) -> TextResult:
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
        quantiles.append(trees.fit(task.columns[learnt], task.values[learnt]).predict(task.columns[holdout]))
    seconds = time.process_time() - start
    metrics = HoldoutMetrics.of(np.stack(quantiles, 1), task.values[holdout])
    return TextResult(**{**vars(metrics), "seconds": seconds})
