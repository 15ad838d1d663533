"""Regressions of a latency's logarithm on the predictions of a single known device."""

from __future__ import annotations

import numpy as np

NUM_NEAREST = 3
RIDGE = 1e-3  # of the constant and the slope


class NearestDevices:
    """A line for each of the known devices that correlate best with the samples.

    Args:
        predictions: standardised predictions of S known devices for M samples, float64 [M, S].
        logs: logarithms of the measured latencies, float64 [M].

    Attributes:
        columns: the R known devices, the most similar one first.
        left_out: logarithm of each latency, predicted from the other samples, float64 [R, M].
    """

    def __init__(self, predictions: np.ndarray, logs: np.ndarray) -> None:
        centred = predictions - predictions.mean(0)
        norms = np.linalg.norm(centred, axis=0) * np.linalg.norm(logs - logs.mean())
        correlations = (logs - logs.mean()) @ centred / np.maximum(norms, np.finfo(float).tiny)
        self.columns = np.argsort(-correlations)[:NUM_NEAREST]
        self._lines, left_out = [], []
        for column in self.columns:
            inputs = _with_constant(predictions[:, column])
            inverse = np.linalg.inv(inputs.T @ inputs + RIDGE * np.eye(2))
            line = inverse @ inputs.T @ logs
            leverages = np.einsum("mi,ij,mj->m", inputs, inverse, inputs)
            self._lines.append(line)
            left_out.append(logs - (logs - inputs @ line) / (1 - leverages))
        self.left_out = np.array(left_out).reshape(len(self.columns), len(logs))

    def predict(self, predictions: np.ndarray) -> np.ndarray:
        """Return predicted logarithms of latencies, float64 [R, N].

        Args:
            predictions: predictions of the S known devices for N networks, float64 [N, S].
        """
        logs = [
            _with_constant(predictions[:, column]) @ line
            for column, line in zip(self.columns, self._lines, strict=True)
        ]
        return np.array(logs).reshape(len(self.columns), len(predictions))


def _with_constant(values: np.ndarray) -> np.ndarray:
    """Return values [M] and a constant as columns, [M, 2]."""
    return np.column_stack([np.ones(len(values)), values])
