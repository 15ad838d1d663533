"""Numbers from the decoder under constraint: ancestral samples and exact quantiles of the digit tree.

Source: section 3 of the paper (constrained decoding); the quantile walk is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nas_rlm.model import Cache, Memory, Network
from nas_rlm.numbers import DigitTree, NumberScheme

TOGETHER = 64  # decodings of a text that are walked at once


@torch.inference_mode()
def sample(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    num_samples: int,
    generator: torch.Generator,
    temperatures: Sequence[float] | None = None,
) -> np.ndarray:
    """Joint draws from the model's distribution over all the objectives.

    Args:
        network: the model.
        memory: B encoded texts.
        objectives: K names, in the order in which each is conditioned on those before: on the first and,
            where they are more than training showed at once, on the nearest of the others.
        num_samples: n draws of each text.
        generator: source of randomness, on the network's device.
        temperatures: K divisors of the logits, see `nas_rlm.calibration`; 1 by default.

    Returns:
        float64 [B, n, K].
    """
    rows = memory.batch * num_samples
    prefix = _Prefix(network, memory, rows)
    drawn = []
    for token, temperature in _asked(network, objectives, temperatures):
        caches, unread = prefix.before(token)
        divisor = unread.new_full((rows, 1), temperature, dtype=torch.float64)
        digits = _write(
            network,
            memory,
            unread,
            caches,
            divisor,
            lambda p: torch.multinomial(p, 1, generator=generator),
        )
        prefix.extend(caches, digits)
        drawn.append(network.config.scheme.decode_array(digits.cpu().numpy()))
    return np.stack(drawn, 1).reshape(memory.batch, num_samples, len(drawn))


@torch.inference_mode()
def quantile(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    quantiles: Sequence[float],
    temperatures: Sequence[float] | None = None,
) -> np.ndarray:
    """Exact quantiles of the model's distribution over each objective by itself.

    The tree is walked by cumulative probability: at each digit the child is taken whose interval holds the
    quantile, so that one pass gives the smallest number at which the distribution function reaches it. All
    objectives and levels are walked together.

    Args:
        network: the model.
        memory: B encoded texts.
        objectives: K names.
        quantiles: Q levels, each between 0 and 1.
        temperatures: as in `sample`.

    Returns:
        float64 [B, K, Q].
    """
    b, device = memory.batch, memory.mask.device
    asked = list(_asked(network, objectives, temperatures))
    together = max(1, TOGETHER // len(quantiles))
    found = []
    for part in (asked[i : i + together] for i in range(0, len(asked), together)):
        walks = [(token, t, level) for token, t in part for level in quantiles]
        tokens = torch.tensor([[token] for token, _, _ in walks], device=device).repeat(b, 1)
        real = torch.tensor([walk[1:] for walk in walks], dtype=torch.float64, device=device).repeat(b, 1)
        caches = [Cache() for _ in network.decoder]
        digits = _write(network, memory, tokens, caches, real[:, :1], _Descent(real[:, 1:]))
        values = network.config.scheme.decode_array(digits.cpu().numpy())
        found.append(values.reshape(b, len(part), len(quantiles)))
    return np.concatenate(found, axis=1)


def _asked(
    network: Network, objectives: Sequence[str], temperatures: Sequence[float] | None
) -> Iterator[tuple[int, float]]:
    """The token of each objective, and its temperature."""
    given = [1.0] * len(objectives) if temperatures is None else temperatures
    return zip(network.config.objective_ids(objectives), given, strict=True)


class _Prefix:
    """What the decoder has read when it writes the next number.

    After as many numbers as training showed in one sequence, a new one starts behind the first number.
    """

    def __init__(self, network: Network, memory: Memory, rows: int) -> None:
        self.most = network.config.numbers
        self.written = 0
        self.caches = [Cache() for _ in network.decoder]
        self.unread = torch.empty(rows, 0, dtype=torch.long, device=memory.mask.device)
        self.first = self.caches, self.unread

    def before(self, objective: int) -> tuple[list[Cache], Tensor]:
        """Caches to extend, and the tokens that are not in them, an objective's last."""
        if self.written == self.most:
            (self.caches, self.unread), self.written = self.first, 1
        return [copy(c) for c in self.caches], F.pad(self.unread, (0, 1), value=objective)

    def extend(self, caches: list[Cache], digits: Tensor) -> None:
        """Take a number that has been written; its last digit is not in the caches."""
        self.caches, self.unread = caches, digits[:, -1:]
        self.written += 1
        if self.written == 1:
            self.first = self.caches, self.unread


class _Descent:
    """Takes the child whose interval of probability holds the level, then seeks the rest within it."""

    def __init__(self, level: Tensor) -> None:
        self.level = level

    def __call__(self, probabilities: Tensor) -> Tensor:
        edges = F.pad(probabilities.cumsum(1), (1, 0))
        # Scaled by the sum as it was rounded, the level never passes the last child that has any mass.
        target = self.level * edges[:, -1:]
        chosen = (edges[:, 1:] < target).sum(1, keepdim=True)
        low, high = edges.gather(1, chosen), edges.gather(1, chosen + 1)
        self.level = (target - low) / (high - low)
        return chosen


def _write(
    network: Network,
    memory: Memory,
    unread: Tensor,
    caches: list[Cache],
    temperatures: Tensor,
    choose: Callable[[Tensor], Tensor],
) -> Tensor:
    """Write one number a row.

    Args:
        network: the model.
        memory: B encoded texts.
        unread: int64 [rows, t], tokens not yet in the caches, an objective's last.
        caches: what was read before, extended in place.
        temperatures: float [rows, 1], the logits are divided by them.
        choose: from the probabilities of the valid children, float64 [rows, 10] in ascending order of the
            numbers below them, to the index of one, [rows, 1].

    Returns:
        The digits, int64 [rows, length]; the last one is not read.
    """
    order, step = (t.to(unread.device) for t in _tree(network.config.scheme))
    state = torch.zeros(len(unread), dtype=torch.long, device=unread.device)
    digits: list[Tensor] = []
    for position in range(network.config.scheme.length):
        logits = network.decode(unread, memory, caches)[:, -1].double()
        children = order[position, state]
        scores = logits.gather(1, children.clamp(min=0)).masked_fill(children < 0, float("-inf"))
        unread = children.gather(1, choose((scores / temperatures).softmax(1)))
        state = step[position, state, unread[:, 0]]
        digits.append(unread)
    return torch.cat(digits, 1)


@lru_cache(maxsize=8)
def _tree(scheme: NumberScheme) -> tuple[Tensor, Tensor]:
    tree = DigitTree(scheme)
    return torch.from_numpy(tree.order), torch.from_numpy(tree.step)
