"""Log-probabilities of given numbers, by the network together with surrogates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas_rlm.model import decoding
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE
from nas_rlm.model.network import Memory
from nas_rlm.surrogates.ensemble.distributions import TextDistributions, marked_as_alone
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel
from nas_rlm.utils.validation import listed, shown
from search_spaces.wording import counted


def checked_numbers(
    values: Sequence[float] | float, count: int, objective: str, objectives: Sequence[str]
) -> np.ndarray:
    """Return a number for each of N texts, float64 [N].

    Args:
        values: N numbers, or one for all.
        count: number N of texts.
        objective: the objective whose values they are, for the error message.
        objectives: those of the model.

    Raises:
        ValueError: a value is no number, or there are not as many as texts.
    """
    try:
        numbers = np.broadcast_to(np.array(values, dtype=float), count)
    except (TypeError, ValueError):
        numbers = np.full(max(count, 1), np.nan)
    if np.isnan(numbers).any():
        others = [name for name in objectives if name != objective]
        choice = f", a value of {objective!r}; objective= chooses another: {listed(others)}" if others else ""
        raise ValueError(
            f"values is {shown(values)}: expected a number for each of {counted(count, 'text')}{choice}"
        )
    return numbers


def log_probabilities(
    model: TrainedModel,
    texts: Sequence[str],
    numbers: np.ndarray,
    objective: str,
    distributions: TextDistributions,
) -> np.ndarray:
    """Return the log-probability with which a model writes a number for each text, float64 [N].

    Args:
        model: the model.
        texts: N texts.
        numbers: a number for each, float64 [N].
        objective: name of the objective.
        distributions: what surrogates predict for the texts.
    """
    numbers_of: dict[str, list[float]] = {}
    columns = []
    for text, number in zip(texts, numbers, strict=True):
        columns.append(len(numbers_of.setdefault(text, [])))
        numbers_of[text].append(float(number))
    width = max(map(len, numbers_of.values()), default=0)
    (temperature,) = model.network_temperatures(distributions.query.space, [objective])

    def decode(memory: Memory, batch: list[str]) -> np.ndarray:
        padded = np.array([numbers_of[t] + [np.nan] * (width - len(numbers_of[t])) for t in batch])
        (found,) = marked_as_alone(distributions.predict(batch, [objective]), [temperature])
        return decoding.log_probability(model.network, memory, objective, padded, temperature, found)

    logs = model.decode_texts(texts, decode, (width,), DEFAULT_BATCH_SIZE, progress=False)
    return logs[np.arange(len(texts)), columns]
