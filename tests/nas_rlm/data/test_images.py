import gzip
import pickle
import struct

import numpy as np
import pytest

from nas_rlm.data.images import FASHION_MNIST_FILES, read_images


def write_cifar(directory, protocol=2, **changes):
    rng = np.random.default_rng(0)
    directory.mkdir(exist_ok=True)
    for name, n in (("data_batch_1", 6), ("data_batch_2", 4), ("test_batch", 5)):
        content = {
            b"data": rng.integers(256, size=(n, 3072), dtype=np.uint8),
            b"labels": rng.integers(10, size=n).tolist(),
        }
        (directory / name).write_bytes(pickle.dumps(content | changes.get(name, {}), protocol))
    return directory


def write_fashion_mnist(directory, compressed):
    directory.mkdir()
    opener, suffix = (gzip.open, ".gz") if compressed else (open, "")
    for subset, n in (("train", 7), ("test", 3)):
        images, labels = FASHION_MNIST_FILES[subset]
        with opener(directory / f"{images}{suffix}", "wb") as file:
            file.write(struct.pack(">4B3I", 0, 0, 8, 3, n, 28, 28) + bytes(range(n)) * 784)
        with opener(directory / f"{labels}{suffix}", "wb") as file:
            file.write(struct.pack(">4BI", 0, 0, 8, 1, n) + bytes(range(n)))
    return directory


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar_is_read_in_its_python_format(tmp_path, protocol):
    images = read_images(write_cifar(tmp_path / "c", protocol))
    assert images.train.shape == (10, 3, 32, 32)
    assert images.test.shape == (5, 3, 32, 32)
    assert images.train_labels.dtype == np.int64
    first = np.random.default_rng(0).integers(256, size=(6, 3072), dtype=np.uint8)
    assert np.array_equal(images.train[:6].reshape(6, -1), first)


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist_becomes_colour_images_of_32_pixels(tmp_path, compressed):
    images = read_images(write_fashion_mnist(tmp_path / "f", compressed))
    assert images.train.shape == (7, 3, 32, 32)
    assert images.test_labels.tolist() == [0, 1, 2]
    assert not images.train[:, :, :2].any()
    assert images.train[0, 0, 2, 2:9].tolist() == list(range(7))
    assert np.array_equal(images.train[:, 0], images.train[:, 2])


class Harmful:
    def __reduce__(self):
        return print, ("harm",)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (pickle.dumps({b"data": Harmful(), b"labels": [1]}), "refers to builtins.print"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}), "2 images and 1 label"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "labels from 0 to 9"),
        (pickle.dumps({b"data": np.zeros((1, 30), np.uint8), b"labels": [1]}), "is not a batch of CIFAR-10"),
        (pickle.dumps([1, 2]), "is not a batch of CIFAR-10"),
        (b"", "is not a batch of CIFAR-10"),
        (b"no pickle", "is not a batch of CIFAR-10"),
    ],
)
def test_invalid_batches_are_refused(tmp_path, damage, message, capsys):
    directory = write_cifar(tmp_path / "c")
    (directory / "data_batch_2").write_bytes(damage)
    with pytest.raises(ValueError, match=message):
        read_images(directory)
    assert "harm" not in capsys.readouterr().out


def test_damaged_idx_files_are_refused(tmp_path):
    directory = write_fashion_mnist(tmp_path / "f", compressed=False)
    path = directory / FASHION_MNIST_FILES["train"][0]
    content = path.read_bytes()
    for damaged, message in (
        (content[:-5], "is truncated"),
        (b"\x00\x00\x09\x03" + content[4:], "is not an idx file"),
        (b"", "is not an idx file"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            read_images(directory)


def test_directories_without_images_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory at"):
        read_images(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="has neither CIFAR-10's data_batch"):
        read_images(tmp_path)
