"""What the training of an architecture costs relative to that of others, estimated from its graph.

Seconds that trainings took would be known only after some of them, and would make suggestions depend on the
load of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Share of each in the mean cost of some networks: what all trainings take, MACs, and elements of activations.
CONSTANT_SHARE, FLOPS_SHARE, ACTIVATIONS_SHARE = 0.2, 0.4, 0.4


def relative_training_costs(raw_features: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Return estimated costs of trainings, relative to their mean: float64 [N], positive.

    Examples:
        >>> small, large = {"flops": 1e6, "activations": 100.0}, {"flops": 3e6, "activations": 100.0}
        >>> relative_training_costs([small, large])
        array([0.8, 1.2])

    Args:
        raw_features: graph features of N architectures, see `nas_rlm.data.synthetic.graph_features`.
    """
    costs = np.full(len(raw_features), CONSTANT_SHARE)
    for name, share in (("flops", FLOPS_SHARE), ("activations", ACTIVATIONS_SHARE)):
        values = np.array([features[name] for features in raw_features])
        mean = values.mean() if len(values) else 0.0
        costs += share * (values / mean if mean > 0 else 1.0)
    return costs
