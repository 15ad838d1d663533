"""Tasks of `bench fit`: texts of many kinds with values that they determine, up to noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nas_rlm.utils.extras import require

KINDS = ("relu", "tanh", "gelu", "silu")
KILOCALORIES = {"sugar": 3.9, "butter": 7.2, "flour": 3.6, "milk": 0.6, "egg": 1.4, "oil": 8.8, "apple": 0.5}
ROMAN_NUMERALS = {
    **{"M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90, "L": 50, "XL": 40},
    **{"X": 10, "IX": 9, "V": 5, "IV": 4, "I": 1},
}
OPINIONS = (
    *("good", "bad", "fine", "awful", "great", "slow", "fast", "broken", "lovely", "dull"),
    *("cheap", "noisy", "bright", "rude", "kind", "cold", "warm", "dirty", "clean", "late"),
)
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
PACKAGE_SIZES = {
    **{"numpy": 60, "torch": 2200, "pandas": 130, "flask": 5, "scipy": 110, "jax": 300, "redis": 20},
    **{"nginx": 40},
}
BASE_SIZES = {"slim": 120, "alpine": 50, "full": 900}


@dataclass(frozen=True)
class Task:
    """Texts with values, and the columns that they are made of.

    Args:
        texts: N texts.
        values: a value for each, float64 [N].
        columns: the same content as numbers, float64 [N, C]; None for texts that are not made of columns.
        categories: whether each column is a category, bool [C].
    """

    texts: list[str]
    values: np.ndarray
    columns: np.ndarray | None = None
    categories: Sequence[bool] = ()

    def select(self, rows: Sequence[int]) -> Task:
        """Return some of the rows."""
        index = np.asarray(rows, dtype=int)
        columns = None if self.columns is None else self.columns[index]
        return Task([self.texts[i] for i in rows], self.values[index], columns, self.categories)


DrawTask = Callable[[int, np.random.Generator], Task]  # from a number of rows and a generator


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


def _of_text(draw: Callable[[np.random.Generator], tuple[str, float]]) -> DrawTask:
    """Return a task whose texts are drawn one at a time, each with its value."""

    def task(rows: int, rng: np.random.Generator) -> Task:
        texts, values = zip(*(draw(rng) for _ in range(rows)), strict=True)
        return Task([*texts], np.array(values, dtype=float))

    return task


def link(rng: np.random.Generator) -> tuple[str, float]:
    """Return an address with parameters in any order, and the time of its answer."""
    names = [name for name in ("page", "limit", "depth", "zoom", "retry") if rng.random() < 0.8]
    query = {name: int(rng.integers(100)) for name in rng.permutation(names)}
    page = int(rng.integers(3))
    text = f"https://shop.example/{('list', 'item', 'cart')[page]}?"
    value = query.get("limit", 20) * (1 + page) + 3 * query.get("depth", 0) + rng.normal(0, 5)
    return text + "&".join(f"{name}={number}" for name, number in query.items()), value


def recipe(rng: np.random.Generator) -> tuple[str, float]:
    """Return ingredients with their mass, and the energy of all."""
    names = rng.choice([*KILOCALORIES], int(rng.integers(2, 6)), replace=False)
    grams = rng.integers(10, 400, len(names))
    text = ", ".join(f"{mass} g {name}" for name, mass in zip(names, grams, strict=True))
    energy = sum(KILOCALORIES[name] * int(mass) for name, mass in zip(names, grams, strict=True))
    return text, energy + rng.normal(0, 30)


def roman_numeral(rng: np.random.Generator) -> tuple[str, float]:
    """Return a Roman numeral below 4,000, and its value."""
    value = int(rng.integers(1, 3999))
    text, rest = "", value
    for numeral, size in ROMAN_NUMERALS.items():
        text += numeral * (rest // size)
        rest %= size
    return text, value


def polynomial(rng: np.random.Generator) -> tuple[str, float]:
    """Return a polynomial with integer coefficients, and its value at 1.5."""
    coefficients = rng.integers(-9, 10, int(rng.integers(2, 6))).tolist()
    text = " + ".join(f"{c}*x^{i}" for i, c in enumerate(coefficients))
    return text, sum(c * 1.5**i for i, c in enumerate(coefficients))


def sentence(rng: np.random.Generator) -> tuple[str, float]:
    """Return words of praise and blame, some of them negated, and their sum."""
    chosen = rng.integers(0, len(OPINIONS), int(rng.integers(4, 14)))
    text, value = "", rng.normal(0, 0.5)
    for k in chosen:
        is_negated = rng.random() < 0.2
        value += (-1 if is_negated else 1) * np.linspace(-2, 2, len(OPINIONS))[k]
        text += ("not " if is_negated else "") + OPINIONS[k] + (" and ", " but ", " ")[rng.integers(3)]
    return text.strip(), value


def bits(rng: np.random.Generator) -> tuple[str, float]:
    """Return a binary number of twelve digits, and its value."""
    value = int(rng.integers(2**12))
    return f"{value:012b}", value


def time_of_day(rng: np.random.Generator) -> tuple[str, float]:
    """Return a date with a time, and the sine of the time of day."""
    hour, minute = int(rng.integers(24)), int(rng.integers(60))
    value = np.sin((hour * 60 + minute) / 1440 * 2 * np.pi) + rng.normal(0, 0.1)
    return f"2024-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}T{hour:02d}:{minute:02d}:00Z", value


def nested_configuration(rng: np.random.Generator) -> tuple[str, float]:
    """Return layers and settings of a training as YAML, and the logarithm of a made-up cost."""
    units = [int(n) for n in rng.choice([16, 32, 64, 128, 256], int(rng.integers(1, 9)))]
    rate = 10 ** rng.uniform(-5, -1)
    layers = "".join(f"    - units: {n}\n      act: {rng.choice(['relu', 'tanh'])}\n" for n in units)
    training = f"train:\n  lr: {rate:.2e}\n  batch: {rng.choice([16, 32, 64])}\n"
    products = sum(a * b for a, b in pairwise([10, *units]))
    value = np.log(products) - abs(np.log10(rate) + 3) + rng.normal(0, 0.1)
    return f"model:\n  layers:\n{layers}{training}", value


def protein(rng: np.random.Generator) -> tuple[str, float]:
    """Return a sequence of amino acids, and its mass with a bonus for each pair KR."""
    text = "".join(rng.choice([*AMINO_ACIDS], int(rng.integers(10, 60))))
    masses = dict(zip(AMINO_ACIDS, np.linspace(75, 204, len(AMINO_ACIDS)), strict=True))
    return text, sum(masses[c] for c in text) + 40 * text.count("KR")


def container(rng: np.random.Generator) -> tuple[str, float]:
    """Return a Dockerfile, and the size of its image in MB."""
    packages = rng.choice([*PACKAGE_SIZES], int(rng.integers(1, 6)), replace=False)
    base = rng.choice([*BASE_SIZES])
    text = f"FROM python:3.{rng.integers(8, 13)}-{base}\n"
    text += "".join(f"RUN pip install {p}=={rng.integers(1, 4)}.{rng.integers(9)}\n" for p in packages)
    return text, sum(PACKAGE_SIZES[p] for p in packages) + BASE_SIZES[base]


TASKS: dict[str, DrawTask] = {
    "identity": identity,
    "configurations": configurations,
    "table": table,
    "diabetes": diabetes,
    "links": _of_text(link),
    "recipes": _of_text(recipe),
    "roman": _of_text(roman_numeral),
    "polynomials": _of_text(polynomial),
    "sentences": _of_text(sentence),
    "bits": _of_text(bits),
    "times": _of_text(time_of_day),
    "nested": _of_text(nested_configuration),
    "proteins": _of_text(protein),
    "containers": _of_text(container),
}
