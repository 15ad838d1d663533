import json

import pytest

from nas_rlm.data.importers.nas_bench_101 import masked_crc32c
from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import OPERATORS_101, tf_record, write_nas_bench_101


def test_records_are_read_without_tensorflow(tmp_path):
    (row,) = import_benchmark("nasbench101", write_nas_bench_101(tmp_path))
    assert json.loads(row.arch_str)["ops"] == OPERATORS_101.split(",")
    assert row.targets == pytest.approx(
        {"accuracy": 92.0, "accuracy/cifar10_12ep": 50.0, "params": 1_000_000}
    )


def test_the_checksum_is_the_published_one():
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32


def test_a_damaged_record_is_left_out_and_a_damaged_length_is_refused(tmp_path):
    path = write_nas_bench_101(tmp_path)
    content = path.read_bytes()
    path.write_bytes(flipped(content, content.index(b"[") + 20))  # in the first of two runs of 108 epochs
    with pytest.warns(UserWarning, match=r"1 entry is not valid .*: byte 12: a record is damaged"):
        (row,) = import_benchmark("nasbench101", path)
    assert row.targets["accuracy"] == pytest.approx(92.0)
    path.write_bytes(flipped(content, 3))
    with pytest.raises(ValueError, match="length of a record is damaged"):
        import_benchmark("nasbench101", path)


def flipped(content, position):
    """The content with one bit changed."""
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({0: 7}, "7 after 108 epochs"),
        ({0: "\ud800"}, "after 108 epochs"),
        ({1: "108"}, "after '108' epochs"),
        ({1: -4}, "after -4 epochs"),
        ({2: "0100"}, "should be 3 x 3"),
        ({2: None}, "is not JSON with adjacency"),
        ({3: "input,conv5x5,output"}, "unknown operator 'conv5x5'"),
        ({3: 5}, "no attribute 'split'"),
        ({4: "AAAA"}, "the metrics of .* are damaged"),
        ({4: ""}, "index out of range"),
        ({4: "%"}, "base64|character"),
        ({5: 1}, "too many values"),
    ],
)
def test_records_that_are_not_valid_are_left_out(tmp_path, change, reason):
    path = write_nas_bench_101(tmp_path)
    record = json.loads(path.read_bytes()[12:].split(b"]")[0] + b"]")
    changed = dict(enumerate(["1" * 32, *record[1:]])) | change
    path.write_bytes(path.read_bytes() + tf_record(json.dumps(list(changed.values())).encode()))
    with pytest.warns(UserWarning, match=f"1 entry is not valid .*{reason}"):
        (row,) = import_benchmark("nasbench101", path)
    assert row.identifier == "0" * 32
    path.write_bytes(tf_record(json.dumps(list(changed.values())).encode()))
    with pytest.raises(ValueError, match=f"has no measurements .*{reason}"):
        import_benchmark("nasbench101", path)


@pytest.mark.parametrize("accuracy", [float("nan"), float("inf"), -1.0, 1.5])
def test_accuracies_that_are_not_valid_are_left_out(tmp_path, accuracy):
    path = write_nas_bench_101(tmp_path, [(108, 0.9), (108, accuracy), (12, accuracy)])
    with pytest.warns(UserWarning) as warnings:
        (row,) = import_benchmark("nasbench101", path)
    assert row.targets == pytest.approx({"accuracy": 90.0, "params": 1_000_000})
    assert [str(w.message).partition(" is not")[0] for w in warnings] == [
        "1 entry of accuracy",
        "1 entry of accuracy/cifar10_12ep",
    ]
