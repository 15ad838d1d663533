"""Numbers from the decoder under constraint: ancestral samples and exact quantiles of the digit tree.

What else is known of a number, a belief, is a factor of each digit's probabilities: of two that err alike,
so that their product has a temperature of its own.

Source: section 3 of the paper (constrained decoding); the quantile walk and beliefs are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nas_rlm.model.network import Cache, Memory, Network
from nas_rlm.model.numbers import DigitTree, NumberScheme

TOGETHER = 64  # decodings of a text that are walked at once


class Belief(Protocol):
    """What is held of a number of B texts, whatever their network says; see `nas_rlm.surrogates.graph_surrogate.Belief`."""

    @property
    def temperature(self) -> float:
        """Divides the logarithms of what network and belief say together."""

    def shares(self, edges: np.ndarray) -> np.ndarray:
        """From edges, rising [B, n, E + 1], how likely the number is between each two, [B, n, E]."""


Beliefs = Sequence[Belief | None]


@torch.inference_mode()
def sample(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    num_samples: int,
    generator: torch.Generator,
    temperatures: Sequence[float] | None = None,
    beliefs: Beliefs | None = None,
) -> np.ndarray:
    """Joint draws from the model's distribution over all the objectives.

    Args:
        network: the model.
        memory: B encoded texts.
        objectives: K names, in the order in which each is conditioned on those before: on the first and,
            where they are more than training showed at once, on the nearest of the others.
        num_samples: n draws of each text.
        generator: source of randomness, on the network's device.
        temperatures: K divisors of the logits, see `nas_rlm.surrogates.calibration`; 1 by default.
        beliefs: K factors of the probabilities; none by default.

    Returns:
        float64 [B, n, K].
    """
    rows = memory.batch * num_samples
    prefix = _Prefix(network, memory, rows)
    drawn = []
    for token, temperature, belief in _asked(network, objectives, temperatures, beliefs):
        caches, unread = prefix.before(token)
        divisor = unread.new_full((rows, 1), temperature, dtype=torch.float64)
        digits = _write(
            network,
            memory,
            unread,
            caches,
            divisor,
            [belief] * num_samples,
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
    beliefs: Beliefs | None = None,
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
        beliefs: as in `sample`.

    Returns:
        float64 [B, K, Q].
    """
    b, device = memory.batch, memory.mask.device
    asked = list(_asked(network, objectives, temperatures, beliefs))
    together = max(1, TOGETHER // len(quantiles))
    found = []
    for part in (asked[i : i + together] for i in range(0, len(asked), together)):
        walks = [(*one, level) for one in part for level in quantiles]
        tokens = torch.tensor([[token] for token, *_ in walks], device=device).repeat(b, 1)
        divisor, wanted = (
            torch.tensor(column, dtype=torch.float64, device=device).repeat(b)[:, None]
            for column in ([t for _, t, _, _ in walks], [level for *_, level in walks])
        )
        caches = [Cache() for _ in network.decoder]
        held = [belief for _, _, belief, _ in walks]
        digits = _write(network, memory, tokens, caches, divisor, held, _Descent(wanted))
        values = network.config.scheme.decode_array(digits.cpu().numpy())
        found.append(values.reshape(b, len(part), len(quantiles)))
    return np.concatenate(found, axis=1)


def _asked(
    network: Network,
    objectives: Sequence[str],
    temperatures: Sequence[float] | None,
    beliefs: Beliefs | None,
) -> Iterator[tuple[int, float, Belief | None]]:
    """The token of each objective, its temperature, and what is believed of it."""
    k = len(objectives)
    return zip(
        network.config.objective_ids(objectives),
        temperatures or [1.0] * k,
        beliefs or [None] * k,
        strict=True,
    )


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
    beliefs: Beliefs,
    choose: Callable[[Tensor], Tensor],
) -> Tensor:
    """Write one number a row.

    Args:
        network: the model.
        memory: B encoded texts.
        unread: int64 [rows, t], tokens not yet in the caches, an objective's last.
        caches: what was read before, extended in place.
        temperatures: float [rows, 1], the logits are divided by them.
        beliefs: of each of the rows of a text, of which each text has as many.
        choose: from the probabilities of the valid children, float64 [rows, 10] in ascending order of the
            numbers below them, to the index of one, [rows, 1].

    Returns:
        The digits, int64 [rows, length]; the last one is not read.
    """
    scheme = network.config.scheme
    order, step = (t.to(unread.device) for t in transitions(scheme))
    state = torch.zeros(len(unread), dtype=torch.long, device=unread.device)
    digits: list[Tensor] = []
    for position in range(scheme.length):
        logits = network.decode(unread, memory, caches)[:, -1].double()
        children = order[position, state]
        scores = (logits / temperatures).gather(1, children.clamp(min=0))
        scores = scores.masked_fill(children < 0, float("-inf"))
        if any(beliefs) and position < scheme.length - 1:  # the last digit is finer than any belief
            written = torch.cat(digits, 1) if digits else children[:, :0]
            edges = _tree(scheme).edges(written.cpu().numpy(), state.cpu().numpy())
            believed, divisors = _believed(edges, beliefs)
            scores = (scores.log_softmax(1) + believed.to(scores.device)) / divisors.to(scores.device)
        unread = children.gather(1, choose(scores.softmax(1)))
        state = step[position, state, unread[:, 0]]
        digits.append(unread)
    return torch.cat(digits, 1)


def _believed(edges: np.ndarray, beliefs: Beliefs) -> tuple[Tensor, Tensor]:
    """What is believed of the children between edges, as logarithms, float64 [rows, 10], and temperatures."""
    n = len(beliefs)
    between = edges.reshape(-1, n, edges.shape[1])
    shares = np.ones((len(between), n, edges.shape[1] - 1))
    for belief in {id(b): b for b in beliefs if b is not None}.values():
        of_belief = [k for k, b in enumerate(beliefs) if b is belief]
        shares[:, of_belief] = belief.shares(between[:, of_belief])
    divisors = np.tile([b.temperature if b else 1.0 for b in beliefs], len(between))[:, None]
    return torch.from_numpy(np.log(shares.reshape(len(edges), -1))), torch.from_numpy(divisors)


@lru_cache(maxsize=8)
def _tree(scheme: NumberScheme) -> DigitTree:
    return DigitTree(scheme)


@lru_cache(maxsize=8)
def transitions(scheme: NumberScheme) -> tuple[Tensor, Tensor]:
    """The digit tree as tensors: children in order, at each position and state, and the states after them."""
    tree = _tree(scheme)
    return torch.from_numpy(tree.order), torch.from_numpy(tree.step)
