"""What the model is held against: cost, learners on hand-made features and on graphs, a plain head."""

from nas_rlm.baselines.cost import flops, params
from nas_rlm.baselines.gcn import SPACES as CELLS
from nas_rlm.baselines.gcn import gcn
from nas_rlm.baselines.head import head
from nas_rlm.baselines.perceptron import mlp
from nas_rlm.baselines.programs import length, loop_depth, neighbours
from nas_rlm.baselines.trees import features, trees

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
