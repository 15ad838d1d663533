"""What the model is held against: ranking by cost, and trees on hand-made features."""

from nas_rlm.baselines.cost import flops, params
from nas_rlm.baselines.trees import features, trees

__all__ = ["features", "flops", "params", "trees"]
