"""Descriptions of executed layers, and a network that corrects the latencies of single layers.

The latency of a layer is not a linear function of its costs: it depends on how well its channels fill vector
units, on its kernel and on its shape. The network learns the factor between both from latencies of whole
networks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from nas_rlm.graph.executed_layers import ALL, TERMS, Layer, layers_of
from nas_rlm.surrogates.latency.features import CLASSES, class_of
from nas_rlm.text.parser import parse_network
from nas_rlm.utils.progress import progress_bar

WIDTH = 64  # of the hidden layers
VECTOR_SIZES = (4, 8, 16, 32)  # that the number of channels is rounded up to
MAX_LOG_FACTOR = 1.5
CLIPPED_DESCRIPTION = 4.0  # standard deviations
NUM_EPOCHS, MIN_STEPS, BATCH_SIZE = 30, 2000, 64
LEARNING_RATE, WEIGHT_DECAY, MAX_GRADIENT = 3e-3, 1e-4, 1.0
ROBUST_ERROR = 0.05  # above which an error of a logarithm counts linearly
SMALLEST = 1e-6


@dataclass(frozen=True)
class LayerCounts:
    """How often each of N networks executes each of U different layers.

    Args:
        layers: the U layers.
        indices: indices of the layers of all networks, one network after the other, int64 [R].
        counts: how often each is executed, float32 [R].
        ends: for each network, the end of its part of `indices`, int64 [N].
    """

    layers: list[Layer]
    indices: np.ndarray
    counts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> LayerCounts:
        """Return the layers of the networks of N texts.

        Args:
            texts: texts of the networks.
        """
        index_of: dict[Layer, int] = {}
        indices: list[int] = []
        counts: list[int] = []
        ends: list[int] = []
        for text in progress_bar(texts, "executed layers", unit="net", delay=2):
            for layer, count in layers_of(parse_network(text), ALL).items():
                indices.append(index_of.setdefault(layer, len(index_of)))
                counts.append(count)
            ends.append(len(indices))
        return cls(list(index_of), np.array(indices, int), np.array(counts, np.float32), np.array(ends, int))

    def select(self, networks: np.ndarray) -> LayerCounts:
        """Return the counts of some networks; all layers are kept.

        Args:
            networks: indices of B networks, int64 [B].
        """
        starts = np.concatenate([[0], self.ends])[networks]
        _, indices, counts = self.rows_of(networks)
        ends = np.cumsum(self.ends[networks] - starts)
        return LayerCounts(self.layers, indices.numpy(), counts.numpy(), ends)

    def rows_of(self, networks: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return for B networks the position of each entry's network, its layer and its count, each [R].

        Args:
            networks: indices of the networks, int64 [B].
        """
        starts = np.concatenate([[0], self.ends])[networks]
        lengths = self.ends[networks] - starts
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = np.repeat(starts, lengths) + offsets
        position = torch.from_numpy(np.repeat(np.arange(len(networks)), lengths))
        return position, torch.from_numpy(self.indices[rows]), torch.from_numpy(self.counts[rows])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values of layers over each network, float64 [N, K].

        Args:
            values: K values of each layer, float64 [U, K].
        """
        from scipy.sparse import csr_array  # slow to import

        shape = len(self.ends), len(self.layers)
        bounds = np.concatenate([[0], self.ends])
        sums: np.ndarray = csr_array((self.counts.astype(float), self.indices, bounds), shape) @ values
        return sums


def describe(layers: Sequence[Layer]) -> np.ndarray:
    """Return descriptions of U layers, float64 [U, F].

    They are logarithms of sizes, costs and the stride, the factors by which channels increase if they are
    rounded up to multiples of `VECTOR_SIZES`, and 1 for the class of the layer.

    Args:
        layers: at least one layer.
    """
    rows = []
    for layer in layers:
        sizes = layer.side, layer.in_channels, layer.out_channels, layer.kernel, layer.groups - 1
        costs = layer.inputs, layer.outputs, layer.macs, layer.params
        channels = layer.in_channels, layer.out_channels
        rounding = [-(-c // size) * size / c if c else 1.0 for c in channels for size in VECTOR_SIZES]
        own_class = class_of(layer.type, ALL)
        classes = [float(own_class == name) for name in CLASSES]
        rows.append([*np.log1p([*sizes, *costs]), _log_stride(layer), *rounding, *classes])
    return np.array(rows, float)


def terms_by_type(layers: Sequence[Layer], types: Sequence[str]) -> np.ndarray:
    """Return the terms of U layers at the place of their type, or of their class, float64 [U, T * 6].

    Args:
        layers: the layers.
        types: T layer types, and classes in brackets if a layer is of another type.
    """
    index_of = {name: k for k, name in enumerate(types)}
    terms = np.zeros((len(layers), len(types), len(TERMS)))
    for row, layer in zip(terms, layers, strict=True):
        known = layer.type if layer.type in index_of else f"[{class_of(layer.type, ALL)}]"
        row[index_of[known]] = layer.terms
    return terms.reshape(len(layers), -1)


def _log_stride(layer: Layer) -> float:
    """Return the binary logarithm of the stride of a convolution over images, 0 for other layers.

    It is half the logarithm of the ratio of input and output positions, for any batch and form of the image.
    """
    sizes = layer.kernel, layer.in_channels, layer.out_channels, layer.inputs, layer.outputs
    if not all(sizes):
        return 0.0
    return float(np.log2(layer.inputs / layer.in_channels * layer.out_channels / layer.outputs) / 2)


class LayerNetwork(nn.Module):
    """A network from descriptions of layers to logarithms of factors of their latencies.

    Args:
        mean: means of the F descriptions, float32 [F].
        std: their standard deviations, float32 [F].
        num_devices: number K of devices.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, num_devices: int) -> None:
        super().__init__()
        self.register_buffer("mean", mean.clone())  # networks do not share memory
        self.register_buffer("std", std.clone())
        self.body = nn.Sequential(nn.Linear(len(mean), WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.head = nn.Linear(WIDTH, num_devices)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, descriptions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logarithms of factors and hidden values of U layers.

        Args:
            descriptions: float32 [U, F].

        Returns:
            float32 [U, K] and float32 [U, WIDTH].
        """
        scaled = ((descriptions - self.mean) / self.std).clamp(-CLIPPED_DESCRIPTION, CLIPPED_DESCRIPTION)
        hidden = self.body(scaled)
        return MAX_LOG_FACTOR * torch.tanh(self.head(hidden) / MAX_LOG_FACTOR), hidden


@torch.enable_grad()
def fit_layer_network(
    counts: LayerCounts,
    networks: np.ndarray,
    linear: np.ndarray,
    constants: np.ndarray,
    latencies: np.ndarray,
    num_epochs: int = NUM_EPOCHS,
) -> LayerNetwork:
    """Train a network on the latencies of whole networks.

    Args:
        counts: layers of N networks.
        networks: indices of the M networks to train on, int64 [M].
        linear: latencies of the U layers by their costs on K devices, float64 [U, K].
        constants: latencies that do not depend on the layers, float64 [K].
        latencies: measured latencies, float64 [N, K]; NaN where a network is not measured.
        num_epochs: passes over the networks; there are at least `MIN_STEPS` steps.

    Returns:
        The network in evaluation mode. Torch's global random generator is not used.
    """
    descriptions = describe(counts.layers)
    used = descriptions[np.unique(counts.rows_of(networks)[1].numpy())]
    mean, std = (torch.from_numpy(v).float() for v in (used.mean(0), used.std(0) + 1e-3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = LayerNetwork(mean, std, latencies.shape[1])
    steps_per_epoch = -(-len(networks) // BATCH_SIZE)
    num_epochs = max(num_epochs, -(-MIN_STEPS // steps_per_epoch))
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=num_epochs * steps_per_epoch
    )
    inputs, base = torch.from_numpy(descriptions).float(), torch.from_numpy(linear).float()
    offset, rng = torch.from_numpy(constants).float(), np.random.default_rng(0)
    is_measured = torch.from_numpy(np.isfinite(latencies))
    targets = torch.from_numpy(np.log(np.where(np.isfinite(latencies), latencies, 1.0))).float()
    for _ in progress_bar(range(num_epochs), "train on layers", unit="epoch", delay=2):
        for batch in np.array_split(rng.permutation(networks), steps_per_epoch):
            position, layer, count = counts.rows_of(batch)
            unique, inverse = layer.unique(return_inverse=True)
            factors, _ = network(inputs[unique])
            own = (base[unique] * factors.exp())[inverse] * count[:, None]
            total = offset + torch.zeros(len(batch), len(offset)).index_add(0, position, own)
            errors = total.clamp(min=SMALLEST).log() - targets[batch]
            losses = nn.functional.huber_loss(
                errors, torch.zeros_like(errors), delta=ROBUST_ERROR, reduction="none"
            )
            num_measured = is_measured[batch].sum().clamp(min=1)
            loss = (losses * is_measured[batch]).sum() / num_measured / ROBUST_ERROR
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
    return network.eval()
