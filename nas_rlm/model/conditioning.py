"""Decoding of numbers of texts of which other numbers are given.

Given numbers are written before the queried ones, digit by digit, as in training. In training, accuracy is
the first number of a sequence, and all others are in random order. The distribution of accuracy for given
numbers therefore follows from Bayes' theorem: numbers that the network would write for the accuracy are
weighted by the probability with which it writes the given numbers after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model import decoding
from nas_rlm.model.decoding import SurrogateDistribution, SurrogateDistributions, tree_tensors
from nas_rlm.model.network import Memory, Network

FIRST = "accuracy"  # written before all other numbers in training
NUM_CANDIDATES = 32  # numbers of each text that are weighted

Given = Mapping[str, np.ndarray]


def quantile(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    quantiles: Sequence[float],
    given: Given,
    temperatures: Sequence[float],
    distributions: SurrogateDistributions,
) -> np.ndarray:
    """Return quantiles of each objective for given numbers; arguments as for `decoding.quantile`.

    Quantiles are exact, except those of accuracy, which are interpolated between `NUM_CANDIDATES` numbers.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objectives: K names.
        quantiles: Q levels between 0 and 1.
        given: at least one given number by name, float64 [B], none of which is an objective.
        temperatures: K divisors of the logits.
        distributions: K distributions of surrogates, for the same given numbers, or None.

    Returns:
        float64 [B, K, Q].
    """
    values = np.empty((memory.batch, len(objectives), len(quantiles)))
    others = [k for k, name in enumerate(objectives) if name != FIRST]
    if others:
        values[:, others] = decoding.quantile(
            network,
            memory,
            [objectives[k] for k in others],
            quantiles,
            [temperatures[k] for k in others],
            [distributions[k] for k in others],
            prefix_tokens(network, given),
        )
    if FIRST in objectives:
        k = list(objectives).index(FIRST)
        levels = np.tile(quantiles, (memory.batch, 1))
        values[:, k] = _first_number(network, memory, levels, given, temperatures[k], distributions[k])
    return values


def sample(
    network: Network,
    memory: Memory,
    objectives: Sequence[str],
    num_samples: int,
    generator: torch.Generator,
    given: Given,
    temperatures: Sequence[float],
    distributions: SurrogateDistributions,
) -> np.ndarray:
    """Draw samples for given numbers; arguments as for `decoding.sample` and `quantile`.

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objectives: K names, accuracy first.
        num_samples: number n of samples of each text.
        generator: random number generator on the network's device.
        given: as in `quantile`.
        temperatures: as in `quantile`.
        distributions: as in `quantile`.

    Returns:
        float64 [B, n, K].
    """
    shape = memory.batch, num_samples
    written = {name: np.repeat(values, num_samples) for name, values in given.items()}
    values = np.empty((*shape, len(objectives)))
    num_first = int(objectives[0] == FIRST)
    if num_first:
        device = memory.mask.device
        levels = torch.rand(shape, generator=generator, dtype=torch.float64, device=device).cpu().numpy()
        first = _first_number(network, memory, levels, given, temperatures[0], distributions[0])
        scheme = network.config.scheme
        written[FIRST] = scheme.decode_array(np.array([scheme.encode(v) for v in first.reshape(-1)]))
        values[:, :, 0] = written[FIRST].reshape(shape)
    if len(objectives) > num_first:
        values[:, :, num_first:] = decoding.sample(
            network,
            memory,
            objectives[num_first:],
            num_samples,
            generator,
            temperatures[num_first:],
            distributions[num_first:],
            prefix_tokens(network, written),
        )
    return values


def prefix_tokens(network: Network, given: Given) -> Tensor:
    """Return the decoder tokens of given numbers: accuracy first, the others as given, int64 [rows, t].

    A sequence has at most `Config.max_numbers` numbers, the last of which is queried: further given numbers
    are left out.

    Args:
        network: encoder-decoder network.
        given: given numbers by name, float64 [rows].
    """
    config = network.config
    names = sorted(given, key=lambda name: name != FIRST)[: config.max_numbers - 1]
    ids = config.objective_ids(names)
    columns = [
        [[token, *config.scheme.encode(v)] for v in given[n]] for token, n in zip(ids, names, strict=True)
    ]
    return torch.tensor(np.concatenate(columns, 1), device=network.kinds.device)


def _first_number(
    network: Network,
    memory: Memory,
    levels: np.ndarray,
    given: Given,
    temperature: float,
    distribution: SurrogateDistribution | None,
) -> np.ndarray:
    """Return quantiles of accuracy for given numbers, float64 [B, L].

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        levels: levels of each text, float64 [B, L].
        given: given numbers by name, float64 [B].
        temperature: divisor of the logits.
        distribution: distribution of a surrogate for the same given numbers, or None.
    """
    midpoints = [(i + 0.5) / NUM_CANDIDATES for i in range(NUM_CANDIDATES)]
    candidates = decoding.quantile(network, memory, [FIRST], midpoints, [temperature], [distribution])[:, 0]
    divisor = temperature * (distribution.temperature if distribution else 1.0)
    logs = log_likelihoods(network, memory, FIRST, candidates, given) / divisor
    weights = np.exp(logs - logs.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    cumulative = weights.cumsum(1) - weights / 2
    return np.array([np.interp(*row) for row in zip(levels, cumulative, candidates, strict=True)])


@torch.inference_mode()
def log_likelihoods(
    network: Network, memory: Memory, objective: str, candidates: np.ndarray, given: Given
) -> np.ndarray:
    """Return the log-probability of given numbers after each candidate for an objective, float64 [B, C].

    Args:
        network: encoder-decoder network.
        memory: B encoded texts.
        objective: name of the objective.
        candidates: numbers that may be written for it, float64 [B, C].
        given: given numbers by name, float64 [B].
    """
    num_candidates, scheme = candidates.shape[1], network.config.scheme
    children, next_states = (t.to(memory.mask.device) for t in tree_tensors(scheme))
    prefix = prefix_tokens(network, {objective: candidates.reshape(-1)})
    tokens = prefix_tokens(network, given).repeat_interleave(num_candidates, 0)
    logits = network.decode(torch.cat([prefix, tokens], 1), memory).double()[:, prefix.shape[1] :]
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for start in range(0, tokens.shape[1], 1 + scheme.length):
        state = torch.zeros_like(tokens[:, 0])
        for position in range(scheme.length):
            valid, digit = children[position, state], tokens[:, start + position + 1]
            scores = logits[:, start + position].gather(1, valid.clamp(min=0))
            scores = scores.masked_fill(valid < 0, float("-inf")).log_softmax(1)
            total += scores.masked_fill(valid != digit[:, None], 0.0).sum(1)
            state = next_states[position, state, digit]
    log_probabilities: np.ndarray = total.reshape(-1, num_candidates).cpu().numpy()
    return log_probabilities
