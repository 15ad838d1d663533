"""Baselines: costs, learners on features of a space and on graphs, a regression head, and simple decoding."""

from nas_rlm.benchmarks.baselines.cost import flops, params
from nas_rlm.benchmarks.baselines.gcn import CELL_SPACES, gcn
from nas_rlm.benchmarks.baselines.genes import gene_boosting, gene_features, gene_process
from nas_rlm.benchmarks.baselines.graf import graf_features, graf_forest
from nas_rlm.benchmarks.baselines.perceptron import mlp
from nas_rlm.benchmarks.baselines.programs import loop_depth, neighbours, program_length
from nas_rlm.benchmarks.baselines.regression_head import regression_head
from nas_rlm.benchmarks.baselines.trees import space_features, trees

__all__ = [
    "CELL_SPACES",
    "flops",
    "gcn",
    "gene_boosting",
    "gene_features",
    "gene_process",
    "graf_features",
    "graf_forest",
    "loop_depth",
    "mlp",
    "neighbours",
    "params",
    "program_length",
    "regression_head",
    "space_features",
    "trees",
]
