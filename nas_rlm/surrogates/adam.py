"""Adam for the hyperparameters of Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nas_rlm.utils.process_pool import one_thread

FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8


def adam(
    gradient: Callable[[Tensor], Tensor], parameters: Tensor, num_steps: int, learning_rate: float
) -> Tensor:
    """Return the parameters after some steps of Adam (Kingma and Ba 2015) with its default decays.

    Creating an optimizer of torch imports its compiler, which takes longer than all steps.

    Examples:
        >>> adam(lambda x: 2 * (x - 3), torch.zeros(2), 500, 0.1).round()
        tensor([3., 3.])

    Args:
        gradient: function of the parameters.
        parameters: initial parameters.
        num_steps: number of steps.
        learning_rate: size of a step.
    """
    first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
    with one_thread():
        for step in range(1, num_steps + 1):
            slope = gradient(parameters)
            first = FIRST_DECAY * first + (1 - FIRST_DECAY) * slope
            second = SECOND_DECAY * second + (1 - SECOND_DECAY) * slope.square()
            scale = (second / (1 - SECOND_DECAY**step)).sqrt() + EPSILON
            parameters = parameters - learning_rate / (1 - FIRST_DECAY**step) * first / scale
    return parameters
