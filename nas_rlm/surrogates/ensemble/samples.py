"""Samples from the joint distribution of objectives, by the network together with surrogates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nas_rlm.data.objective_kinds import is_of_training
from nas_rlm.model import conditioning, decoding
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE
from nas_rlm.model.network import Memory
from nas_rlm.surrogates.ensemble.distributions import TextDistributions, marked_as_alone
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel
from nas_rlm.surrogates.registry import novelties


def decoding_order(objectives: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return objectives in the order of training: accuracy first.

    Examples:
        >>> decoding_order(["latency/b", "latency/a", "accuracy"], ["latency/a", "accuracy", "latency/b"])
        ['accuracy', 'latency/a', 'latency/b']

    Args:
        objectives: names of objectives.
        known: objectives of the model, in its order.
    """
    return sorted(objectives, key=lambda name: (name != "accuracy", known.index(name)))


def draw_samples(
    model: TrainedModel,
    query: TextQuery,
    distributions: TextDistributions,
    num_samples: int,
    generator: torch.Generator,
    progress: bool,
) -> np.ndarray:
    """Return samples of objectives of texts, and how unlike the labelled networks the texts are.

    Args:
        model: the model.
        query: N texts and K objectives in the order of decoding; the same numbers are given for all texts.
        distributions: what surrogates predict for the texts.
        num_samples: S draws for each text.
        generator: generator of the draws.
        progress: show a progress bar.

    Returns:
        float64 [N, S + 1, K]: the samples, and last the novelties, see
        `nas_rlm.surrogates.registry.novelties`.

    Raises:
        ValueError: a text is empty.
    """
    objectives = query.objectives
    temperatures = model.network_temperatures(query.space, objectives)

    def decode(memory: Memory, batch: list[str]) -> np.ndarray:
        found = marked_as_alone(distributions.predict(batch, objectives), temperatures)
        arguments = model.network, memory, objectives, num_samples, generator
        if query.given:
            samples = conditioning.sample(*arguments, distributions.given(batch), temperatures, found)
        else:
            samples = decoding.sample(*arguments, temperatures, found)
        return np.concatenate([samples, novelties(found, len(batch))[:, None]], 1)

    is_learnt = all(map(is_of_training, objectives))  # latencies need the batch that the network has
    return model.decode_texts(
        query.texts,
        decode,
        (num_samples + 1, len(objectives)),
        DEFAULT_BATCH_SIZE,
        progress,
        in_parallel=False,
        input_batch=query.training_batch if is_learnt else None,
    )
