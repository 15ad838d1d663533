"""Loading of ONNX files, with limits, and of small tensors from external data files."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits
from nas_rlm.graph.onnx_graphs.tensors import FLOATS, MAX_FOLDED_ELEMENTS, num_elements
from search_spaces.wording import counted

MAX_ITEM_BYTES = 16  # of an element


class NotOnnxError(ValueError):
    """A file is empty, or of another format."""


def load(
    source: onnx.ModelProto | str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS
) -> onnx.ModelProto:
    """Load an ONNX model.

    Args:
        source: path to an ONNX file; a model is returned as it is.
        limits: limits on the size of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        NotOnnxError: the file is not an ONNX model.
        ValueError: the file is too large, or its external data cannot be read.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    path = checked_path(source)
    size = path.stat().st_size
    if size > limits.max_bytes:
        raise ValueError(f"{str(path)!r} has {size:,} bytes, more than the limit of {limits.max_bytes:,}")
    if size == 0:
        raise NotOnnxError(f"{str(path)!r} is not an ONNX file: it is empty")
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except (DecodeError, ValueError):
        raise NotOnnxError(
            f"{str(path)!r} is not an ONNX file: it is damaged, or of another format"
        ) from None
    if not model.HasField("graph") or not model.opset_import:
        raise NotOnnxError(f"{str(path)!r} is not an ONNX file: it has no graph or imports no operator set")
    _load_small_tensors(model, path)
    return model


def checked_path(source: str | os.PathLike[str]) -> Path:
    """Return the path of an ONNX file.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: it is no path, or that of a directory, pipe or device.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    if not isinstance(name, str):
        hint = "; bytes are read by onnx.load_model_from_string" if isinstance(name, bytes) else ""
        described = (
            repr(name) if name is None or isinstance(name, int | float) else f"a {type(name).__name__}"
        )
        raise ValueError(f"{described} is not an ONNX model: expected a model or the path of a file{hint}")
    path = Path(name)
    if path.is_dir():
        raise ValueError(f"{name!r} is a directory: expected an ONNX file")
    if not path.exists():
        raise FileNotFoundError(f"no ONNX file at {name!r}")
    if not path.is_file():
        raise ValueError(f"{name!r} is a pipe or device: expected an ONNX file")
    return path


def _load_small_tensors(model: onnx.ModelProto, path: Path) -> None:
    """Load small tensors from external data files, since the text has the values of integers and scalars."""
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        size = num_elements(tuple(tensor.dims))
        if size is None or size > MAX_FOLDED_ELEMENTS or min(tensor.dims, default=0) < 0:
            continue
        try:
            _check_length(tensor, path.parent)
            load_external_data_for_tensor(tensor, str(path.parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            if tensor.data_type in FLOATS and len(tensor.dims) > 0:
                continue  # a weight: the shape is enough
            raise ValueError(
                f"{str(path)!r} has external data for {tensor.name!r} that cannot be read: {error}"
            ) from None
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_length(tensor: TensorProto, directory: Path) -> None:
    """Refuse external data that are longer than a small tensor, since they are read as a whole.

    Raises:
        ValueError: they are.
        OSError: there is no such file.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    length = int(entries["length"]) if "length" in entries else None
    if length is None:
        size = (directory / entries.get("location", "")).stat().st_size
        length = size - int(entries.get("offset", 0))
    if length > MAX_FOLDED_ELEMENTS * MAX_ITEM_BYTES:
        raise ValueError(f"{counted(length, 'byte')} for the shape {list(tensor.dims)}")


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its local functions inlined."""
    return onnx.inliner.inline_local_functions(model) if model.functions else model
