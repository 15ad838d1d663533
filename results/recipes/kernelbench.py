"""Latencies of the PyTorch modules of KernelBench, predicted for kinds of modules without labels.

    python results/recipes/kernelbench.py $NAS_RLM_DATA/code/kernelbench_modules.parquet

The program of each module is executed, so the file must be trusted. Weights are not initialised. The network
that `from_torch` reads, or the source, predicts the latencies of a kind from those of the others.
"""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.parquet as pq
import torch

from nas_rlm import from_torch
from nas_rlm.benchmarks.networks import LatencyResult, NetworkLatencies
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.data.tables import Row
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate

# Words of the names of single operators, by kind; the first kind that has one counts.
KINDS = {
    "convolution": ("conv",),
    "product": ("mat", "bmm", "gemm", "batched"),
    "normalization": ("norm",),
    "pooling": ("pool",),
    "reduction": ("reduction", "argm", "cum", "mean", "max_", "min_", "sum"),
    "loss": ("loss", "divergence", "entropy"),
}


def kind_of(kernel: str) -> str:
    """Return the kind of a module, such as `level1/pooling`, from its path `level1/41_Max_Pooling_1D.py`."""
    level, name = re.sub(r"/\d+_", "/", kernel.lower()).split("/")
    if level == "level1":
        kinds = (kind for kind, words in KINDS.items() if any(word in name for word in words))
        return f"level1/{next(kinds, 'pointwise')}"
    return f"level2/{re.split(r'[_.]', name)[0]}" if level == "level2" else level


def network(source: str) -> str:
    """Return the text of the module that a program defines."""
    program = types.ModuleType("kernelbench")
    exec(compile(source, "kernelbench", "exec"), program.__dict__)
    with torch.device("meta"):
        module, inputs = program.Model(*program.get_init_inputs()), program.get_inputs()
    empty = [torch.empty_like(x, device="cpu") if isinstance(x, torch.Tensor) else x for x in inputs]
    return from_torch(module.to_empty(device="cpu"), empty)


def rows_of(path: str) -> tuple[list[Row], list[str]]:
    """Return a row for each module that can be exported, with its latencies, and their sources."""
    sources: dict[str, str] = {}
    latencies: dict[str, dict[str, float]] = {}
    for record in pq.read_table(path).to_pylist():
        details = ast.literal_eval(record["metadata"])
        setting = "inductor" if "inductor" in details["backend"] else "eager"
        device = re.sub(r"\W+", "-", details["gpu"].removeprefix("NVIDIA ")).lower()
        sources[details["kernel"]] = record["input"]
        of_kernel = latencies.setdefault(details["kernel"], {})
        of_kernel[f"latency/{device}-{setting}"] = float(record["val_accuracy"])
    rows = []
    for kernel, source in sources.items():
        try:
            text = network(source)
        except Exception as error:
            print(f"{kernel} is left out: {error}", file=sys.stderr)
            continue
        rows.append(Row("", "", latencies[kernel], text, kernel, group=kind_of(kernel)))
    return rows, [sources[row.identifier] for row in rows]


def results(rows: Sequence[Row], sources: Sequence[str]) -> Iterator[tuple[str, str, LatencyResult]]:
    """Yield the latency, the method, and how well it predicts each kind from the others."""
    objectives = list(rows[0].targets)
    networks = NetworkLatencies(rows, objectives, len(rows))
    raw = graph_features_of_texts([row.input for row in rows], MAX_CHAIN_LENGTH, with_layers=True)
    for name in objectives:
        values = networks.latencies[name]
        predicted: dict[str, np.ndarray] = {}
        for kind in np.unique(networks.families):
            test, train = (np.flatnonzero((networks.families == kind) == own) for own in (True, False))
            found = networks.baselines(train, test, values[train])
            found["layer sums"] = networks.by_layers(train, test, values[train])
            features = LatencyFeatures.fit([raw[i] for i in train])
            inputs = (features.transform([raw[i] for i in part]) for part in (train, test))
            surrogate = LatencySurrogate.fit(features, next(inputs), values[train], name)
            found["surrogate"] = surrogate.predict(next(inputs), name).median
            ngrams = NgramSurrogate.fit([sources[i] for i in train.tolist()], {name: values[train]})
            encoded = ngrams.transform([sources[i] for i in test.tolist()])
            found["n-gram ridge of the source"] = ngrams.predict(encoded, name).median
            for method, of_kind in found.items():
                predicted.setdefault(method, np.empty(len(rows)))[test] = of_kind
        for method, of_all in predicted.items():
            yield name, method, LatencyResult.of(of_all, values)


def main() -> None:
    """Print a line for each latency and method."""
    torch.set_num_threads(1)
    rows, sources = rows_of(sys.argv[1])
    print(f"{len(rows)} modules of {len({row.group for row in rows})} kinds")
    for name, method, result in results(rows, sources):
        numbers = (result.spearman, result.kendall, result.mape, result.within_20_percent)
        print(f"{name:32}{method:28}" + "".join(f"{number:8.3f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
