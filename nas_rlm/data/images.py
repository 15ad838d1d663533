"""Small labelled images as their authors publish them: CIFAR-10 in its Python format, Fashion-MNIST."""

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

SIDE = 32
MOST_BYTES = 256 * 1024 * 1024
# all that the arrays of CIFAR-10's pickles are made of; anything else in such a file is refused
_HARMLESS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
FASHION = {
    part: (f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte")
    for part, name in (("train", "train"), ("test", "t10k"))
}


@dataclass(frozen=True)
class Images:
    """Labelled images, half to train on and half to judge by.

    Args:
        train, test: uint8 [N, 3, 32, 32].
        train_labels, test_labels: int64 [N], from 0 to 9.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def read_images(folder: str | os.PathLike[str]) -> Images:
    """The images of a folder.

    Args:
        folder: `cifar-10-batches-py` (data_batch_*, test_batch), or one with Fashion-MNIST's four idx files,
            compressed or not.

    Raises:
        FileNotFoundError: the folder has neither.
        ValueError: a file is damaged, too large, or holds more than arrays.
    """
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(f"no folder at {str(path)!r}: expected CIFAR-10's or Fashion-MNIST's files")
    batches = sorted(path.glob("data_batch_*"))
    if batches and (path / "test_batch").is_file():
        parts = [_cifar(b) for b in batches]
        train, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Images(train, labels, *_cifar(path / "test_batch"))
    if all(_compressed_or_not(path / name).is_file() for pair in FASHION.values() for name in pair):
        return Images(*_fashion(path, "train"), *_fashion(path, "test"))
    raise FileNotFoundError(
        f"{str(path)!r} has neither CIFAR-10's data_batch_* and test_batch nor Fashion-MNIST's"
        f" {', '.join(name for pair in FASHION.values() for name in pair)}"
    )


class _Arrays(pickle.Unpickler):
    """Reads arrays, lists and texts, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return super().find_class(module, name)
        raise ValueError(f"it asks for {module}.{name}, which no array needs")


def _cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    _check_size(path)
    try:
        with open(path, "rb") as file:
            content = _Arrays(file, encoding="bytes").load()
        images = np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, SIDE, SIDE)
        labels = np.asarray(content[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, ValueError, KeyError, TypeError, EOFError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is not a batch of CIFAR-10 in its Python format: {error}") from None
    return _checked(path, images, labels)


def _fashion(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    images_path, labels_path = (_compressed_or_not(folder / name) for name in FASHION[part])
    images, labels = _idx(images_path, 3), _idx(labels_path, 1)
    margin = (SIDE - images.shape[1]) // 2
    if images.shape[1:] != (28, 28):
        raise ValueError(f"{str(images_path)!r} holds images of {images.shape[1:]}, expected 28 x 28")
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
    return _checked(labels_path, np.repeat(padded[:, None], 3, axis=1), labels.astype(np.int64))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    _check_size(path)
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content: bytes = file.read(MOST_BYTES)
    except (OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from None
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(f"{str(path)!r} is not an idx file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != int(np.prod(shape)):
        raise ValueError(f"{str(path)!r} is truncated: {len(content) - head:,} of {np.prod(shape):,} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def _compressed_or_not(path: Path) -> Path:
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.is_file() else path


def _check_size(path: Path) -> None:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{str(path)!r} has more than the limit of {MOST_BYTES:,} bytes")


def _checked(path: Path, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(images) != len(labels) or len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(
            f"{str(path)!r} has {len(images)} images and {len(labels)} labels,"
            " expected as many labels from 0 to 9"
        )
    return images, labels
