"""Small labelled images as published: CIFAR-10 in its Python format, and Fashion-MNIST."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.wording import counted

IMAGE_SIZE, FASHION_MNIST_IMAGE_SIZE = 32, 28  # pixels
NUM_CLASSES = 10
MAX_FILE_BYTES = 256 * 1024 * 1024
# All that the arrays of CIFAR-10's pickles need; anything else in such a file is refused.
_SAFE_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
FASHION_MNIST_FILES = {  # images and labels
    subset: (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    for subset, prefix in (("train", "train"), ("test", "t10k"))
}


@dataclass(frozen=True)
class Images:
    """Labelled images for training and testing.

    Args:
        train: training images, uint8 [N, 3, 32, 32].
        train_labels: classes of the training images, int64 [N], from 0 to 9.
        test: test images, uint8 [M, 3, 32, 32].
        test_labels: classes of the test images, int64 [M], from 0 to 9.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def read_images(directory: str | os.PathLike[str]) -> Images:
    """Read the images of a directory.

    Args:
        directory: `cifar-10-batches-py` (data_batch_*, test_batch), or a directory with the four idx files of
            Fashion-MNIST, compressed or not, whose images are padded and repeated to three channels.

    Raises:
        FileNotFoundError: the directory has neither.
        ValueError: a file is damaged, too large, or contains more than arrays.
    """
    path = Path(directory)
    if not path.is_dir():
        raise FileNotFoundError(f"no directory at {str(path)!r}: expected files of CIFAR-10 or Fashion-MNIST")
    batches = sorted(path.glob("data_batch_*"))
    if batches and (path / "test_batch").is_file():
        columns = zip(*(_read_cifar_batch(batch) for batch in batches), strict=True)
        images, labels = (np.concatenate(column) for column in columns)
        return Images(images, labels, *_read_cifar_batch(path / "test_batch"))
    idx_names = [name for pair in FASHION_MNIST_FILES.values() for name in pair]
    if all(_with_suffix_if_compressed(path / name).is_file() for name in idx_names):
        return Images(*_read_fashion_mnist(path, "train"), *_read_fashion_mnist(path, "test"))
    raise FileNotFoundError(
        f"{str(path)!r} has neither CIFAR-10's data_batch_* and test_batch nor Fashion-MNIST's"
        f" {', '.join(idx_names)}"
    )


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays, lists and text, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SAFE_GLOBALS:
            return super().find_class(module, name)
        raise ValueError(f"it refers to {module}.{name}, which no array needs")


def _read_cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of a batch file."""
    _check_size(path)
    try:
        with open(path, "rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
        images = np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, IMAGE_SIZE, IMAGE_SIZE)
        labels = np.asarray(content[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, ValueError, KeyError, TypeError, EOFError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is not a batch of CIFAR-10 in its Python format: {error}") from None
    _check_labels(path, images, labels)
    return images, labels


def _read_fashion_mnist(directory: Path, subset: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the padded colour images and the labels of a subset, train or test."""
    images_path, labels_path = (
        _with_suffix_if_compressed(directory / name) for name in FASHION_MNIST_FILES[subset]
    )
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1).astype(np.int64)
    size = FASHION_MNIST_IMAGE_SIZE
    if images.shape[1:] != (size, size):
        raise ValueError(
            f"{str(images_path)!r} has images of {images.shape[1:]} pixels, expected {size} x {size}"
        )
    padding = (IMAGE_SIZE - size) // 2
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding)))
    colour = np.repeat(padded[:, None], 3, axis=1)
    _check_labels(labels_path, colour, labels)
    return colour, labels


def _read_idx(path: Path, num_dimensions: int) -> np.ndarray:
    """Return the uint8 array of an idx file, compressed or not."""
    _check_size(path)
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content: bytes = file.read(MAX_FILE_BYTES)
    except (OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from None
    header_length = 4 + 4 * num_dimensions
    if len(content) < header_length or content[:4] != bytes((0, 0, 8, num_dimensions)):
        raise ValueError(f"{str(path)!r} is not an idx file of bytes with {num_dimensions} dimensions")
    shape = struct.unpack(f">{num_dimensions}I", content[4:header_length])
    num_bytes, expected = len(content) - header_length, int(np.prod(shape))
    if num_bytes != expected:
        raise ValueError(f"{str(path)!r} is truncated: {num_bytes:,} of {counted(expected, 'byte')}")
    return np.frombuffer(content, dtype=np.uint8, offset=header_length).reshape(shape)


def _with_suffix_if_compressed(path: Path) -> Path:
    """Return the path of the compressed file if there is one."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.is_file() else path


def _check_size(path: Path) -> None:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{str(path)!r} is larger than the limit of {MAX_FILE_BYTES:,} bytes")


def _check_labels(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Check that there is a valid label for each image."""
    if len(images) != len(labels) or len(labels) == 0 or labels.min() < 0 or labels.max() >= NUM_CLASSES:
        raise ValueError(
            f"{str(path)!r} has {counted(len(images), 'image')} and {counted(len(labels), 'label')},"
            " expected as many labels from 0 to 9"
        )
