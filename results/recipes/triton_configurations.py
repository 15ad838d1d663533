"""Write configurations of eight Triton kernels, each as a file, and rank those that were measured on a GPU.

    python results/recipes/triton_configurations.py write runs/configurations
    nas-rlm measure triton runs/configurations/*.py --jobs 14 --seconds .05 --out runs/triton.parquet
    python results/recipes/triton_configurations.py rank tables/triton.parquet

Each kernel of results/recipes/triton_kernels has two sizes, and the same random configurations for both.
`rank` prints, for each method and each way to draw labels, the mean over the kernels of the Spearman
correlation within a kernel and size, the least of the kernels, and how much slower the configuration with the
least predicted latency is than the fastest one: the median and the mean.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from nas_rlm import RLM
from nas_rlm.data import Row, read
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.configurations.surrogate import ConfigurationSurrogate
from nas_rlm.surrogates.configurations.text import numbers_of
from nas_rlm.surrogates.programs.fitting import fit_program_surrogates

KERNELS = Path(__file__).parent / "triton_kernels"
CONFIGURATIONS_PER_KERNEL = 32
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4)

LABELS, DRAWS = (10, 15, 20), 3
SPACE, OBJECTIVE, SHIPPED_OBJECTIVE = "triton", "latency/nvidia-h200", "latency"

Method = Callable[[Sequence[Row], Sequence[Row]], np.ndarray]  # labelled and other rows; latencies or scores
Choices = dict[str, tuple[int, ...]]
Sizes = dict[str, int]

SPACES: dict[str, tuple[Choices, tuple[Sizes, Sizes]]] = {
    "gelu": (
        {"BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384), "WARPS": WARPS},
        ({"SIZE": 2**23}, {"SIZE": 50_000_000}),
    ),
    "softmax": (
        {"ROWS_PER_PROGRAM": (1, 2, 4, 8, 16, 32), "WARPS": WARPS, "STAGES": STAGES},
        ({"ROWS": 16384, "COLUMNS": 1000}, {"ROWS": 8192, "COLUMNS": 8192}),
    ),
    "layer_norm": (
        {"BLOCK": (64, 128, 256, 512, 1024, 2048, 4096), "WARPS": WARPS, "STAGES": STAGES},
        ({"ROWS": 16384, "COLUMNS": 768}, {"ROWS": 8192, "COLUMNS": 5120}),
    ),
    "matmul": (
        {
            "BLOCK_M": (32, 64, 128, 256),
            "BLOCK_N": (32, 64, 128, 256),
            "BLOCK_K": (16, 32, 64, 128),
            "GROUP": (1, 8),
            "WARPS": (2, 4, 8),
            "STAGES": STAGES,
        },
        ({"M": 2048, "K": 2048, "N": 2048}, {"M": 4096, "K": 1024, "N": 5000}),
    ),
    "transpose": (
        {"BLOCK_ROWS": (8, 16, 32, 64, 128), "BLOCK_COLUMNS": (8, 16, 32, 64, 128), "WARPS": WARPS},
        ({"ROWS": 4096, "COLUMNS": 4096}, {"ROWS": 10000, "COLUMNS": 5000}),
    ),
    "column_sum": (
        {
            "BLOCK_ROWS": (8, 16, 32, 64, 128, 256),
            "BLOCK_COLUMNS": (8, 16, 32, 64, 128),
            "WARPS": WARPS,
            "STAGES": STAGES,
        },
        ({"ROWS": 4096, "COLUMNS": 8192}, {"ROWS": 20000, "COLUMNS": 3000}),
    ),
    "matvec": (
        {
            "BLOCK_ROWS": (1, 2, 4, 8, 16, 32, 64),
            "BLOCK_COLUMNS": (32, 64, 128, 256, 512),
            "WARPS": WARPS,
            "STAGES": STAGES,
        },
        ({"ROWS": 16384, "COLUMNS": 4096}, {"ROWS": 50000, "COLUMNS": 2048}),
    ),
    "attention": (
        {
            "BLOCK_QUERIES": (16, 32, 64, 128, 256),
            "BLOCK_KEYS": (16, 32, 64, 128),
            "WARPS": (2, 4, 8),
            "STAGES": STAGES,
        },
        ({"HEADS": 48, "LENGTH": 1024}, {"HEADS": 16, "LENGTH": 4096}),
    ),
}


def write(directory: Path) -> None:
    """Write the files of all configurations, with names such as gelu-a-BLOCK512-WARPS4.py."""
    directory.mkdir(parents=True, exist_ok=True)
    for kernel, (choices, sizes) in SPACES.items():
        template = (KERNELS / f"{kernel}.txt").read_text(encoding="utf-8")
        products = list(itertools.product(*choices.values()))
        chosen = random.Random(0).sample(products, min(CONFIGURATIONS_PER_KERNEL, len(products)))
        for values, (letter, numbers) in itertools.product(chosen, zip("ab", sizes, strict=True)):
            text = _replace_names(template, numbers)
            line = f"{', '.join(choices)} = {', '.join(map(str, values))}"
            text = re.sub(rf"^{', '.join(choices)} = .*", line, text, count=1, flags=re.MULTILINE)
            name = "-".join(f"{name}{value}" for name, value in zip(choices, values, strict=True))
            (directory / f"{kernel}-{letter}-{name}.py").write_text(text, encoding="utf-8")


def _replace_names(template: str, numbers: Sizes) -> str:
    """Return a text with numbers in the place of the names of its sizes."""
    return re.sub(r"\b[A-Z]+\b", lambda match: str(numbers.get(match[0], match[0])), template)


def by_configuration_surrogate(labelled: Sequence[Row], others: Sequence[Row]) -> np.ndarray:
    """Return what the surrogate predicts that `finetune` fits to configurations."""
    surrogate = ConfigurationSurrogate.fit(_programs(labelled), {OBJECTIVE: _latencies(labelled)})
    return surrogate.predict(surrogate.transform(_programs(others)), OBJECTIVE).median


def by_program_surrogate(labelled: Sequence[Row], others: Sequence[Row]) -> np.ndarray:
    """Return what the surrogate of programs predicts, which reads n-grams and structure."""
    values = {OBJECTIVE: _latencies(labelled)}
    surrogate = fit_program_surrogates(_programs(labelled), [SPACE] * len(labelled), values)[SPACE]
    return surrogate.predict(surrogate.transform(_programs(others)), OBJECTIVE).median


def by_gaussian_process(labelled: Sequence[Row], others: Sequence[Row]) -> np.ndarray:
    """Return what scikit-learn's Gaussian process on logarithms of the numbers predicts."""
    numbers, new = (np.array([numbers_of(p) for p in _programs(rows)]) for rows in (labelled, others))
    differ = np.ptp(numbers, 0) > 0
    numbers, new = np.log(numbers[:, differ] + 1), np.log(new[:, differ] + 1)
    mean, std = numbers.mean(0), numbers.std(0)
    kernel = RBF(np.full(differ.sum(), 3.0), (0.3, 100)) + WhiteKernel(0.05, (1e-4, 1))
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
    process.fit((numbers - mean) / std, np.log(_latencies(labelled)))
    return process.predict((new - mean) / std)


def by_shipped_model(labelled: Sequence[Row], others: Sequence[Row]) -> np.ndarray:
    """Return what the shipped model predicts, which has no labels of the GPU."""
    return RLM.load("programs").predict_text(_programs(others), [SHIPPED_OBJECTIVE])[:, 0]


METHODS: dict[str, Method] = {
    "configurations": by_configuration_surrogate,
    "programs": by_program_surrogate,
    "gaussian process": by_gaussian_process,
    "shipped model": by_shipped_model,
}


def _programs(rows: Sequence[Row]) -> list[str]:
    return [row.input for row in rows]


def _latencies(rows: Sequence[Row]) -> np.ndarray:
    return np.array([row.targets[OBJECTIVE] for row in rows])


def _kernel_and_size(row: Row) -> tuple[str, str]:
    """Return the kernel and the letter of the size, such as gelu and a, of gelu-a-BLOCK512-WARPS4.py."""
    kernel, size, *_ = row.identifier.split("-")
    return kernel, size


def splits(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], list[Row]]]:
    """Yield ways to draw labels of one kernel, each with labelled and other configurations."""
    for labels, seed in itertools.product(LABELS, range(DRAWS)):
        order = np.random.default_rng(seed).permutation(len(rows)).tolist()
        yield f"{labels} labels", [rows[i] for i in order[:labels]], [rows[i] for i in order[labels:]]
    for size in "ab":
        others = [row for row in rows if _kernel_and_size(row)[1] == size]
        yield "the other size", [row for row in rows if row not in others], others


def quality(others: Sequence[Row], predicted: np.ndarray) -> tuple[float, float]:
    """Return the Spearman correlation and how much slower the first one is, the mean of both sizes."""
    found = []
    for size in "ab":
        positions = [i for i, row in enumerate(others) if _kernel_and_size(row)[1] == size]
        if len(positions) > 2:
            latencies = _latencies([others[i] for i in positions])
            first = latencies[np.argmin(predicted[positions])]
            found.append((spearman(predicted[positions], latencies), first / latencies.min() - 1))
    correlation, slowdown = np.mean(found, 0)
    return float(correlation), float(slowdown)


def rank(table: Path) -> None:
    """Print how well each method ranks configurations."""
    warnings.filterwarnings("ignore", module="sklearn")  # of hyperparameters at their bounds
    rows = read(table).rows
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for kernel in SPACES:
        for draw, labelled, others in splits([row for row in rows if _kernel_and_size(row)[0] == kernel]):
            for name, method in METHODS.items():
                by_kernel = found.setdefault((draw, name), {})
                by_kernel.setdefault(kernel, []).append(quality(others, method(labelled, others)))
    for (draw, name), by_kernel in found.items():
        correlations = [np.mean([c for c, _ in cases]) for cases in by_kernel.values()]
        slowdowns = [s for cases in by_kernel.values() for _, s in cases]
        print(
            f"{draw}, {name}: Spearman {np.mean(correlations):.3f} (least {min(correlations):.2f}),"
            f" slower by {np.median(slowdowns):.1%} (mean {np.mean(slowdowns):.0%})",
            flush=True,
        )


if __name__ == "__main__":
    {"write": write, "rank": rank}[sys.argv[1]](Path(sys.argv[2]))
