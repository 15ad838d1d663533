import numpy as np
import pytest

from nas_rlm.cli import main
from nas_rlm.data import read, write
from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import CELL_NOTATIONS, write_hw_nas_bench


def test_each_device_is_a_latency(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        rows = import_benchmark("hw_nas_bench", write_hw_nas_bench(tmp_path), allow_pickle=True)
    assert rows[2].targets == {"latency/pixel3": 3.0, "latency/eyeriss": 3.0}
    assert rows[2].arch_str == CELL_NOTATIONS[2]


pytestmark = pytest.mark.filterwarnings("ignore:.*read as a pickle")


@pytest.mark.parametrize(
    "value", [-1, -1.0, 0, float("nan"), float("inf"), None, "3.5", True, [1.0], 10**400]
)
def test_latencies_that_were_not_measured_are_missing(tmp_path, value):
    path = write_hw_nas_bench(tmp_path, pixel3_latency=[1.0, value, value])
    with pytest.warns(UserWarning, match=r"^2 entries of latency/pixel3 are not valid and were left out"):
        rows = import_benchmark("hw_nas_bench", path, allow_pickle=True)
    assert [row.targets for row in rows] == [
        {"latency/pixel3": 1.0, "latency/eyeriss": 1.0},
        {"latency/eyeriss": 2.0},
        {"latency/eyeriss": 3.0},
    ]
    write(tmp_path / "table.parquet", rows)
    assert [row.targets for row in read(tmp_path / "table.parquet").rows] == [row.targets for row in rows]


def test_arrays_of_numpy_are_columns(tmp_path):
    path = write_hw_nas_bench(tmp_path, pixel3_latency=np.array([1, 2, 3], np.float32))
    rows = import_benchmark("hw_nas_bench", path, allow_pickle=True)
    assert [row.targets["latency/pixel3"] for row in rows] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("values", [[1.0], [1.0] * 4, None, "abc", {0: 1.0, 1: 2.0, 2: 3.0}])
def test_columns_of_another_length_are_left_out(tmp_path, values):
    path = write_hw_nas_bench(tmp_path, pixel3_latency=values)
    with pytest.warns(UserWarning, match=r"3 entries of latency/pixel3 .* values? for 3 architectures"):
        rows = import_benchmark("hw_nas_bench", path, allow_pickle=True)
    assert [row.targets for row in rows] == [{"latency/eyeriss": float(i)} for i in (1, 2, 3)]


@pytest.mark.parametrize("config", [{"arch_str": "|none~0|"}, {"arch_str": 5}, {"name": "infer.tiny"}, None])
def test_cells_that_are_not_valid_have_no_row(tmp_path, config):
    configs = [{"arch_str": CELL_NOTATIONS[0]}, config, {"arch_str": CELL_NOTATIONS[2]}]
    path = write_hw_nas_bench(tmp_path, config=configs)
    with pytest.warns(UserWarning, match=r"^1 entry is not valid and was left out: NB201_1: "):
        rows = import_benchmark("hw_nas_bench", path, allow_pickle=True)
    assert [(r.identifier, r.targets["latency/pixel3"]) for r in rows] == [("NB201_0", 1.0), ("NB201_2", 3.0)]


def test_a_file_without_a_valid_entry_is_refused(tmp_path):
    path = write_hw_nas_bench(tmp_path, pixel3_latency=[-1] * 3, eyeriss_latency=[-1] * 3)
    with pytest.raises(ValueError, match=r"has no measurements \(NB201_0: -1\)"):
        import_benchmark("hw_nas_bench", path, allow_pickle=True)


def test_the_count_is_a_line_of_the_command(tmp_path, capsys):
    path, out = write_hw_nas_bench(tmp_path, pixel3_latency=[1.0, -1, -1]), tmp_path / "table.parquet"
    assert main(["data", "import", "hw_nas_bench", str(path), "--allow-pickle", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"3 rows: {out}\n"
    assert captured.err.splitlines()[-1] == (
        "nas-rlm: warning: 2 entries of latency/pixel3 are not valid and were left out: NB201_1: -1;"
        " NB201_2: -1"
    )
