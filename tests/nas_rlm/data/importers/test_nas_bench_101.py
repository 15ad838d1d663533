import json

import pytest

from nas_rlm.data.importers import import_benchmark
from nas_rlm.data.importers.nas_bench_101 import masked_crc32c
from tests.nas_rlm.data.importers.published_files import OPERATORS_101, write_nas_bench_101


def test_records_are_read_without_tensorflow(tmp_path):
    (row,) = import_benchmark("nasbench101", write_nas_bench_101(tmp_path))
    assert json.loads(row.arch_str)["ops"] == OPERATORS_101.split(",")
    assert row.targets == pytest.approx(
        {"accuracy": 92.0, "accuracy/cifar10_12ep": 50.0, "params": 1_000_000}
    )


def test_the_checksum_is_the_published_one():
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32


def test_damaged_records_are_refused(tmp_path):
    path = write_nas_bench_101(tmp_path)
    content = bytearray(path.read_bytes())
    for position, message in ((3, "length of a record is damaged"), (40, "a record is damaged")):
        damaged = content.copy()
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            import_benchmark("nasbench101", path)
