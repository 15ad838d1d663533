"""SNAS data: random networks, each trained for a few steps, as JSON records.

Source: appendix D.3 of the paper.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

import search_spaces
from nas_rlm.data.images import IMAGE_SIZE, Images
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.files import exclusive_lock, write_bytes
from nas_rlm.utils.json_lines import append_records, read_lines
from nas_rlm.utils.progress import progress_bar

CHANNEL_MEANS, CHANNEL_STDS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10
RECORD_START = b'{"uid": "snas-'
RECORD_KEYS = {"arch_str", "val_accuracy", "params", "flops", "uid", "seed"}
CROP_PADDING = 4  # pixels on each side of an image before a random crop
TEST_BATCH_SIZE = 500


@dataclass(frozen=True)
class Budget:
    """How each network is trained and tested.

    Args:
        steps: steps of SGD with Nesterov momentum, on a cosine schedule to zero.
        batch_size: images in each step.
        learning_rate: initial learning rate.
        test_images: number of test images that are used.
        precision: "bfloat16" (mixed precision) or "float32".
        device: "cpu" or "cuda".
        seed: seed of the architectures, the initial weights and the batches.

    Raises:
        ValueError: a value is out of range, or the device is not available.
    """

    steps: int = 32
    batch_size: int = 128
    learning_rate: float = 0.1
    test_images: int = 2000
    precision: str = "bfloat16"
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "test_images"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}, expected 0 to {2**32 - 1:,}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}, expected more than 0")
        if self.precision not in ("bfloat16", "float32"):
            raise ValueError(f"precision is {self.precision!r}, expected bfloat16 or float32")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is 'cuda', but torch finds no CUDA device: expected cpu")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device is {self.device!r}, expected cpu or cuda")


def generate(images: Images, out: Path, count: int, budget: Budget | None = None) -> tuple[int, int]:
    """Draw networks of the SNAS space, train each of them, and append its JSON record to a file.

    Network i depends only on the seed and i, so that an interrupted file can be continued.

    Examples:
        >>> from nas_rlm.data.images import read_images
        >>> images = read_images("cifar-10-batches-py")  # doctest: +SKIP
        >>> generate(images, Path("runs/snas.jsonl"), count=100)  # doctest: +SKIP

    Args:
        images: images for training and testing.
        out: the JSON lines file; its existing records are kept.
        count: number of records in the file at the end, with the existing ones.
        budget: settings of the training of each network; the default budget if None.

    Returns:
        The number of records in the file, and the number of those whose training failed or diverged.

    Raises:
        ValueError: the file has records of another budget, or lines that are not records.
    """
    budget = budget or Budget()
    space = search_spaces.get("snas")
    existing = _existing_records(out, budget)
    out.parent.mkdir(parents=True, exist_ok=True)
    failed = sum("error" in record for record in existing)
    with (
        exclusive_lock(out),
        progress_bar(total=count, initial=len(existing), desc="snas", unit="net") as bar,
    ):
        for i in range(len(existing), count):
            architecture = space.sample(np.random.default_rng([budget.seed, i]))
            record = {"uid": f"snas-{budget.seed}-{i}", **train_architecture(architecture, images, budget, i)}
            failed += "error" in record
            append_records(out, [record])
            bar.update()
    return max(count, len(existing)), failed


def train_architecture(architecture: Any, images: Images, budget: Budget, index: int = 0) -> dict[str, Any]:
    """Train and test one network, and return its record; an error is stored in the record.

    Args:
        architecture: architecture of the SNAS space.
        images: images for training and testing.
        budget: settings of the training.
        index: index of the network, which is part of the seed of its initial weights and batches.

    Returns:
        The fields that the paper lists: val_accuracy (percent), params, train_time_sec, steps_ran, precision,
        batch_size and arch_str; also flops and the other settings of the budget. A network that failed has
        val_accuracy None and the reason under error.
    """
    space = search_spaces.get("snas")
    start = time.perf_counter()
    accuracy, steps, error_message = None, 0, None
    try:
        torch.manual_seed(budget.seed * 1_000_003 + index)
        network = TrainableNetwork(space.to_onnx(architecture, weights=True))
        network = network.to(budget.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for steps, loss in enumerate(_train(network, images, budget, index), 1):
            if not math.isfinite(loss):
                raise ArithmeticError(f"the loss is {loss} at step {steps}")
        accuracy = _test_accuracy(network, images, budget)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        error_message = str(error).splitlines()[0]
    record = {
        "val_accuracy": accuracy,
        "params": space.params(architecture),
        "flops": space.flops(architecture),
        "train_time_sec": round(time.perf_counter() - start, 3),
        "steps_ran": steps,
        **asdict(budget),
        "arch_str": str(architecture),
    }
    return record if error_message is None else {**record, "error": error_message}


def read_rows(path: str | os.PathLike[str], omissions: Omissions) -> list[Row]:
    """Read the records of a file as rows of a table, without networks that failed.

    Args:
        path: a file that `generate` wrote.
        omissions: counts the records and numbers that are not valid.

    Raises:
        FileNotFoundError: there is no such file.
    """
    space, rows = search_spaces.get("snas"), []
    for i, record in enumerate(_read_records(Path(path), omissions)):
        with omissions.skip(f"record {i}"):
            if record["val_accuracy"] is None:
                continue
            name = str(record["uid"])
            name.encode()  # raises an error if a table cannot store it
            architecture = space.parse(record["arch_str"])
            values = {
                "accuracy": record["val_accuracy"],
                "params": record["params"],
                "flops": record["flops"],
            }
            targets = omissions.targets(values, name)
            rows.append(Row("snas", str(architecture), targets, identifier=name))
    return rows


class TrainableNetwork(nn.Module):
    """A torch module that trains exactly the network of an ONNX model with initialisers.

    Args:
        model: model with one input and one output.

    Raises:
        ValueError: the model has an operator that the SNAS space does not use.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = onnx.inliner.inline_local_functions(model).graph
        self.nodes = list(graph.node)
        for node in self.nodes:
            if node.op_type not in OPERATORS:
                raise ValueError(f"cannot train the operator {node.op_type}; expected {', '.join(OPERATORS)}")
        statistics = {i for n in self.nodes if n.op_type == "BatchNormalization" for i in n.input[3:]}
        weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
        self.keys = {name: f"w{i}" for i, name in enumerate(weights)}
        for name, tensor in weights.items():
            if name in statistics:
                self.register_buffer(self.keys[name], tensor)
            else:
                self.register_parameter(self.keys[name], nn.Parameter(tensor))
        self.input, self.output = graph.input[0].name, graph.output[0].name

    def forward(self, x: Tensor) -> Tensor:
        values = {self.input: x}
        for node in self.nodes:
            arguments = [
                getattr(self, self.keys[name]) if name in self.keys else values[name] for name in node.input
            ]
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type](self, arguments, attributes)
        return values[self.output]


def _conv(_: TrainableNetwork, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    pads, strides = attributes.get("pads", [0, 0]), attributes.get("strides", [1, 1])
    bias = values[2] if len(values) > 2 else None
    return F.conv2d(values[0], values[1], bias, strides, pads[:2], groups=attributes.get("group", 1))


def _batch_norm(network: TrainableNetwork, values: list[Tensor], _: dict[str, Any]) -> Tensor:
    x, scale, bias, mean, variance = values
    return F.batch_norm(x, mean, variance, scale, bias, training=network.training)


def _max_pool(_: TrainableNetwork, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    pads, strides = attributes.get("pads", [0, 0]), attributes.get("strides", [1, 1])
    return F.max_pool2d(values[0], attributes["kernel_shape"], strides, pads[:2])


def _average_pool(_: TrainableNetwork, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    pads, strides = attributes.get("pads", [0, 0]), attributes.get("strides", [1, 1])
    return F.avg_pool2d(values[0], attributes["kernel_shape"], strides, pads[:2], count_include_pad=False)


OPERATORS = {
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Relu": lambda _, values, __: F.relu(values[0]),
    "Add": lambda _, values, __: values[0] + values[1],
    "GlobalAveragePool": lambda _, values, __: values[0].mean((2, 3), keepdim=True),
    "Flatten": lambda _, values, __: values[0].flatten(1),
    "Gemm": lambda _, values, __: F.linear(values[0], values[1], values[2]),
}


def _train(network: TrainableNetwork, images: Images, budget: Budget, index: int) -> Iterator[float]:
    """Train in place, and yield the loss of each step."""
    rng = np.random.default_rng([budget.seed, index, 1])
    optimizer = torch.optim.SGD(
        network.parameters(), budget.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.steps)
    network.train()
    for _ in range(budget.steps):
        batch = rng.integers(len(images.train), size=budget.batch_size)
        x = _to_input(_augment(images.train[batch], rng), budget)
        y = torch.from_numpy(images.train_labels[batch]).to(budget.device)
        with torch.autocast(budget.device, torch.bfloat16, enabled=budget.precision == "bfloat16"):
            loss = F.cross_entropy(network(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


@torch.inference_mode()
def _test_accuracy(network: TrainableNetwork, images: Images, budget: Budget) -> float:
    """Return the percentage of the test images that are classified correctly."""
    network.eval()
    correct, total = 0, min(budget.test_images, len(images.test))
    for start in range(0, total, TEST_BATCH_SIZE):
        x = _to_input(images.test[start : min(start + TEST_BATCH_SIZE, total)], budget)
        with torch.autocast(budget.device, torch.bfloat16, enabled=budget.precision == "bfloat16"):
            predictions = network(x).argmax(1).cpu().numpy()
        correct += int((predictions == images.test_labels[start : start + len(predictions)]).sum())
    return 100.0 * correct / total


def _augment(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return images with a random crop of their padded version, and randomly mirrored."""
    padding = (CROP_PADDING, CROP_PADDING)
    padded = np.pad(images, ((0, 0), (0, 0), padding, padding))
    augmented = np.empty_like(images)
    offsets, mirrored = (
        rng.integers(2 * CROP_PADDING + 1, size=(len(images), 2)),
        rng.random(len(images)) < 0.5,
    )
    for i, ((top, left), flip) in enumerate(zip(offsets, mirrored, strict=True)):
        crop = padded[i, :, top : top + IMAGE_SIZE, left : left + IMAGE_SIZE]
        augmented[i] = crop[:, :, ::-1] if flip else crop
    return augmented


def _to_input(images: np.ndarray, budget: Budget) -> Tensor:
    """Return uint8 images as a normalised tensor on the budget's device."""
    x = torch.from_numpy(np.ascontiguousarray(images)).to(budget.device).float() / 255
    mean, std = (torch.tensor(v, device=budget.device).view(3, 1, 1) for v in (CHANNEL_MEANS, CHANNEL_STDS))
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last)


def _read_records(path: Path, omissions: Omissions | None = None) -> list[dict[str, Any]]:
    """Return the records of a file, without a truncated last one.

    Args:
        path: the file.
        omissions: counts the lines that are not records; by default they are errors.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no records at {str(path)!r}")
    records: list[dict[str, Any]] = []
    lines, incomplete = read_lines(path)
    for number, line in enumerate([*lines, incomplete] if incomplete else lines, 1):
        try:
            record = json.loads(line)
            if not set(record) >= RECORD_KEYS:
                raise ValueError
        except (ValueError, TypeError):
            is_truncated = line.startswith(RECORD_START) or RECORD_START.startswith(line)
            if number > len(lines) and is_truncated:
                break
            if omissions is not None:
                omissions.add(f"line {number}", "it is not a record of nas-rlm snas generate")
                continue
            raise ValueError(
                f"{str(path)!r} line {number} is not a record of nas-rlm snas generate: {line[:60]!r}"
            ) from None
        records.append(record)
    return records


def _existing_records(path: Path, budget: Budget) -> list[dict[str, Any]]:
    """Return the records of a file that has the same budget, after removing a truncated last line from it."""
    if not path.exists():
        return []
    records = _read_records(path)
    space = search_spaces.get("snas")
    for i, record in enumerate(records):
        for name, value in asdict(budget).items():
            if name != "device" and record.get(name) != value:
                raise ValueError(f"{str(path)!r} has records with {name} {record.get(name)!r}, not {value!r}")
        if record["arch_str"] != str(space.sample(np.random.default_rng([budget.seed, i]))):
            raise ValueError(f"{str(path)!r} line {i + 1} is not network {i} of seed {budget.seed}")
    lines, incomplete = read_lines(path)
    if incomplete:
        write_bytes(path, b"".join([*lines, incomplete + b"\n"][: len(records)]))
    return records
