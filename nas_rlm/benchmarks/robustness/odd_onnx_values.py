"""Numbers, names, types and tensors that ONNX files seldom have, for tests of the reader."""

from __future__ import annotations

import math
import random
from typing import Any

import onnx
from onnx import TensorProto, helper

EXTERNAL_LOCATIONS = ("/dev/zero", "../x", "", ".", "folder", "link", "huge.bin", "small.bin", "a\0b")
INTEGERS = (
    *(0, 1, -1, 2, -2, 3, 4, 5, 7, 8, 63, 64, 65, 100, 255, 4096, 4097, 1_000_000),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)),
)
FLOATS = (0.0, -0.0, 0.5, -1.0, 1e-40, 3e38, float("nan"), float("inf"), float("-inf"))
STRINGS = (
    *(b"", b"SAME_UPPER", b"VALID", b"linear", b"NOTSET", b"reflect"),
    *(b"ij,jk->ik", b"...ij,...jk", b"->", b"iii->i", b"a" * 60, b",".join([b"abcdefgh"] * 20)),
    *(b"x" * 100_000, b'\x00\x01\n\r\t"\\', b"\xff\xfe", b'">, ((', b"\xe2\x80\xa8"),
)
NAMES = (
    *("", "x0", "W3_3", "W2_3_t1", "float", "main", "a b", "a" * 5000, "1", "na\u00efve", "\n", "\x00"),
    *('"', "f.g", "a,b", "C2_3", "int64_4", "v0", "I0", "g1", "x)>", "//", "..", "\u2028"),
)
DOMAINS = (
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "com.microsoft",
    "own",
    "f",
    "a b",
    "x.y.z",
    "large.ai.onnx.ml",
    "\n",
)


def odd_value(rng: random.Random) -> Any:
    """Return a value of an attribute of a random type."""
    kind, length = rng.randrange(10), rng.choice((0, 1, 2, 3, 4, 5, 8, 70))
    if kind in (0, 1):
        return rng.choice(INTEGERS)
    if kind in (2, 3):
        return [rng.choice(INTEGERS) for _ in range(length)]
    if kind == 4:
        return rng.choice(FLOATS)
    if kind == 5:
        return [rng.choice(FLOATS) for _ in range(length)]
    if kind == 6:
        return rng.choice(STRINGS)
    if kind == 7:
        return [rng.choice(STRINGS) for _ in range(length)]
    return odd_tensor("t", rng) if kind == 8 else helper.make_graph([], "empty", [], [])


def odd_tensor(name: str, rng: random.Random) -> TensorProto:
    """Return a tensor of odd values; in half of the cases its shape and values need not fit."""
    if rng.random() < 0.5:
        shape = rng.choice(((), (1,), (1,), (2,), (4,), (1, 2), (0,)))
        kind, values = rng.choice(((TensorProto.INT64, INTEGERS), (TensorProto.FLOAT, FLOATS)))
        return helper.make_tensor(name, kind, shape, [rng.choice(values) for _ in range(math.prod(shape))])
    rank = rng.choice((0, 1, 1, 1, 2, 3, 4, 70))
    tensor = TensorProto(name=name, data_type=rng.choice((1, 7, 7, rng.randrange(28))))
    tensor.dims.extend(rng.choice((1, 2, 3, rng.choice(INTEGERS))) for _ in range(rank))
    count = rng.choice((0, 1, 2, 3, 4, 8))
    field = rng.randrange(5)
    if field == 0:
        tensor.raw_data = rng.randbytes(count * rng.choice((1, 4, 8)))
    elif field in (1, 2):
        tensor.int64_data.extend(rng.choice(INTEGERS) for _ in range(count))
    elif field == 3:
        tensor.float_data.extend(rng.choice(FLOATS) for _ in range(count))
    else:
        tensor.string_data.extend(rng.choice(STRINGS) for _ in range(count))
    return tensor


def odd_types() -> list[onnx.TypeProto]:
    """Return types of values that are not plain tensors."""
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    deep = sequence
    for _ in range(30):
        deep = helper.make_sequence_type_proto(deep)
    sparse = helper.make_sparse_tensor_type_proto(1, [2**40])
    mapping = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
    return [sequence, deep, sparse, mapping, helper.make_optional_type_proto(sequence), onnx.TypeProto()]
