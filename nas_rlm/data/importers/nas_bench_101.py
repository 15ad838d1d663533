"""NAS-Bench-101 as published (Ying et al. 2019): a TFRecord file, read without TensorFlow."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.utils.progress import progress_bar
from search_spaces import get
from search_spaces.notation import is_int_between

FULL_EPOCHS = 108  # accuracies after fewer epochs are objectives of their own
MAX_RECORD_BYTES = 1024 * 1024
CRC32C_POLYNOMIAL, CRC_MASK_DELTA = 0x82F63B78, 0xA282EAD8


class _Run(NamedTuple):
    """A training run of a cell: its key and notation, objective, accuracy and number of parameters."""

    key: str
    notation: str
    objective: str
    accuracy: float
    params: float


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read validation accuracies on CIFAR-10 after 108 and fewer epochs, each the maximum over training runs.

    Args:
        path: the TFRecord file.
        omissions: counts the entries that are not valid.
    """
    space = get("nasbench101")
    networks: dict[str, tuple[str, float]] = {}  # notation and parameters
    accuracies: dict[str, dict[str, float]] = {}  # maximum of each objective
    records = progress_bar(_read_tfrecords(path, omissions), "nasbench101", unit="run")
    for number, record in enumerate(records):
        with omissions.skip(f"record {number}"):
            run = _parse_run(record)
            networks.setdefault(run.key, (run.notation, run.params))
            maxima = accuracies.setdefault(run.key, {})
            for objective, accuracy in omissions.targets({run.objective: run.accuracy}, run.key).items():
                maxima[objective] = max(accuracy, maxima.get(objective, 0.0))
    rows = []
    for key, (notation, params) in networks.items():
        with omissions.skip(key):
            architecture = space.parse(notation)
            targets = accuracies[key] | omissions.targets({"params": params}, key)
            rows.append(Row("nasbench101", str(architecture), targets, identifier=key))
    return rows


def _parse_run(record: bytes) -> _Run:
    """Return the training run of a record, which is a JSON list that ends with an encoded message."""
    key, epochs, adjacency, operators, encoded = json.loads(record)
    if not (isinstance(key, str) and key.isascii() and is_int_between(epochs, 1, FULL_EPOCHS)):
        raise ValueError(f"{key!r} after {epochs!r} epochs: expected a hash, and up to {FULL_EPOCHS} epochs")
    metrics = _METRICS_CLASS()
    try:
        metrics.ParseFromString(base64.b64decode(encoded, validate=True))
    except DecodeError:
        raise ValueError(f"the metrics of {key} are damaged") from None
    return _Run(
        key,
        json.dumps({"adjacency": adjacency, "ops": operators.split(",")}),
        "accuracy" if epochs == FULL_EPOCHS else f"accuracy/cifar10_{epochs}ep",
        100.0 * metrics.evaluation_data[-1].validation_accuracy,
        float(metrics.trainable_parameters),
    )


def _read_tfrecords(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """Yield the content of each record; a record is its length and its content, each with a checksum."""
    with open(path, "rb") as file:
        while header := file.read(12):
            if len(header) < 12:
                raise ValueError("the file is truncated within a record")
            (length,) = struct.unpack("<Q", header[:8])
            if masked_crc32c(header[:8]) != struct.unpack("<I", header[8:])[0] or length > MAX_RECORD_BYTES:
                raise ValueError("the length of a record is damaged")
            content = file.read(length + 4)
            if len(content) < length + 4:
                raise ValueError("the file is truncated within a record")
            if masked_crc32c(content[:-4]) == struct.unpack("<I", content[-4:])[0]:
                yield content[:-4]
            else:
                omissions.add(f"byte {file.tell() - len(content)}", "a record is damaged")


def masked_crc32c(content: bytes) -> int:
    """Return the checksum of TFRecord files: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + CRC_MASK_DELTA) & 0xFFFFFFFF


def _build_crc_table() -> list[int]:
    """Return the CRC-32C remainder of each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (CRC32C_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _build_crc_table()


def _build_metrics_class() -> Any:
    """Return the class of NAS-Bench-101's protobuf message ModelMetrics, with the fields that are read."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="nasbench", syntax="proto2")
    evaluation = file.message_type.add(name="EvaluationData")
    for number, name in enumerate(
        ("current_epoch", "training_time", "train_accuracy", "validation_accuracy", "test_accuracy"), 1
    ):
        evaluation.field.add(name=name, number=number, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    metrics = file.message_type.add(name="ModelMetrics")
    metrics.field.add(
        name="evaluation_data",
        number=1,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".nasbench.EvaluationData",
    )
    metrics.field.add(
        name="trainable_parameters", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nasbench.ModelMetrics"))


_METRICS_CLASS = _build_metrics_class()
