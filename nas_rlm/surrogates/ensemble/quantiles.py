"""Quantiles of objectives, predicted by the network together with surrogates, or by surrogates alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from nas_rlm.data.objective_kinds import is_of_training
from nas_rlm.model import conditioning, decoding
from nas_rlm.model.batching import chunk_size
from nas_rlm.model.network import Memory
from nas_rlm.surrogates.ensemble.distributions import TextDistributions, with_novelties
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.utils.progress import progress_bar


def predict_quantiles(
    model: TrainedModel,
    query: TextQuery,
    distributions: TextDistributions,
    levels: Sequence[float],
    batch_size: int,
    progress: bool,
) -> np.ndarray:
    """Return quantiles of objectives of texts, and how unlike the labelled networks the texts are.

    Args:
        model: the model.
        query: N texts and K objectives; the same numbers are given for all texts.
        distributions: what surrogates predict for the texts.
        levels: Q quantile levels.
        batch_size: number of texts in a batch.
        progress: show a progress bar.

    Returns:
        float64 [N, K, Q + 1]: the quantiles, and last the novelties, see
        `nas_rlm.surrogates.registry.novelties`.

    Raises:
        ValueError: a text is empty.
    """
    objectives = query.objectives
    temperatures = model.network_temperatures(query.space, objectives)
    by_surrogate = [k for k, t in enumerate(temperatures) if t >= WITHOUT_NETWORK]
    by_network = [k for k in range(len(objectives)) if k not in by_surrogate]

    def decode(columns: Sequence[int], memory: Memory, batch: list[str]) -> np.ndarray:
        names = [objectives[k] for k in columns]
        found = distributions.predict(batch, names)
        network = [temperatures[k] for k in columns]
        arguments = model.network, memory, names, levels
        if query.given:
            values = conditioning.quantile(*arguments, distributions.given(batch), network, found)
        else:
            values = decoding.quantile(*arguments, network, found)
        return with_novelties(values, found)

    predictions = np.empty((len(query.texts), len(objectives), len(levels) + 1))
    learnt = [k for k in by_network if query.training_batch and is_of_training(objectives[k])]
    rest = [k for k in by_network if k not in learnt]
    for columns, read in [(learnt, query.training_batch), (rest, None)] if learnt else [(rest, None)]:
        if columns or not objectives:
            shape = len(columns), len(levels) + 1
            predictions[:, columns] = model.decode_texts(
                query.texts, partial(decode, columns), shape, batch_size, progress, input_batch=read
            )
    if by_surrogate:
        names_of_surrogates = [objectives[k] for k in by_surrogate]
        predictions[:, by_surrogate] = _quantiles_of_surrogates(
            model, query.texts, names_of_surrogates, levels, progress, distributions
        )
    return predictions


def _quantiles_of_surrogates(
    model: TrainedModel,
    texts: Sequence[str],
    objectives: Sequence[str],
    levels: Sequence[float],
    progress: bool,
    distributions: TextDistributions,
) -> np.ndarray:
    """Return quantiles and novelties of objectives that the network does not predict."""
    distinct = list(dict.fromkeys(texts))
    index = {text: i for i, text in enumerate(distinct)}
    size = chunk_size(len(distinct))
    chunks = [distinct[start : start + size] for start in range(0, len(distinct), size)]

    def predict_chunk(chunk: Sequence[str]) -> np.ndarray:
        found = distributions.predict(chunk, objectives)
        values = np.stack([d.quantiles(levels) for d in found if d is not None], 1)
        return with_novelties(values, found)

    results = [np.empty((0, len(objectives), len(levels) + 1))]
    with progress_bar(total=len(distinct), desc="predict", unit="net", disable=not progress) as bar:
        for result in model.map_in_processes(predict_chunk, chunks):
            results.append(result)
            bar.update(len(result))
    return np.concatenate(results)[[index[text] for text in texts]]
