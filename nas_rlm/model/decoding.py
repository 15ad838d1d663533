"""Constrained decoding of numbers: ancestral samples and exact quantiles of the digit tree.

The digits of a number are decoded from the sign on, as a walk down the digit tree (`DigitTree`). With a
surrogate, the network's probabilities of each digit are multiplied by those of the surrogate's predictive
distribution. The product has its own temperature, since the errors of the two are correlated.

Source: section 3 of the paper (constrained decoding). The exact quantiles and the product with surrogates
are additions of this package.
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

from nas_rlm.model.attention import KeyValueCache
from nas_rlm.model.network import Memory, Network
from nas_rlm.model.numbers import DigitTree, NumberScheme

MAX_PARALLEL_DECODINGS = 64  # of one text


class SurrogateDistribution(Protocol):
    """A surrogate's distribution of an objective of B texts; see `nas_rlm.surrogates.predictive`."""

    @property
    def temperature(self) -> float:
        """Divisor of the log-probabilities of the product of network and surrogate."""

    @property
    def network_weight(self) -> np.ndarray | None:
        """Factor of the network's log-probabilities of each text, [B]; None for 1."""

    @property
    def is_alone(self) -> bool:
        """Whether the network and the temperature do not count."""

    def interval_probabilities(self, edges: np.ndarray) -> np.ndarray:
        """Return the probability [B, n, E] of each interval between ascending edges [B, n, E + 1]."""


SurrogateDistributions = Sequence[SurrogateDistribution | None]


@torch.inference_mode()
def sample(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    num_samples: int,
    generator: torch.Generator,
    temperatures: Sequence[float] | None = None,
    distributions: SurrogateDistributions | None = None,
    prefix: Tensor | None = None,
) -> np.ndarray:
    """Draw samples from the model's joint distribution over all objectives.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objectives: K names. Each is conditioned on those before it; beyond `Config.max_numbers` of them, on
            the first and the most recent ones.
        num_samples: number n of samples of each text.
        generator: random number generator on the network's device.
        temperatures: K divisors of the logits, see `nas_rlm.surrogates.calibration`; 1 by default.
        distributions: K distributions of surrogates, multiplied with the network's; none by default.
        prefix: tokens of numbers that are written before those of each sample, int64 [B * n, t].

    Returns:
        float64 [B, n, K].
    """
    rows = memory.batch * num_samples
    if prefix is None:
        prefix = torch.empty(rows, 0, dtype=torch.long, device=memory.mask.device)
    written = _Prefix(network, prefix)
    samples = []
    for token, temperature, distribution in _per_objective(network, objectives, temperatures, distributions):
        caches, unread = written.before(token)
        digits = _decode_number(
            network,
            memory,
            unread,
            caches,
            unread.new_full((rows, 1), temperature, dtype=torch.float64),
            [distribution] * num_samples,
            lambda p: torch.multinomial(p, 1, generator=generator),
        )
        written.append(caches, digits)
        samples.append(network.config.scheme.decode_array(digits.cpu().numpy()))
    return np.stack(samples, 1).reshape(memory.batch, num_samples, len(samples))


@torch.inference_mode()
def quantile(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    quantiles: Sequence[float],
    temperatures: Sequence[float] | None = None,
    distributions: SurrogateDistributions | None = None,
    prefix: Tensor | None = None,
) -> np.ndarray:
    """Return exact quantiles of the model's marginal distribution of each objective.

    At each digit, the walk takes the child whose interval of cumulative probability contains the level. This
    finds the smallest number at which the distribution function reaches the level in a single decoding. All
    objectives and levels are decoded in parallel.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objectives: K names.
        quantiles: Q levels between 0 and 1.
        temperatures: as in `sample`.
        distributions: as in `sample`.
        prefix: tokens of numbers that are written before each objective, int64 [B, t].

    Returns:
        float64 [B, K, Q].
    """
    b, device = memory.batch, memory.mask.device
    queries = list(_per_objective(network, objectives, temperatures, distributions))
    chunk_size = max(1, MAX_PARALLEL_DECODINGS // len(quantiles))
    values = []
    for chunk in (queries[i : i + chunk_size] for i in range(0, len(queries), chunk_size)):
        walks = [(*query, level) for query in chunk for level in quantiles]
        tokens = torch.tensor([[token] for token, *_ in walks], device=device).repeat(b, 1)
        if prefix is not None:
            tokens = torch.cat([prefix.repeat_interleave(len(walks), 0), tokens], 1)
        divisor, levels = (
            torch.tensor(column, dtype=torch.float64, device=device).repeat(b)[:, None]
            for column in ([t for _, t, _, _ in walks], [level for *_, level in walks])
        )
        caches = [KeyValueCache() for _ in network.decoder]
        per_walk = [distribution for _, _, distribution, _ in walks]
        digits = _decode_number(network, memory, tokens, caches, divisor, per_walk, _QuantileWalk(levels))
        numbers = network.config.scheme.decode_array(digits.cpu().numpy())
        values.append(numbers.reshape(b, len(chunk), len(quantiles)))
    return np.concatenate(values, axis=1)


@torch.inference_mode()
def log_probability(
    network: Network,
    memory: Memory,
    objective: str,
    numbers: np.ndarray,
    temperature: float = 1.0,
    distribution: SurrogateDistribution | None = None,
) -> np.ndarray:
    """Return the log-probability with which the model writes numbers, rounded to the digits of its scheme.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objective: name of the objective.
        numbers: n numbers of each text, float64 [B, n]; NaN for none.
        temperature: divisor of the logits.
        distribution: distribution of a surrogate, multiplied with the network's; none by default.

    Returns:
        float64 [B, n]; NaN where the number is.
    """
    n, device = numbers.shape[1], memory.mask.device
    digits = [
        network.config.scheme.encode(v) for v in np.nan_to_num(numbers, posinf=np.inf, neginf=-np.inf).flat
    ]
    (token,) = network.config.objective_ids([objective])
    walk = _GivenWalk(network.config.scheme, torch.tensor(digits, device=device))
    _decode_number(
        network,
        memory,
        torch.full((memory.batch * n, 1), token, device=device),
        [KeyValueCache() for _ in network.decoder],
        torch.full((memory.batch * n, 1), temperature, dtype=torch.float64, device=device),
        [distribution] * n,
        walk,
    )
    logs: np.ndarray = walk.log_probability.cpu().numpy().reshape(memory.batch, n)
    return np.where(np.isnan(numbers), np.nan, logs)


def _per_objective(
    network: Network,
    objectives: Sequence[str],
    temperatures: Sequence[float] | None,
    distributions: SurrogateDistributions | None,
) -> Iterator[tuple[int, float, SurrogateDistribution | None]]:
    """The token, temperature and surrogate distribution (or None) of each objective."""
    k = len(objectives)
    return zip(
        network.config.objective_ids(objectives),
        temperatures or [1.0] * k,
        distributions or [None] * k,
        strict=True,
    )


class _Prefix:
    """The tokens that the decoder has read before the next number of a sample.

    Training sequences have at most `Config.max_numbers` numbers. After that, a new sequence starts with only
    the given numbers, or with the first one if there are none.

    Args:
        network: encoder-decoder network.
        given: tokens of the given numbers, int64 [rows, t].
    """

    def __init__(self, network: Network, given: Tensor) -> None:
        self.max_numbers = network.config.max_numbers
        self.num_written = self.num_kept = given.shape[1] // (1 + network.config.scheme.length)
        self.caches = [KeyValueCache() for _ in network.decoder]
        self.unread = given
        self.kept = self.caches, self.unread

    def before(self, objective: int) -> tuple[list[KeyValueCache], Tensor]:
        """Return caches, and the tokens [rows, t] not yet in them; the last one is `objective`, its token."""
        if self.num_written == self.max_numbers:
            (self.caches, self.unread), self.num_written = self.kept, self.num_kept
        return [copy(c) for c in self.caches], F.pad(self.unread, (0, 1), value=objective)

    def append(self, caches: list[KeyValueCache], digits: Tensor) -> None:
        """Add a decoded number [rows, length]; its last digit is not yet in the caches."""
        self.caches, self.unread = caches, digits[:, -1:]
        self.num_written += 1
        if not self.num_kept:
            self.kept, self.num_kept = (self.caches, self.unread), 1


class _QuantileWalk:
    """A rule that chooses the child whose interval of cumulative probability contains a quantile level.

    The level is then rescaled to that interval.

    Args:
        level: quantile levels, float64 [rows, 1].
    """

    def __init__(self, level: Tensor) -> None:
        self.level = level

    def __call__(self, probabilities: Tensor) -> Tensor:
        """Return the index [rows, 1] of the chosen child, for probabilities of the children [rows, 10]."""
        edges = F.pad(probabilities.cumsum(1), (1, 0))
        # Scaled by the rounded sum, the level never lies beyond the last child of positive probability.
        target = self.level * edges[:, -1:]
        chosen = (edges[:, 1:] < target).sum(1, keepdim=True)
        low, high = edges.gather(1, chosen), edges.gather(1, chosen + 1)
        self.level = (target - low) / (high - low)
        return chosen


class _GivenWalk:
    """A rule that chooses given digits, and adds up the logarithms of their probabilities.

    Args:
        scheme: scheme of the numbers.
        digits: the digits, int64 [rows, length].
    """

    def __init__(self, scheme: NumberScheme, digits: Tensor) -> None:
        self.digits, self.position = digits, 0
        self.children, self.next_states = (t.to(digits.device) for t in tree_tensors(scheme))
        self.state = torch.zeros_like(digits[:, 0])
        self.log_probability = torch.zeros(len(digits), dtype=torch.float64, device=digits.device)

    def __call__(self, probabilities: Tensor) -> Tensor:
        """Return the index [rows, 1] of the next digit among the children [rows, 10]."""
        digit = self.digits[:, self.position]
        is_digit = self.children[self.position, self.state] == digit[:, None]
        chosen = is_digit.long().argmax(1, keepdim=True)
        self.log_probability += probabilities.gather(1, chosen)[:, 0].log()
        self.state = self.next_states[self.position, self.state, digit]
        self.position += 1
        return chosen


def _decode_number(
    network: Network,
    memory: Memory,
    unread: Tensor,
    caches: list[KeyValueCache],
    temperatures: Tensor,
    distributions: SurrogateDistributions,
    choose: Callable[[Tensor], Tensor],
) -> Tensor:
    """Decode one number for each row, digit by digit.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        unread: int64 [rows, t], tokens not yet in the caches; the last one is that of an objective.
        caches: keys and values of the earlier tokens, extended in place.
        temperatures: float64 [rows, 1], divisors of the logits.
        distributions: a surrogate distribution or None for each of the rows / B decodings of a text.
        choose: function of the probabilities of the children, float64 [rows, 10] in ascending order of the
            numbers below them, that returns the index of one child, int64 [rows, 1].

    Returns:
        Digits, int64 [rows, length]; the last one is not yet in the caches.
    """
    scheme = network.config.scheme
    children, next_states = (t.to(unread.device) for t in tree_tensors(scheme))
    state = torch.zeros(len(unread), dtype=torch.long, device=unread.device)
    digits: list[Tensor] = []
    for position in range(scheme.length):
        logits = network.decode(unread, memory, caches)[:, -1].double()
        valid = children[position, state]
        scores = (logits / temperatures).gather(1, valid.clamp(min=0))
        scores = scores.masked_fill(valid < 0, float("-inf"))
        # The last digit is finer than the resolution of a surrogate that the network refines.
        is_last = position == scheme.length - 1
        used = [d if d is not None and (d.is_alone or not is_last) else None for d in distributions]
        if any(used):
            prefix = torch.cat(digits, 1) if digits else valid[:, :0]
            edges = _tree(scheme).edges(prefix.cpu().numpy(), state.cpu().numpy())
            log_factors, weights, divisors = (t.to(scores.device) for t in _surrogate_factors(edges, used))
            logs = scores.log_softmax(1).masked_fill(valid < 0, 0.0)
            scores = ((weights * logs + log_factors) / divisors).masked_fill(valid < 0, float("-inf"))
        unread = valid.gather(1, choose(scores.softmax(1)))
        state = next_states[position, state, unread[:, 0]]
        digits.append(unread)
    return torch.cat(digits, 1)


def _surrogate_factors(
    edges: np.ndarray, distributions: SurrogateDistributions
) -> tuple[Tensor, Tensor, Tensor]:
    """The surrogates' log-probabilities of the children, weights of the network's, and temperatures.

    Args:
        edges: float64 [rows, 11], see `DigitTree.edges`.
        distributions: a surrogate distribution or None for each of the rows / B decodings of a text.

    Returns:
        float64 [rows, 10], [rows, 1] and [rows, 1].
    """
    n = len(distributions)
    by_text = edges.reshape(-1, n, edges.shape[1])
    probabilities = np.ones((len(by_text), n, edges.shape[1] - 1))
    for distribution in {id(d): d for d in distributions if d is not None}.values():
        columns = [k for k, d in enumerate(distributions) if d is distribution]
        probabilities[:, columns] = distribution.interval_probabilities(by_text[:, columns])
    weights = np.ones((len(by_text), n))
    for k, found in enumerate(distributions):
        if found is not None and found.is_alone:
            weights[:, k] = 0.0
        elif found is not None and found.network_weight is not None:
            weights[:, k] = found.network_weight
    divisors = np.array([d.temperature if d else 1.0 for d in distributions]) ** weights
    return (
        torch.from_numpy(np.log(probabilities.reshape(len(edges), -1))),
        torch.from_numpy(weights.reshape(-1, 1)),
        torch.from_numpy(divisors.reshape(-1, 1)),
    )


@lru_cache(maxsize=8)
def _tree(scheme: NumberScheme) -> DigitTree:
    """The digit tree of a scheme."""
    return DigitTree(scheme)


@lru_cache(maxsize=8)
def tree_tensors(scheme: NumberScheme) -> tuple[Tensor, Tensor]:
    """Return a scheme's `DigitTree.children` and `DigitTree.next_states` as tensors."""
    tree = _tree(scheme)
    return torch.from_numpy(tree.children), torch.from_numpy(tree.next_states)
