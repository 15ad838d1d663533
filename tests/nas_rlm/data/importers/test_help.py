import pytest
import torch

from nas_rlm.data.importers import import_benchmark
from tests.nas_rlm.data.importers.published_files import CELL_NOTATIONS, write_help


@pytest.mark.parametrize("space", ["nasbench201", "fbnet", "ofa_mbv3"])
def test_each_device_is_a_latency(tmp_path, space):
    rows = import_benchmark("help", write_help(tmp_path, space))
    assert [r.space for r in rows] == [space] * 3
    assert rows[1].targets == {"latency/pixel2": 2.5, "latency/titan_1": 6.0}
    if space == "nasbench201":
        assert [r.arch_str for r in rows] == CELL_NOTATIONS


def test_directories_without_architectures_or_with_other_numbers_of_latencies_are_refused(tmp_path):
    with pytest.raises(ValueError, match="neither str_arch2idx"):
        import_benchmark("help", tmp_path)
    write_help(tmp_path, "fbnet")
    torch.save([1.0], tmp_path / "latency" / "short.pt")
    with pytest.raises(ValueError, match=r"latency/short.pt has 1 values for 3 architectures"):
        import_benchmark("help", tmp_path)
