"""Latencies of a new device from those of known devices, for networks of any families.

Devices of one kind differ by little more than their speed: a network's latency on a known device, scaled, is
often closer than what few measured networks say of layers. For each of the known devices that are most
similar on the measured networks there is a line between the logarithms of both latencies. The lines and a
latency surrogate of the device itself are averaged. Their weights follow from how well each predicts every
measured network from the others, so that known devices that are unlike the new one count little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes, tensors_with_prefix
from nas_rlm.surrogates.graphs.evidence import pseudo_bma_weights
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.mixture import mixture, std_factor
from nas_rlm.surrogates.latency.samples import LeaveOneOutEvidence
from nas_rlm.surrogates.latency.surrogate import MAX_LOG_ERROR, TRUST, LatencySurrogate
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    LogTransform,
    PredictiveDistribution,
)

SurrogateT = TypeVar("SurrogateT")

MAX_DEVICES = 8
DEVICE_PRIOR = 0.1  # prior weight of all known devices together, beside 1 for the surrogate of the device
# Labels that count as evidence for weights. The labelled networks may be ones that the known devices were
# learnt from, where lines are better than for others, so that more labels are no more evidence.
MAX_EVIDENCE = 20
OFFSET_RIDGE, SLOPE_RIDGE = 1e-3, 10.0  # of a line whose slope is 1 without evidence
MIN_DEVICE_WEIGHT = 0.01  # of all known devices together, below which they are left out
MIN_STD = 0.01  # of the error of a line


@dataclass(frozen=True)
class DeviceTransfer:
    """A latency surrogate with few labels, and lines from the latencies of R known devices.

    Args:
        own: surrogate of the latency that knows its M labelled networks alone.
        devices: layer surrogates of the known devices, R in all.
        lines: offset and slope of the log latency over that of each known device, float64 [R, 2].
        left_out: log latency of each labelled network by the line through the others, float64 [R, M].
        usual_stds: median standard deviation of the labelled networks' log latencies on each known device,
            as its surrogate predicts it, float64 [R].
        temperatures: combined temperature, see `nas_rlm.surrogates.calibration`.
        network_temperatures: network temperature in combination with this surrogate.
    """

    own: LatencySurrogate
    devices: tuple[LayerSurrogate, ...]
    lines: np.ndarray
    left_out: np.ndarray
    usual_stds: np.ndarray
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, own: LatencySurrogate, counts: LayerCounts, known: Sequence[LayerSurrogate]
    ) -> DeviceTransfer | None:
        """Fit lines to labelled networks.

        Args:
            own: surrogate that is fitted to the M labelled networks.
            counts: their layers.
            known: layer surrogates of known devices.

        Returns:
            The surrogate, or None if no device is known, or if known devices count too little.
        """
        if not known:
            return None
        logs = np.log(own.values)
        names = [name for surrogate in known for name in surrogate.objectives]
        by_devices, stds = _predictions(known, counts)
        fitted = [_line(log_latencies, logs) for log_latencies in by_devices]
        errors = [np.square(_clipped(left_out - logs)).mean() for _, left_out in fitted]
        selected = {names[k] for k in np.argsort(errors, kind="stable")[:MAX_DEVICES]}
        kept = [k for k, name in enumerate(names) if name in selected]
        rest = [s.without([name for name in s.objectives if name not in selected]) for s in known]
        arrays = (
            np.array([fitted[k][0] for k in kept]),
            np.array([fitted[k][1] for k in kept]),
            np.median(stds[kept], 1),
        )
        lines, left_out, usual = (array.astype(np.float32).astype(float) for array in arrays)
        surrogate = cls(own, tuple(s for s in rest if s is not None), lines, left_out, usual)
        return surrogate if surrogate.weights[1:].sum() >= MIN_DEVICE_WEIGHT else None

    @property
    def objective(self) -> str:
        """The name of the latency."""
        return self.own.objective

    @property
    def objectives(self) -> tuple[str, ...]:
        """The name of the latency."""
        return self.own.objectives

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """All labels of the M networks by name, float64 [M], NaN where a network has none."""
        return self.own.labels

    @property
    def device_names(self) -> list[str]:
        """The latencies of the R known devices."""
        return [name for surrogate in self.devices for name in surrogate.objectives]

    def without(self, objectives: Sequence[str]) -> DeviceTransfer | None:
        """Return this surrogate, or None if its latency is one of the objectives."""
        return None if self.objective in objectives else self

    @cached_property
    def weights(self) -> np.ndarray:
        """Weight of the own surrogate, and of the line of each known device, float64 [1 + R]."""
        errors = _clipped(np.vstack([self.own.log_left_out, self.left_out]) - np.log(self.own.values))
        count, num_labels = len(self.lines), len(self.own.values)
        trust = TRUST * min(1, MAX_EVIDENCE / num_labels)
        return pseudo_bma_weights(errors, np.array([1.0, *[DEVICE_PRIOR / count] * count]), trust)

    @property
    def most_similar(self) -> tuple[str, float]:
        """The latency of the known device with the most weight, and the weight of all known devices."""
        of_devices = self.weights[1:]
        return self.device_names[int(of_devices.argmax())], float(of_devices.sum())

    @cached_property
    def evidence(self) -> LeaveOneOutEvidence:
        """How well each labelled network is predicted from the others."""
        return LeaveOneOutEvidence.of(np.exp(self._left_out[0]), self.own.values)

    @cached_property
    def _line_stds(self) -> np.ndarray:
        """Standard deviation of the errors of each line, float64 [R]."""
        errors = self.left_out - np.log(self.own.values)
        stds: np.ndarray = np.maximum(np.square(errors).mean(1) ** 0.5, MIN_STD)
        return stds

    @cached_property
    def _model_stds(self) -> np.ndarray:
        """Median standard deviation for a labelled network by the own surrogate and each line, [1 + R]."""
        return np.array([np.median(self.own.left_out_stds), *self._line_stds])

    @cached_property
    def _left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the logarithm of each label, from the others, each [M]."""
        means = np.vstack([self.own.log_left_out, self.left_out])
        of_lines = np.broadcast_to(self._line_stds[:, None], self.left_out.shape)
        stds = np.vstack([self.own.left_out_stds, of_lines])
        return mixture(self.weights, means, stds, self._model_stds)

    @cached_property
    def _std_factor(self) -> float:
        """Factor of the standard deviations, so that they fit the errors of labels that are left out."""
        mean, std = self._left_out
        return std_factor(np.log(self.own.values) - mean, std)

    def with_devices(self, features: Tensor, counts: LayerCounts) -> Tensor:
        """Return features of N networks and log latencies on the known devices, float64 [N, D + 2 R].

        Args:
            features: features of the networks for the own surrogate, float64 [N, D].
            counts: layers of the networks.
        """
        by_devices, stds = _predictions(self.devices, counts)
        return torch.cat([features, torch.from_numpy(np.vstack([by_devices, stds]).T)], 1)

    def own_features(self, features: Tensor) -> Tensor:
        """Return the features of the own surrogate, float64 [N, D], of the result of `with_devices`."""
        return features[:, : features.shape[1] - 2 * len(self.lines)]

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of the latency of N networks.

        Where the surrogate of a known device is less certain of a network than of the labelled ones, the
        device counts less, and the interval is wider.

        Args:
            features: result of `with_devices`, float64 [N, D + 2 R].
            objective: the name of the latency.
        """
        own = self.own.predict(self.own_features(features), objective)
        by_devices, stds = features[:, -2 * len(self.lines) :].numpy().T.reshape(2, len(self.lines), -1)
        lines = self.lines[:, :1] + self.lines[:, 1:] * by_devices
        further = np.sqrt(np.maximum(stds**2 - self.usual_stds[:, None] ** 2, 0))
        all_stds = np.vstack([own.std, np.hypot(self._line_stds[:, None], further)])
        means = np.vstack([own.mean, lines])
        mean, std = mixture(self.weights, means, all_stds, self._model_stds)
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(LogTransform(), mean, std * self._std_factor, temperature)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        parts: dict[str, LatencySurrogate | LayerSurrogate] = {"own": self.own}
        parts |= {f"devices{k}": surrogate for k, surrogate in enumerate(self.devices)}
        tensors = {
            f"{name}.{key}": tensor for name, part in parts.items() for key, tensor in part.tensors().items()
        }
        arrays = {"lines": self.lines, "left_out": self.left_out, "usual_stds": self.usual_stds}
        return tensors | {name: torch.from_numpy(array).float() for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON."""
        return {
            "kind": "device transfer",
            "own": self.own.description(),
            "devices": [surrogate.description() for surrogate in self.devices],
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> DeviceTransfer:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        own = LatencySurrogate.from_saved(tensors_with_prefix(tensors, "own."), description["own"])
        devices = tuple(
            LayerSurrogate.from_saved(tensors_with_prefix(tensors, f"devices{k}."), part)
            for k, part in enumerate(description["devices"])
        )
        r, m = sum(len(surrogate.objectives) for surrogate in devices), len(own.values)
        shapes: dict[str, tuple[int, ...]] = {"lines": (r, 2), "left_out": (r, m), "usual_stds": (r,)}
        check_shapes(tensors, shapes)
        if not r or not all(tensors[name].isfinite().all() for name in shapes):
            raise ValueError(f"the known devices of {own.objective} have numbers that are not finite")
        temperatures, network_temperatures = description["temperatures"], description["network_temperatures"]
        if not all(0 < t < np.inf for t in (*temperatures.values(), *network_temperatures.values())):
            raise ValueError("a temperature is not above 0")
        lines, left_out, usual_stds = (tensors[name].double().numpy() for name in shapes)
        return cls(own, devices, lines, left_out, usual_stds, dict(temperatures), dict(network_temperatures))


FewLabelLatency = LatencySurrogate | DeviceTransfer  # a surrogate of a latency with few labels


def without_known_devices(surrogate: SurrogateT) -> SurrogateT | LatencySurrogate:
    """Return the surrogate that a device transfer adds known devices to; any other surrogate as it is.

    Args:
        surrogate: a surrogate of any kind.
    """
    return surrogate.own if isinstance(surrogate, DeviceTransfer) else surrogate


def _predictions(surrogates: Sequence[LayerSurrogate], counts: LayerCounts) -> tuple[np.ndarray, np.ndarray]:
    """Return log latencies of N networks on R known devices and their standard deviations, each [R, N]."""
    means, stds, _ = torch.cat([s.transform_counts(counts) for s in surrogates], 1).permute(2, 1, 0).numpy()
    return means, stds


def _line(inputs: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offset and slope of a line, and each value of M predicted by the line through the others, [M].

    Args:
        inputs: log latencies on a known device, float64 [M].
        logs: log latencies, float64 [M].
    """
    mean = inputs.mean()
    columns = np.column_stack([np.ones(len(inputs)), inputs - mean])
    inverse = np.linalg.inv(columns.T @ columns + np.diag([OFFSET_RIDGE, SLOPE_RIDGE]))
    offset, slope = inverse @ columns.T @ (logs - inputs)
    leverages = np.einsum("mi,ij,mj->m", columns, inverse, columns)
    residuals = logs - inputs - columns @ (offset, slope)
    return np.array([offset - slope * mean, 1 + slope]), logs - residuals / (1 - leverages)


def _clipped(errors: np.ndarray) -> np.ndarray:
    """Return errors of logarithms that do not exceed `MAX_LOG_ERROR`."""
    return errors.clip(-MAX_LOG_ERROR, MAX_LOG_ERROR)
