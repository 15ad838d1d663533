"""SNAS data: random networks, each trained for a few steps, a record each. Anyone can make their own.

Source: appendix D.3 of the paper.
"""

from __future__ import annotations

import json
import math
import os
import time
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
from tqdm import tqdm

import search_spaces
from nas_rlm.data.images import SIDE, Images
from nas_rlm.data.tables import Row
from nas_rlm.files import alone, write_bytes

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's channels
START = b'{"uid": "snas-'  # of a record
MARGIN = 4  # pixels around an image before it is cropped again


@dataclass(frozen=True)
class Budget:
    """How each network is trained and judged.

    Args:
        steps: of SGD with momentum, on a cosine schedule to zero.
        batch_size: images a step.
        learning_rate: the highest.
        test_images: the first so many of the test images decide the accuracy.
        precision: "bfloat16" (mixed), or "float32".
        device: "cpu" or "cuda".
        seed: of the draws, the initial weights and the images.
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
            raise ValueError("device is 'cuda', and there is none: expected cpu")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device is {self.device!r}, expected cpu or cuda")


def generate(images: Images, out: Path, count: int, budget: Budget | None = None) -> tuple[int, int]:
    """Draw networks of the SNAS space, train each, and append a JSON record each to a file.

    Network i depends on the seed and i alone, so a file that was interrupted goes on where it ended.

    >>> from nas_rlm.data.images import read_images
    >>> generate(read_images("cifar-10-batches-py"), Path("runs/snas.jsonl"), count=100)

    Args:
        images: to train on and to judge by.
        out: the file; records that it holds are kept.
        count: of records that the file shall have.
        budget: of each network.

    Returns:
        How many records the file has, and how many of them say that training failed or diverged.

    Raises:
        ValueError: the file holds records of another budget, or something else.
    """
    budget = budget or Budget()
    space = search_spaces.get("snas")
    held = _held(out, budget)
    out.parent.mkdir(parents=True, exist_ok=True)
    failed = sum("error" in record for record in held)
    with (
        alone(out),
        open(out, "a") as file,
        tqdm(total=count, initial=len(held), desc="snas", unit="net") as bar,
    ):
        for i in range(len(held), count):
            architecture = space.sample(np.random.default_rng([budget.seed, i]))
            record = {"uid": f"snas-{budget.seed}-{i}", **trial(architecture, images, budget, i)}
            failed += "error" in record
            file.write(json.dumps(record) + "\n")
            file.flush()
            bar.update()
    return max(count, len(held)), failed


def trial(architecture: Any, images: Images, budget: Budget, index: int = 0) -> dict[str, Any]:
    """Train one network and say what came of it; an error becomes a part of the record.

    Returns:
        What the paper lists: val_accuracy (percent), params, train_time_sec, steps_ran, precision, batch_size
        and arch_str; also flops and the budget's other settings. A network that failed has val_accuracy None
        and the reason under error.
    """
    space = search_spaces.get("snas")
    start = time.perf_counter()
    accuracy, steps, error = None, 0, None
    try:
        torch.manual_seed(budget.seed * 1_000_003 + index)
        network = Trainable(space.to_onnx(architecture, weights=True))
        network = network.to(budget.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for steps, loss in enumerate(_train(network, images, budget, index), 1):
            if not math.isfinite(loss):
                raise ArithmeticError(f"the loss is {loss} at step {steps}")
        accuracy = _accuracy(network, images, budget)
    except (ArithmeticError, RuntimeError, ValueError) as problem:
        error = str(problem).splitlines()[0]
    record = {
        "val_accuracy": accuracy,
        "params": space.params(architecture),
        "flops": space.flops(architecture),
        "train_time_sec": round(time.perf_counter() - start, 3),
        "steps_ran": steps,
        **asdict(budget),
        "arch_str": str(architecture),
    }
    return record if error is None else {**record, "error": error}


def rows(path: str | os.PathLike[str]) -> list[Row]:
    """The records of a file as rows of a table; networks that failed are left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no record.
    """
    return [
        Row(
            "snas",
            record["arch_str"],
            {
                "accuracy": float(record["val_accuracy"]),
                "params": float(record["params"]),
                "flops": float(record["flops"]),
            },
            identifier=record["uid"],
        )
        for record in _records(Path(path))
        if record["val_accuracy"] is not None
    ]


class Trainable(nn.Module):
    """An ONNX network with initialisers as a module that trains: what is drawn is what is trained.

    Args:
        model: of one input and one output.

    Raises:
        ValueError: it has an operator other than those of the SNAS space.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = onnx.inliner.inline_local_functions(model).graph
        self.nodes = list(graph.node)
        for node in self.nodes:
            if node.op_type not in OPERATORS:
                raise ValueError(f"no way to train {node.op_type}; expected {', '.join(OPERATORS)}")
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


def _conv(_: Trainable, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    pads, strides = attributes.get("pads", [0, 0]), attributes.get("strides", [1, 1])
    bias = values[2] if len(values) > 2 else None
    return F.conv2d(values[0], values[1], bias, strides, pads[:2], groups=attributes.get("group", 1))


def _batch_norm(network: Trainable, values: list[Tensor], _: dict[str, Any]) -> Tensor:
    x, scale, bias, mean, variance = values
    return F.batch_norm(x, mean, variance, scale, bias, training=network.training)


def _max_pool(_: Trainable, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    pads, strides = attributes.get("pads", [0, 0]), attributes.get("strides", [1, 1])
    return F.max_pool2d(values[0], attributes["kernel_shape"], strides, pads[:2])


def _average_pool(_: Trainable, values: list[Tensor], attributes: dict[str, Any]) -> Tensor:
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


def _train(network: Trainable, images: Images, budget: Budget, index: int) -> Any:
    """Train in place, giving the loss of each step."""
    rng = np.random.default_rng([budget.seed, index, 1])
    optimizer = torch.optim.SGD(
        network.parameters(), budget.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.steps)
    network.train()
    for _ in range(budget.steps):
        chosen = rng.integers(len(images.train), size=budget.batch_size)
        x = _normal(_augmented(images.train[chosen], rng), budget)
        y = torch.from_numpy(images.train_labels[chosen]).to(budget.device)
        with torch.autocast(budget.device, torch.bfloat16, enabled=budget.precision == "bfloat16"):
            loss = F.cross_entropy(network(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


@torch.inference_mode()
def _accuracy(network: Trainable, images: Images, budget: Budget) -> float:
    """Percent of the test images that are recognised."""
    network.eval()
    right, total = 0, min(budget.test_images, len(images.test))
    for start in range(0, total, 500):
        x = _normal(images.test[start : min(start + 500, total)], budget)
        with torch.autocast(budget.device, torch.bfloat16, enabled=budget.precision == "bfloat16"):
            found = network(x).argmax(1).cpu().numpy()
        right += int((found == images.test_labels[start : start + len(found)]).sum())
    return 100.0 * right / total


def _augmented(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cropped from a margin and mirrored, each at random."""
    padded = np.pad(images, ((0, 0), (0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    found = np.empty_like(images)
    corners, mirrored = rng.integers(2 * MARGIN + 1, size=(len(images), 2)), rng.random(len(images)) < 0.5
    for i, ((top, left), flip) in enumerate(zip(corners, mirrored, strict=True)):
        crop = padded[i, :, top : top + SIDE, left : left + SIDE]
        found[i] = crop[:, :, ::-1] if flip else crop
    return found


def _normal(images: np.ndarray, budget: Budget) -> Tensor:
    x = torch.from_numpy(np.ascontiguousarray(images)).to(budget.device).float() / 255
    mean, deviation = (torch.tensor(v, device=budget.device).view(3, 1, 1) for v in (MEAN, DEVIATION))
    return ((x - mean) / deviation).contiguous(memory_format=torch.channels_last)


def _records(path: Path) -> list[dict[str, Any]]:
    """The records of a file; a last one that was cut off is left out."""
    if not path.is_file():
        raise FileNotFoundError(f"no records at {str(path)!r}")
    found: list[dict[str, Any]] = []
    *lines, last = path.read_bytes().split(b"\n")
    for number, line in enumerate([*lines, last] if last else lines, 1):
        try:
            record = json.loads(line)
            if not {"arch_str", "val_accuracy", "params", "flops", "uid", "seed"} <= set(record):
                raise ValueError
        except (ValueError, TypeError):
            if number > len(lines) and (line.startswith(START) or START.startswith(line)):
                break
            raise ValueError(
                f"{str(path)!r} line {number} is no record of nas-rlm snas generate: {line[:60]!r}"
            ) from None
        found.append(record)
    return found


def _held(path: Path, budget: Budget) -> list[dict[str, Any]]:
    """The records that a file holds already; what was cut off at its end is dropped."""
    if not path.exists():
        return []
    found = _records(path)
    space = search_spaces.get("snas")
    for i, record in enumerate(found):
        for name, value in asdict(budget).items():
            if name != "device" and record.get(name) != value:
                raise ValueError(
                    f"{str(path)!r} holds records with {name} {record.get(name)!r} where {value!r} is asked"
                )
        if record["arch_str"] != str(space.sample(np.random.default_rng([budget.seed, i]))):
            raise ValueError(f"{str(path)!r} line {i + 1} is not network {i} of seed {budget.seed}")
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        lines = content.split(b"\n")[: len(found)]
        write_bytes(path, b"".join(line + b"\n" for line in lines))
    return found
