"""Random changes of the bytes of ONNX files, without regard to their format, for tests of the reader."""

from __future__ import annotations

import random

import onnx
from google.protobuf.message import DecodeError

MAX_BLOCK = 256  # bytes that one change inserts, deletes or moves


def mutate_bytes(content: bytes, rng: random.Random, attempts: int) -> bytes:
    """Return changed bytes; those of the first attempt that protobuf can parse, or else of the last one.

    Args:
        content: a serialized model.
        rng: source of randomness.
        attempts: maximum number of attempts.
    """
    for _ in range(attempts):
        data = _changed_bytes(content, rng)
        try:
            onnx.load_model_from_string(data)
        except DecodeError:
            continue
        break
    return data


def _changed_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return bytes of which some are changed, removed, repeated or moved."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        start = rng.randrange(len(data) or 1)
        end = start + rng.choice((1, 1, 2, 8, rng.randrange(1, MAX_BLOCK)))
        action = rng.randrange(7)
        if action == 0 and data:
            data[start] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[start:end] = rng.randbytes(end - start)
        elif action == 2:
            data[start:start] = rng.randbytes(end - start)
        elif action == 3:
            del data[start:end]
        elif action == 4:
            data[start:start] = data[start:end]
        elif action == 5:
            block = data[start:end]
            del data[start:end]
            target = rng.randrange(len(data) + 1)
            data[target:target] = block
        elif rng.random() < 0.3:
            del data[start:]
    return bytes(data)
