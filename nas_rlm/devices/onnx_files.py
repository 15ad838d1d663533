"""ONNX files by their content: their digest, and models with the weights of external data files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from nas_rlm.graph.onnx_graphs.input_shapes import subgraphs
from search_spaces.wording import counted

MAX_MODEL_BYTES = 2**31 - 1  # of a model in one piece, which protobuf cannot exceed
_CHUNK_BYTES = 1 << 20


def content_digest(path: Path) -> str:
    """Return a digest of an ONNX file and its external data files, which does not depend on its path.

    Args:
        path: a valid ONNX file.

    Raises:
        ValueError: an external data file is missing, too short or outside the directory of the file, or the
            model is larger than MAX_MODEL_BYTES.
    """
    digest = hashlib.sha256()
    size = _update(digest, path)
    ends: dict[str, int] = {}  # by external data file
    for tensor in _tensors(onnx.load(path, load_external_data=False).graph):
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            ends[info.location] = max(ends.get(info.location, 0), (info.offset or 0) + (info.length or 0))
            size += info.length or 0
    for location, end in sorted(ends.items()):
        file = path.parent / location
        if not file.resolve().is_relative_to(path.parent.resolve()) or not file.is_file():
            raise ValueError(
                f"{str(path)!r} has external data in {location!r}: expected a file in its directory"
            )
        if (available := file.stat().st_size) < end:
            raise ValueError(
                f"{str(path)!r} has external data in {location!r}, which has {counted(available, 'byte')}:"
                f" expected at least {end:,}"
            )
        digest.update(location.encode() + b"\0")
        _update(digest, file)
    if size > MAX_MODEL_BYTES:
        raise ValueError(
            f"{str(path)!r} has {size:,} bytes with its external data, more than the limit of"
            f" {MAX_MODEL_BYTES:,}"
        )
    return digest.hexdigest()


def load_with_weights(path: Path) -> onnx.ModelProto:
    """Return the model of an ONNX file with the weights of its external data files.

    Args:
        path: a valid ONNX file, see `content_digest`.
    """
    model = onnx.load(path, load_external_data=False)
    load_external_data_for_model(model, str(path.parent))
    return model


def _update(digest: Any, path: Path) -> int:
    """Add the content of a file to a digest, and return its number of bytes."""
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the initialisers of a graph and its subgraphs, and the tensors in attributes of their nodes."""
    for part in (graph, *subgraphs(graph)):
        yield from part.initializer
        yield from (a.t for node in part.node for a in node.attribute if a.HasField("t"))
