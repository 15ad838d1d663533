"""Benchmark files as their authors publish them, read into rows of the public schema."""

from __future__ import annotations

import base64
import bz2
import json
import os
import pickle
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tqdm import tqdm

from nas_rlm.data import snas, tables
from nas_rlm.data.importers import codenet
from nas_rlm.data.tables import Row
from nas_rlm.utils.validation import hint
from search_spaces import get

MOST_BYTES = 16 * 1024**3
MOST_OF_A_RECORD = 1024 * 1024
DATASETS = {
    "accuracy": "cifar10",
    "accuracy/cifar100": "cifar100",
    "accuracy/imagenet16_120": "ImageNet16-120",
}
EPOCHS = 108  # of NAS-Bench-101's final accuracies; the others are known by their number of epochs


@dataclass(frozen=True)
class Format:
    """How a kind of file is read.

    Args:
        read: from the path to rows.
        what: the file's usual name.
        is_pickle: reading it can run whatever code the file holds.
    """

    read: Callable[[Path], list[Row]]
    what: str
    is_pickle: bool = False


def read_official(name: str, path: str | os.PathLike[str], allow_pickle: bool = False) -> list[Row]:
    """Rows of a benchmark's own file.

    >>> rows = read_official("nds", "nds_data/DARTS.json")

    Args:
        name: one of `FORMATS`.
        path: the file, or the folder for `help` and `codenet`.
        allow_pickle: read formats that are Python pickles, which can run code: only for files you trust.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: an unknown format, a pickle without `allow_pickle`, or a file that is not of the format.
    """
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}; {hint(name, FORMATS)}")
    known, source = FORMATS[name], Path(path)
    if not source.exists():
        raise FileNotFoundError(f"nothing at {str(path)!r}: expected {known.what}")
    if source.is_file() and source.stat().st_size > MOST_BYTES:
        raise ValueError(f"{str(path)!r} has more than the limit of {MOST_BYTES:,} bytes")
    if known.is_pickle:
        if not allow_pickle:
            raise ValueError(
                f"{name} files are Python pickles, which can run any code when they are read:"
                f" --allow-pickle reads {str(path)!r} if you trust where it came from"
            )
        warnings.warn(f"{str(path)!r} is read as a pickle: it can run any code", stacklevel=2)
    try:
        rows = known.read(source)
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{str(path)!r} is not {known.what}: {reason}") from None
    if not rows:
        raise ValueError(f"{str(path)!r} holds nothing that was measured: expected {known.what}")
    return rows


_DAMAGE = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, OSError),
    *(RecursionError, RuntimeError, TypeError, ValueError, DecodeError, pickle.UnpicklingError, struct.error),
)


def _nasbench201(path: Path) -> list[Row]:
    """The .pth file of the nas-bench-201 package: 200 epochs, mean over seeds."""
    return _trained(torch.load(path, map_location="cpu", weights_only=False), "nasbench201", "full", "less")


def _nats_size(path: Path) -> list[Row]:
    """The .pickle.pbz2 file of NATS-Bench's size space: 90 epochs, mean over seeds."""
    with bz2.open(path) as file:
        content = pickle.load(file)
        file.read()  # to the end, so that a file that is cut off is noticed
    return _trained(content, "nats_size", "90", "12")


def _trained(content: dict[str, Any], space_name: str, final: str, early: str) -> list[Row]:
    """What both benchmarks of Dong et al. hold: results by architecture, epochs, dataset and seed."""
    try:
        from nas_201_api.api_utils import ArchResults
    except ImportError:
        raise ValueError(
            "reading it needs the package nas-bench-201: pip install 'nas-rlm[official]'"
        ) from None
    space, found = get(space_name), []
    for index, info in tqdm(sorted(content["arch2infos"].items()), space_name, unit="net"):
        name = content["meta_archs"][index]
        results = ArchResults.create_from_state_dict(info[final])
        targets = {}
        for objective, dataset in DATASETS.items():
            if dataset in results.get_dataset_names():
                split = "ori-test" if dataset == "cifar10" else "x-test"
                targets[objective] = float(results.get_metrics(dataset, split)["accuracy"])
        sooner = ArchResults.create_from_state_dict(info[early])
        if "cifar10" in sooner.get_dataset_names():
            targets["accuracy/cifar10_12ep"] = float(sooner.get_metrics("cifar10", "ori-test")["accuracy"])
        architecture = space.parse(str(name))
        targets |= {"params": float(space.params(architecture)), "flops": float(space.flops(architecture))}
        found.append(Row(space_name, str(architecture), targets, identifier=f"{space_name}_{index}"))
    return found


def _nasbench101(path: Path) -> list[Row]:
    """The tfrecord: accuracies on validation after 108 epochs and fewer, the best of the runs."""
    space = get("nasbench101")
    runs: dict[str, dict[str, list[float]]] = {}
    shapes: dict[str, tuple[str, float]] = {}
    for record in tqdm(_tf_records(path), "nasbench101", unit="run"):
        key, epochs, matrix, operators, metrics = json.loads(record)
        size = len(operators.split(","))
        if len(matrix) != size * size:
            raise ValueError(f"the matrix of {key} has {len(matrix)} entries for {size} operators")
        message = _metrics()
        message.ParseFromString(base64.b64decode(metrics, validate=True))
        final = message.evaluation_data[-1]
        name = "accuracy" if epochs == EPOCHS else f"accuracy/cifar10_{epochs}ep"
        runs.setdefault(key, {}).setdefault(name, []).append(100.0 * final.validation_accuracy)
        notation = json.dumps({"adjacency": matrix, "ops": operators.split(",")})
        shapes.setdefault(key, (notation, float(message.trainable_parameters)))
    return [
        Row(
            "nasbench101",
            str(space.parse(notation)),
            {**{name: max(values) for name, values in runs[key].items()}, "params": params},
            identifier=key,
        )
        for key, (notation, params) in shapes.items()
    ]


def _tf_records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file: length, its checksum, content, its checksum."""
    with open(path, "rb") as file:
        while head := file.read(12):
            if len(head) < 12:
                raise ValueError("it is cut off within a record")
            (length,) = struct.unpack("<Q", head[:8])
            if _masked_crc(head[:8]) != struct.unpack("<I", head[8:])[0] or length > MOST_OF_A_RECORD:
                raise ValueError("a record's length is damaged")
            content = file.read(length + 4)
            if len(content) < length + 4:
                raise ValueError("it is cut off within a record")
            if _masked_crc(content[:-4]) != struct.unpack("<I", content[-4:])[0]:
                raise ValueError("a record is damaged")
            yield content[:-4]


def _masked_crc(content: bytes) -> int:
    """TFRecord's checksum: CRC-32C, rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def _metrics() -> Any:
    """An empty message of NAS-Bench-101's metrics, of the fields that matter here."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName("nasbench.ModelMetrics"))()


def _metrics_pool() -> descriptor_pool.DescriptorPool:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="nasbench", syntax="proto2")
    point = file.message_type.add(name="EvaluationData")
    for number, name in enumerate(
        ("current_epoch", "training_time", "train_accuracy", "validation_accuracy", "test_accuracy"), 1
    ):
        point.field.add(name=name, number=number, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
    metrics = file.message_type.add(name="ModelMetrics")
    metrics.field.add(
        name="evaluation_data",
        number=1,
        type=kinds.TYPE_MESSAGE,
        label=kinds.LABEL_REPEATED,
        type_name=".nasbench.EvaluationData",
    )
    metrics.field.add(
        name="trainable_parameters", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _metrics_pool()


def _hw_nas_bench(path: Path) -> list[Row]:
    """The pickle of HW-NAS-Bench: latencies of NAS-Bench-201 cells on CIFAR-10 on six devices."""
    with open(path, "rb") as file:
        content = pickle.load(file)["nasbench201"]["cifar10"]
    columns = {k.removesuffix("_latency"): v for k, v in content.items() if k.endswith("_latency")}
    found = []
    for i, config in enumerate(content["config"]):
        targets = {f"latency/{device}": float(values[i]) for device, values in columns.items()}
        architecture = get("nasbench201").parse(config["arch_str"])
        found.append(Row("nasbench201", str(architecture), targets, identifier=f"NB201_{i}"))
    return found


def _help(path: Path) -> list[Row]:
    """A folder of HELP: latency/DEVICE.pt, and architectures of NAS-Bench-201, FBNet or Once-for-All."""
    if (path / "str_arch2idx.pt").is_file():
        space, index = get("nasbench201"), _tensors(path / "str_arch2idx.pt")
        notations = sorted(index, key=index.__getitem__)
    elif (path / "metainfo.pt").is_file():
        space = get("fbnet")
        notations = ["_".join(map(str, a["op_idx_list"])) for a in _tensors(path / "metainfo.pt")["arch"]]
    elif (path / "ofa_archs.pt").is_file():
        space = get("ofa_mbv3")
        notations = [_once_for_all(a) for a in _tensors(path / "ofa_archs.pt")["arch"]]
    else:
        raise ValueError("it has neither str_arch2idx.pt nor metainfo.pt nor ofa_archs.pt")
    devices = {p.stem: _tensors(p) for p in sorted((path / "latency").glob("*.pt"))}
    if not devices:
        raise ValueError("it has no latency/DEVICE.pt")
    for device, values in devices.items():
        if len(values) != len(notations):
            raise ValueError(
                f"latency/{device}.pt has {len(values)} values for {len(notations)} architectures"
            )
    return [
        Row(
            space.name,
            str(space.parse(notation)),
            {f"latency/{device}": float(values[i]) for device, values in devices.items()},
            identifier=f"{space.name}_{i}",
        )
        for i, notation in enumerate(notations)
    ]


def _tensors(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _once_for_all(a: dict[str, Any]) -> str:
    resolution = a["r"][0] if isinstance(a["r"], list | tuple) else a["r"]
    return json.dumps({**{k: list(map(int, a[k])) for k in ("ks", "e", "d")}, "r": int(resolution)})


def _nds(path: Path) -> list[Row]:
    """A JSON of the nds repository, named for its design space: trained networks and their errors."""
    content = json.loads(path.read_text("utf-8"))
    entries = content if isinstance(content, list) else [e for part in content.values() for e in part]
    found = []
    for i, entry in enumerate(entries):
        space = _nds_space(path.stem, entry["net"])
        targets = {"accuracy": 100.0 - float(np.atleast_1d(entry["test_ep_top1"])[-1])}
        for name in ("params", "flops"):
            if entry.get(name) is not None:
                targets[name] = float(entry[name])
        found.append(
            Row(
                space.name, str(space.parse(json.dumps(entry["net"]))), targets, identifier=f"{path.stem}_{i}"
            )
        )
    return found


def _nds_space(stem: str, net: dict[str, Any]) -> Any:
    """The design space of a file: by its blocks where they tell, else by its name, such as DARTS_in."""
    blocks = {"vanilla_block": "nds_vanilla", "res_basic_block": "nds_resnet"}
    if net.get("block_type") in blocks:
        return get(blocks[net["block_type"]])
    if net.get("block_type") == "res_bottleneck_block":
        return get("nds_resnext_b" if "-B" in stem.upper().replace("_", "-") else "nds_resnext_a")
    known = {name: f"nds_{name.lower()}" for name in ("NASNet", "Amoeba", "PNAS", "ENAS", "DARTS")}
    for name, space in known.items():
        if stem.lower().startswith(name.lower()):
            return get(space)
    raise ValueError(f"its name says no design space: expected one that begins with {', '.join(known)}")


FORMATS = {
    "nasbench201": Format(_nasbench201, "NAS-Bench-201-v1_1-096897.pth", is_pickle=True),
    "nats_size": Format(_nats_size, "NATS-sss-v1_0-50262.pickle.pbz2", is_pickle=True),
    "nasbench101": Format(_nasbench101, "nasbench_only108.tfrecord"),
    "hw_nas_bench": Format(_hw_nas_bench, "HW-NAS-Bench-v1_0.pickle", is_pickle=True),
    "help": Format(_help, "a data folder of HELP, with latency/DEVICE.pt"),
    "nds": Format(_nds, "a JSON of the nds repository, such as DARTS.json"),
    "snas": Format(lambda path: snas.rows(path), "what nas-rlm snas generate writes"),
    "codenet": Format(codenet.rows, "the folder Project_CodeNet, with metadata and data"),
    "parquet": Format(lambda path: tables.read(path).rows, "GraphArch-Regression or Code-Regression parquet"),
}
