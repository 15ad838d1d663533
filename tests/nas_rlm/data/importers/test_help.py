import pytest
import torch

from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import CELL_NOTATIONS, write_help

OFA = {"ks": [3] * 20, "e": [6] * 20, "d": [4] * 5, "r": [160]}


@pytest.mark.parametrize("space", ["nasbench201", "fbnet", "ofa_mbv3"])
def test_each_device_is_a_latency(tmp_path, space):
    rows = import_benchmark("help", write_help(tmp_path, space))
    assert [r.space for r in rows] == [space] * 3
    assert rows[1].targets == {"latency/pixel2": 2.5, "latency/titan_1": 6.0}
    if space == "nasbench201":
        assert [r.arch_str for r in rows] == CELL_NOTATIONS


def test_directories_without_architectures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="neither str_arch2idx"):
        import_benchmark("help", tmp_path)


@pytest.mark.parametrize("space", ["nasbench201", "fbnet", "ofa_mbv3"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1.0], "1 value for 3 architectures"),
        ([1.0] * 4, "4 values for 3 architectures"),
        (5, "0 values for 3 architectures"),
    ],
)
def test_a_device_with_another_number_of_latencies_is_left_out(tmp_path, space, content, reason):
    write_help(tmp_path, space)
    torch.save(content, tmp_path / "latency" / "short.pt")
    with pytest.warns(UserWarning, match=f"^3 entries of latency/short .*{reason}"):
        rows = import_benchmark("help", tmp_path)
    assert [row.targets.keys() for row in rows] == [{"latency/pixel2", "latency/titan_1"}] * 3


def test_a_damaged_device_is_left_out_and_the_last_one_is_needed(tmp_path):
    write_help(tmp_path, "fbnet")
    (tmp_path / "latency" / "pixel2.pt").write_bytes(b"PK")
    with pytest.warns(UserWarning, match=r"^1 entry of latency/pixel2 is not valid"):
        rows = import_benchmark("help", tmp_path)
    assert rows[1].targets == {"latency/titan_1": 6.0}
    (tmp_path / "latency" / "titan_1.pt").write_bytes(b"")
    with pytest.raises(ValueError, match="has no measurements"):
        import_benchmark("help", tmp_path)


def test_latencies_that_were_not_measured_are_missing(tmp_path):
    write_help(tmp_path, "ofa_mbv3")
    torch.save(torch.tensor([1.5, -1.0, float("nan")]), tmp_path / "latency" / "pixel2.pt")
    with pytest.warns(UserWarning, match=r"^2 entries of latency/pixel2 .*: ofa_mbv3_1: "):
        rows = import_benchmark("help", tmp_path)
    assert [row.targets.get("latency/pixel2") for row in rows] == [1.5, None, None]


@pytest.mark.parametrize(
    ("space", "file", "content", "identifiers"),
    [
        ("nasbench201", "str_arch2idx", {CELL_NOTATIONS[0]: 0, "x": 1, CELL_NOTATIONS[2]: 2}, [0, 2]),
        ("nasbench201", "str_arch2idx", {CELL_NOTATIONS[0]: 0, CELL_NOTATIONS[2]: 3}, [0]),
        ("nasbench201", "str_arch2idx", {CELL_NOTATIONS[0]: -1, CELL_NOTATIONS[2]: 2}, [2]),
        ("fbnet", "metainfo", {"arch": [{"op_idx_list": [0] * 22}, {}, {"op_idx_list": [9] * 22}]}, [0]),
        ("ofa_mbv3", "ofa_archs", {"arch": [OFA, OFA | {"r": []}, {"ks": [3]}]}, [0]),
        ("ofa_mbv3", "ofa_archs", {"arch": [OFA, OFA | {"r": 160.5}, OFA | {"d": [4.0] * 5}]}, [0, 2]),
        ("ofa_mbv3", "ofa_archs", {"arch": [OFA | {"d": [4.5] * 5}, OFA | {"e": ["6"] * 20}, OFA]}, [2]),
    ],
)
def test_architectures_that_are_not_valid_have_no_row(tmp_path, space, file, content, identifiers):
    write_help(tmp_path, space)
    torch.save(content, tmp_path / f"{file}.pt")
    with pytest.warns(UserWarning, match=r"^\d (entry|entries) (is|are) not valid"):
        rows = import_benchmark("help", tmp_path)
    assert [row.identifier for row in rows] == [f"{space}_{i}" for i in identifiers]
    assert [row.targets["latency/titan_1"] for row in rows] == [5.0 + i for i in identifiers]
