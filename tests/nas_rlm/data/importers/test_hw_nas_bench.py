import pytest

from nas_rlm.data.importers import import_benchmark
from tests.nas_rlm.data.importers.published_files import CELL_NOTATIONS, write_hw_nas_bench


def test_each_device_is_a_latency(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        rows = import_benchmark("hw_nas_bench", write_hw_nas_bench(tmp_path), allow_pickle=True)
    assert rows[2].targets == {"latency/pixel3": 3.0, "latency/eyeriss": 3.0}
    assert rows[2].arch_str == CELL_NOTATIONS[2]
