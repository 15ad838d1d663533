"""Search spaces of networks for images of 32 x 32 pixels, and how one is trained and tested.

SmallSNAS has the smaller half of the SNAS space, and MobileNets has inverted residuals in three stages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.data.images import read_images
from search_spaces import SearchSpace, blocks
from search_spaces.graph import Graph, Value
from search_spaces.snas import SNAS

WIDTHS, EXPANSIONS, KERNELS, DEPTHS = (16, 24, 32, 48), (1, 3, 6), (3, 5), (1, 2, 3)
CHOICES, NUM_STAGES = (WIDTHS, EXPANSIONS, KERNELS, DEPTHS), 3
NUM_VALIDATION, TEST_BATCH_SIZE = 2000, 500
BATCH_SIZE, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 64, 0.05, 0.9, 5e-4


class SmallSNAS(SNAS):
    """SNAS with at most 24 channels in the stem, 3 stacks and 2 cells a stack."""

    name = "small_snas"

    def __init__(self) -> None:
        super().__init__()
        full_macro = self.macro
        self.macro = ((16, 24), (2, 3), (1, 2), *full_macro[3:])
        self.genes = (*map(len, self.macro), *self.genes[len(full_macro) :])
        self.size = self.size * 2 * 2 * 2 // int(np.prod([len(choices) for choices in full_macro[:3]]))


@dataclass(frozen=True)
class MobileNet:
    """An architecture: width, expansion, kernel size and depth of each stage."""

    stages: tuple[tuple[int, int, int, int], ...]

    def __str__(self) -> str:
        return " ".join(
            f"w{width}e{expansion}k{kernel}d{depth}" for width, expansion, kernel, depth in self.stages
        )


class MobileNets(SearchSpace[MobileNet]):
    """Networks of inverted residuals, whose stages halve the image."""

    name, input_shape = "mobilenets", (3, 32, 32)
    genes = tuple(len(values) for values in CHOICES) * NUM_STAGES
    size = int(np.prod(genes))

    def decode(self, genome: np.ndarray) -> MobileNet:
        genome = self.validate_genome(genome)
        values = [c[gene] for c, gene in zip(CHOICES * NUM_STAGES, genome, strict=True)]
        return MobileNet(tuple(zip(*(values[i :: len(CHOICES)] for i in range(len(CHOICES))), strict=True)))

    def encode(self, architecture: MobileNet) -> np.ndarray:
        stages = architecture.stages
        return np.array([c.index(v) for stage in stages for c, v in zip(CHOICES, stage, strict=True)])

    def parse(self, text: str) -> MobileNet:
        stages = tuple(tuple(map(int, s)) for s in re.findall(r"w(\d+)e(\d)k(\d)d(\d)", text))
        is_valid = all(v in c for stage in stages for c, v in zip(CHOICES, stage, strict=True))
        if len(stages) != NUM_STAGES or not is_valid or str(MobileNet(stages)) != text:
            raise ValueError(f"{text!r} is not like w16e3k3d1 w24e6k5d2 w32e3k3d1")
        return MobileNet(stages)

    def write(self, graph: Graph, architecture: MobileNet) -> Value:
        x = blocks.conv_norm(graph, graph.input, 16, 3)
        for width, expansion, kernel, depth in architecture.stages:
            for layer in range(depth):
                x = blocks.inverted_residual(graph, x, width, kernel, 1 if layer else 2, expansion)
        return blocks.classifier(graph, x, 10)


SPACES = {"snas": SmallSNAS, "mobilenets": MobileNets}


@dataclass(frozen=True)
class Data:
    """Normalised images with labels.

    Args:
        train: training images [N, 3, 32, 32] and their classes [N].
        validation: those that decide in a search.
        test: those that nothing but the final networks see.
    """

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_data(directory: str | Path) -> Data:
    """Read CIFAR-10; the last `NUM_VALIDATION` training images are for validation."""
    images = read_images(directory)
    x, y = _normalised(images.train), torch.from_numpy(images.train_labels)
    split = len(x) - min(NUM_VALIDATION, len(x) // 5)
    test = _normalised(images.test), torch.from_numpy(images.test_labels)
    return Data((x[:split], y[:split]), (x[split:], y[split:]), test)


def _normalised(images: np.ndarray) -> Tensor:
    return ((torch.from_numpy(images).float() - 121) / 64).contiguous(memory_format=torch.channels_last)


def train(network: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    """Train a network with a cosine schedule to zero, on random flips of images.

    Args:
        network: the network, trained in place.
        images: [N, 3, 32, 32].
        labels: classes [N].
        epochs: number of epochs.
    """
    network.train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        network.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
    )
    batches_per_epoch = len(images) // BATCH_SIZE
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches_per_epoch)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(BATCH_SIZE)[:batches_per_epoch]:
            batch = images[rows].flip(3) if torch.rand(()) < 0.5 else images[rows]
            optimizer.zero_grad()
            F.cross_entropy(network(batch), labels[rows]).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the accuracy of a network in percent."""
    network.eval()
    parts = zip(images.split(TEST_BATCH_SIZE), labels.split(TEST_BATCH_SIZE), strict=True)
    correct = sum(int((network(x).argmax(1) == y).sum()) for x, y in parts)
    return 100 * correct / len(labels)
