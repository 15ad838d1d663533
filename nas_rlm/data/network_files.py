"""Parquet files of ONNX networks with measured values, as records in the schema of tables."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pyarrow.parquet as pq

from nas_rlm.data.disk_cache import cached_strings
from nas_rlm.text import from_onnx
from nas_rlm.text.declarations import is_network_text
from nas_rlm.utils.progress import progress_bar

NETWORK_COLUMNS = ("identifier", "onnx")  # a file with both has networks
ERROR_KEY = "error"  # key of a record whose network cannot be read: the reason
CACHE_VERSION = 2  # raise it when the texts change
MIN_CACHED_NETWORKS = 100
BATCH_SIZE = 32  # networks in memory at a time: a file may be a thousand times as long as its text
CELL_SPACE = "nasbench201"  # of rows with an architecture instead of a network
ACCURACIES = {"top1": "accuracy/imagenet", "top1_any": "accuracy/imagenet_any"}
_LATENCY = re.compile(r"(?:lat|ms)_(.+)")
_RUNTIME = re.compile(r"_(tflite|openvino)\w+$")
_SETTINGS = re.compile(r"_(?:fp32|fp16|bf16|amp)_.*$")  # precision and what follows it
_FAMILY = re.compile(r"(?:tf_|legacy_)?([a-z]+)")


def has_networks(path: Path) -> bool:
    """Return whether a parquet file has ONNX networks and is no table, which has metadata."""
    names = set(pq.read_schema(path).names)
    return names.issuperset(NETWORK_COLUMNS) and "metadata" not in names


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return a record in the schema of tables for each row of a parquet file of networks.

    `lat_X` and `ms_X` are latencies in milliseconds, `top1` and `top1_any` accuracies on ImageNet. The group
    of a row is its `family`, or the start of the name in the column `model`. The texts of the networks are
    cached on disk.

    Args:
        path: a file for which `has_networks` is true.

    Returns:
        The records. Where a network cannot be read, the record has the reason under `ERROR_KEY`.
    """
    columns = [name for name in pq.read_schema(path).names if name != "onnx"]
    rows = pq.read_table(path, columns=columns).to_pylist()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    texts = cached_strings(
        "network", (CACHE_VERSION, digest), len(rows), partial(_texts, path), MIN_CACHED_NETWORKS
    )
    names = latency_names(columns)
    return [_record(row, text, path.stem, names) for row, text in zip(rows, texts, strict=True)]


def latency_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the names of the latencies in the columns `lat_X` and `ms_X` of a file.

    Settings such as the precision are part of a name only where a device has several of them.

    Examples:
        >>> latency_names(["ms_i7_12700h_fp32_nchw_pt240", "lat_adreno640gpu_tflite21", "macs"]).values()
        dict_values(['latency/i7_12700h', 'latency/adreno640gpu'])
    """
    devices = {c: device_of_column(match[1]) for c in columns if (match := _LATENCY.fullmatch(c))}
    short = {column: _SETTINGS.sub("", device) for column, device in devices.items()}
    uses = Counter(short.values())
    return {c: f"latency/{short[c] if uses[short[c]] == 1 else device}" for c, device in devices.items()}


def device_of_column(column: str) -> str:
    """Return the device in a name such as those of nn-Meter, without the runtime.

    Examples:
        >>> device_of_column("cortexA76cpu_tflite21"), device_of_column("4090_amp_nchw_pt240")
        ('cortexA76cpu', '4090_amp_nchw_pt240')
    """
    return _RUNTIME.sub("", column)


def family_of_model(model: str) -> str:
    """Return the start of a model's name in timm, which models of one family share.

    Examples:
        >>> [family_of_model(name) for name in ("resnet50d", "tf_efficientnet_b0", "vit_base_patch16_224")]
        ['resnet', 'efficientnet', 'vit']
    """
    match = _FAMILY.match(model)
    return match[1] if match else model


def _record(row: dict[str, Any], text: str, space: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of a row; `names` are those of `latency_names`."""
    metadata = {"problem": row.get("family") or family_of_model(row.get("model") or "")}
    objectives = {}
    for column, value in row.items():
        if column in names:
            objectives[names[column]] = value
        elif column in ACCURACIES:
            objectives[ACCURACIES[column]] = value
    metadata["objectives"] = {name: value for name, value in objectives.items() if value is not None}
    architecture = row.get("arch_str") or ""
    record = {
        "identifier": row["identifier"],
        "space": CELL_SPACE if architecture else space,
        "arch_str": architecture,
        "metadata": repr(metadata),
    }
    if text and not is_network_text(text):
        return record | {ERROR_KEY: text}
    return record | {"input": text}


def _texts(path: Path) -> list[str]:
    """Return the text of each network, the reason where one cannot be read, and "" where there is none."""
    file = pq.ParquetFile(path)
    networks = progress_bar(
        _networks(file), f"texts of {path.name}", total=file.metadata.num_rows, unit="net"
    )
    return [_text(content) if content else "" for content in networks]


def _networks(file: pq.ParquetFile) -> Iterator[bytes | None]:
    """Yield the content of each ONNX file."""
    for batch in file.iter_batches(BATCH_SIZE, columns=["onnx"]):
        yield from batch.column(0).to_pylist()


def _text(content: bytes) -> str:
    """Return the text of an ONNX file, or why it cannot be read."""
    try:
        return from_onnx(onnx.load_from_string(content))
    except Exception as error:  # protobuf has exceptions of its own
        return str(error).strip() or type(error).__name__
