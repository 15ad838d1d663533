"""Numbers from the decoder under constraint: ancestral samples and exact quantiles of the digit tree.

Source: section 3 of the paper (constrained decoding); the quantile walk is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model import Cache, Memory, Network
from nas_rlm.numbers import DigitTree, NumberScheme


@lru_cache(maxsize=8)
def _tree(scheme: NumberScheme) -> tuple[Tensor, Tensor]:
    tree = DigitTree(scheme)
    return torch.from_numpy(tree.order), torch.from_numpy(tree.step)


def _children(logits: Tensor, order: Tensor) -> Tensor:
    """Probabilities of the valid next tokens in ascending order of the number, 0 where there is none."""
    scores = logits.float().gather(1, order.clamp(min=0))
    return scores.masked_fill(order < 0, float("-inf")).softmax(1)


@torch.inference_mode()
def sample(
    network: Network, memory: Memory, objectives: Sequence[str], num_samples: int, generator: torch.Generator
) -> np.ndarray:
    """Joint draws from the model's distribution over all the objectives.

    Args:
        network: the model.
        memory: B encoded texts.
        objectives: K names, in the order in which each is conditioned on those before.
        num_samples: n draws of each text.
        generator: source of randomness.

    Returns:
        float64 [B, n, K].
    """
    scheme = network.config.scheme
    order, step = (t.to(memory.mask.device) for t in _tree(scheme))
    rows = memory.batch * num_samples
    caches = [Cache() for _ in network.decoder]
    drawn = []
    for token in network.config.objective_ids(objectives):
        following = torch.full((rows,), token, device=memory.mask.device)
        state = torch.zeros(rows, dtype=torch.long, device=memory.mask.device)
        digits = []
        for position in range(scheme.length):
            logits = network.decode(following[:, None], memory, caches)[:, -1]
            children = order[position, state]
            chosen = torch.multinomial(_children(logits, children), 1, generator=generator)
            following = children.gather(1, chosen)[:, 0]
            state = step[position, state, following]
            digits.append(following)
        network.decode(following[:, None], memory, caches)
        drawn.append(scheme.decode_array(torch.stack(digits, 1).cpu().numpy()))
    return np.stack(drawn, 1).reshape(memory.batch, num_samples, len(drawn))


@torch.inference_mode()
def quantile(
    network: Network, memory: Memory, objectives: Sequence[str], quantiles: Sequence[float]
) -> np.ndarray:
    """Exact quantiles of the model's distribution over each objective, given the medians of those before.

    The tree is walked by cumulative probability: at each digit the child is taken whose interval holds the
    quantile, so that one pass gives the smallest number at which the distribution function reaches it.

    Args:
        network: the model.
        memory: B encoded texts.
        objectives: K names.
        quantiles: Q levels, each between 0 and 1.

    Returns:
        float64 [B, K, Q].
    """
    scheme = network.config.scheme
    prefix = [Cache() for _ in network.decoder]
    found = []
    asked = list(quantiles) if 0.5 in quantiles else [*quantiles, 0.5]
    median = asked.index(0.5)
    for k, token in enumerate(network.config.objective_ids(objectives)):
        levels = asked if k + 1 < len(objectives) else list(quantiles)
        n = len(levels)
        caches = [c.repeat(n) for c in prefix]
        digits = _walk(network, memory, token, levels, caches)
        values = scheme.decode_array(digits.cpu().numpy()).reshape(memory.batch, n)
        found.append(values[:, : len(quantiles)])
        if k + 1 < len(objectives):
            network.decode(digits[:, -1:], memory, caches)
            prefix = [c.every(n, median) for c in caches]
    return np.stack(found, 1)


def _walk(network: Network, memory: Memory, token: int, levels: list[float], caches: list[Cache]) -> Tensor:
    """The digits [B * n, length] of one objective's quantiles."""
    device = memory.mask.device
    order, step = (t.to(device) for t in _tree(network.config.scheme))
    rows = memory.batch * len(levels)
    remaining = torch.tensor(levels, dtype=torch.float32, device=device).repeat(memory.batch)
    following = torch.full((rows,), token, device=device)
    state = torch.zeros(rows, dtype=torch.long, device=device)
    digits = []
    for position in range(network.config.scheme.length):
        logits = network.decode(following[:, None], memory, caches)[:, -1]
        children = order[position, state]
        p = _children(logits, children)
        total = p.cumsum(1)
        last = (children >= 0).sum(1) - 1
        chosen = torch.minimum((total < remaining[:, None]).sum(1), last)[:, None]
        mass = p.gather(1, chosen)[:, 0]
        below = total.gather(1, chosen)[:, 0] - mass
        remaining = ((remaining - below) / mass.clamp(min=1e-30)).clamp(0, 1)
        following = children.gather(1, chosen)[:, 0]
        state = step[position, state, following]
        digits.append(following)
    return torch.stack(digits, 1)
