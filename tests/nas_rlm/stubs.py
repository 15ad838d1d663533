"""A predictor of NAS-Bench-201 cells that counts operators, and rows with made-up values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.data import Row, synthetic
from nas_rlm.text import from_architectures
from search_spaces import SearchSpace

CELLS = search_spaces.get("nasbench201")

GAIN = {"none": -6.0, "skip_connect": 1.0, "nor_conv_1x1": 3.0, "nor_conv_3x3": 4.5, "avg_pool_3x3": 0.5}
COST = {"none": 0.2, "skip_connect": 0.1, "nor_conv_1x1": 2.1, "nor_conv_3x3": 5.3, "avg_pool_3x3": 0.9}


class StubPredictor:
    """Accuracy falls off with a saturating count of operations, latencies are sums of costs."""

    def __init__(self) -> None:
        self.predicted: list[str] = []
        self.calls = 0

    def medians(self, architectures: Sequence[Any], objectives: Sequence[str]) -> np.ndarray:
        rows = []
        for a in map(str, architectures):
            quality = sum(
                a.count(op) * gain * (1 + 0.01 * a.index(op)) for op, gain in GAIN.items() if op in a
            )
            cost = sum(a.count(op) * c for op, c in COST.items())
            accuracy = 94 - 12 * np.exp(-quality / 9)
            values = {
                "accuracy": accuracy,
                "latency/pixel3": 0.5 + cost,
                "latency/eyeriss": 1.7 + a.count("conv") + cost / 9,
                "flops": a.count("conv_1x1") + 9.0 * a.count("conv_3x3"),
            }
            rows.append([round(values[o], 3) for o in objectives])
        return np.array(rows)

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        self.predicted += map(str, architectures)
        self.calls += 1
        medians = self.medians(architectures, objectives)
        if quantiles is None:
            return medians
        return medians[:, :, None] * (1 + 0.1 * (np.array(quantiles) - 0.5))

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        rng = np.random.default_rng(seed)
        medians = self.medians(architectures, objectives)[:, None]
        shared = rng.normal(size=(len(medians), num_samples, 1))
        own = rng.normal(size=(*shared.shape[:2], len(objectives)))
        scale = np.array([0.5 if o == "accuracy" else 1.2 for o in objectives])
        return medians + scale * (0.8 * shared + 0.6 * own)


def device_latency(name):
    """The latency of a cell on a device on which convolutions cost most."""
    return 1.0 + 5 * name.count("3x3") + 2 * name.count("1x1") + 0.1 * name.count("skip")


def counted_cells(n, seed=0):
    """Cells whose accuracy is a function of two counts."""
    rng = np.random.default_rng(seed)
    drawn = [CELLS.sample(rng) for _ in range(n)]
    counted = synthetic.graph_features_of_texts(from_architectures(CELLS, drawn))
    return [
        Row(
            "nasbench201",
            str(a),
            {"accuracy": 50 + 10 * np.tanh(c.get("convs/mean", 0) / 10) + c.get("paths", 0) / 10},
        )
        for a, c in zip(drawn, counted, strict=True)
    ]
