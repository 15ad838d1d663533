"""What the model is held against: cost, learners on hand-made features and on graphs, a plain head."""

from nas_rlm.benchmarks.baselines.cost import flops, params
from nas_rlm.benchmarks.baselines.gcn import SPACES as CELLS
from nas_rlm.benchmarks.baselines.gcn import gcn
from nas_rlm.benchmarks.baselines.head import head
from nas_rlm.benchmarks.baselines.perceptron import mlp
from nas_rlm.benchmarks.baselines.programs import length, loop_depth, neighbours
from nas_rlm.benchmarks.baselines.trees import features, trees

__all__ = [
    "CELLS",
    "features",
    "flops",
    "gcn",
    "head",
    "length",
    "loop_depth",
    "mlp",
    "neighbours",
    "params",
    "trees",
]
