"""Predict accuracies of spaces with a gene that no text of a network shows, such as a learning rate.

    python results/recipes/hidden_genes.py TABLES results/benchmarks/hidden-genes.jsonl

Each space is taken as a user's own one, with one gene more, whose four values lower the accuracy in equal
steps. TABLES is a directory with tables of measured networks. Nothing is transferred from other spaces.
Results that the file has are not computed again.
"""

import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.data import Row, read
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.fitting import fit_features, graph_features_of
from nas_rlm.surrogates.graphs.features import raw_features_of_rows
from search_spaces import SearchSpace

SPACES = "nasbench201", "nasbench101", "nats_size", "ofa_mbv3"
NUM_VALUES = 4  # of the hidden gene
EFFECTS = 0.0, 2.7  # of its last value, in standard deviations of the accuracies above their lowest tenth
SEEDS_OF_LABELS = {30: 4, 100: 4, 1000: 2}
NUM_ROWS, NUM_TEST = 1600, 400
OBJECTIVE, INTERVAL = "accuracy", (0.1, 0.9)


@dataclass(frozen=True)
class WithGene:
    """An architecture with the value of the hidden gene."""

    value: int
    architecture: object

    def __str__(self) -> str:
        return f"g{self.value} {self.architecture}"


class HiddenGene(SearchSpace[WithGene]):
    """A space with one gene more, which its networks do not depend on."""

    def __init__(self, space: SearchSpace) -> None:
        self.space, self.name = space, f"hidden_{space.name}"
        self.size = space.size and NUM_VALUES * space.size
        self.genes = (NUM_VALUES, *space.genes)
        self.input_shape, self.batch_size = space.input_shape, space.batch_size

    def decode(self, genome):
        return WithGene(int(genome[0]), self.space.decode(genome[1:]))

    def encode(self, architecture):
        return np.array([architecture.value, *self.space.encode(architecture.architecture)])

    def parse(self, text):
        return WithGene(int(text[1]), self.space.parse(text[3:]))

    def write(self, graph, architecture):
        return self.space.write(graph, architecture.architecture)

    def shape(self, architecture):
        return self.space.shape(architecture.architecture)


def labelled_rows(table: str, space: SearchSpace, effect: float) -> list[Row]:
    """Return networks of a table with random values of the hidden gene, which lower their accuracies."""
    rows = read(table).where_measured(OBJECTIVE).sample(NUM_ROWS).rows
    accuracies = np.array([row.targets[OBJECTIVE] for row in rows])
    deviation = np.maximum(accuracies, np.quantile(accuracies, 0.1)).std()
    values = np.random.default_rng(2).integers(NUM_VALUES, size=len(rows))
    lowered = accuracies - effect * deviation * values / (NUM_VALUES - 1)
    names = [f"g{value} {row.arch_str}" for value, row in zip(values, rows, strict=True)]
    return [Row(space.name, name, {OBJECTIVE: y}) for name, y in zip(names, lowered.tolist(), strict=True)]


def main(tables: str, output: str) -> None:
    """Measure each space, effect, number of labels and draw of labels, and print the means."""
    path = Path(output)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(r["space"], r["effect"], r["labels"], r["seed"]) for r in records}
    for name, effect in itertools.product(SPACES, EFFECTS):
        draws = [(labels, seed) for labels, count in SEEDS_OF_LABELS.items() for seed in range(count)]
        if not (missing := [draw for draw in draws if (name, effect, *draw) not in done]):
            continue
        space = search_spaces.register(HiddenGene(search_spaces.get(name)))
        rows = labelled_rows(f"{tables}/{name}.parquet", space, effect)
        raw_features = raw_features_of_rows(rows)
        genes = baselines.gene_features(rows, raw_features)
        y = np.array([row.targets[OBJECTIVE] for row in rows])
        for labels, seed in missing:
            order = np.random.default_rng([seed, labels]).permutation(len(rows))
            train, test = order[:labels], order[labels : labels + NUM_TEST]
            graph_features = graph_features_of(space.name, [rows[i] for i in train], (), labels <= 500)
            features = graph_features.transform(raw_features)
            surrogate = fit_features(graph_features, features[train], y[train, None], [OBJECTIVE])
            predicted = surrogate.predict(features[test], OBJECTIVE)
            low, high = predicted.quantiles(INTERVAL).T
            process = baselines.gene_process(genes, train, y[train])[test]
            error = np.abs(predicted.median - y[test]).mean() / np.abs(np.median(y[test]) - y[test]).mean()
            record = {
                "space": name,
                "effect": effect,
                "labels": labels,
                "seed": seed,
                "spearman": spearman(predicted.median, y[test]),
                "kendall": kendall(predicted.median, y[test]),
                "error": float(error),
                "coverage": coverage(low, high, y[test]),
                "spearman of genes": spearman(process, y[test]),
                "kendall of genes": kendall(process, y[test]),
            }
            records.append(record)
            with open(path, "a") as file:
                file.write(json.dumps(record) + "\n")
    print_means(records)


def print_means(records: list[dict]) -> None:
    """Print means over spaces, and the value of the worst space, for each effect and number of labels."""
    names = [name for name in records[0] if name not in ("space", "effect", "labels", "seed")]
    print("effect labels  " + "  ".join(f"{name:>17}" for name in names))
    for effect, labels in itertools.product(EFFECTS, SEEDS_OF_LABELS):
        cells = []
        for name in names:
            by_space = {}
            for r in records:
                if (r["effect"], r["labels"]) == (effect, labels):
                    by_space.setdefault(r["space"], []).append(r[name])
            means = [np.mean(values) for values in by_space.values()]
            worst = max(means) if name == "error" else min(means)
            cells.append(f"{np.mean(means):.3f} ({worst:.3f})")
        print(f"{effect:6} {labels:6}  " + "  ".join(f"{cell:>17}" for cell in cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
