import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import search_spaces
from nas_rlm.data import read, write
from nas_rlm.data.importers.registry import FORMATS, import_benchmark
from tests.nas_rlm.data.importers.published_files import (
    CELL_NOTATIONS,
    write_hw_nas_bench,
    write_nas_bench_101,
    write_nas_bench_201,
    write_nats_bench,
    write_nds,
)

WRITERS = {
    **{"nasbench201": write_nas_bench_201, "nats_size": write_nats_bench, "nasbench101": write_nas_bench_101},
    **{"hw_nas_bench": write_hw_nas_bench, "nds": write_nds},
}


def test_the_public_parquet_files_are_read(tmp_path):
    graph = {
        **{"identifier": "NB201_1", "space": "NB201", "uid": "", "arch_str": CELL_NOTATIONS[0]},
        **{"target_metric": "val_accuracy", "val_accuracy": 91.0, "flops": 1.0, "params": 2.0},
        **{"metadata": "{'lat_pixel3': 3.0, 'zcp_snip': 4.0}", "metainformation": "", "input": "text"},
    }
    code = {
        **{"identifier": "1", "space": "KBSS", "input": "import triton", "target_metric": "val_accuracy"},
        **{"val_accuracy": 0.25, "metric_type": "latency_ms", "metadata": "{}"},
    }
    pq.write_table(pa.Table.from_pylist([graph]), tmp_path / "graph.parquet")
    pq.write_table(pa.Table.from_pylist([code]), tmp_path / "code.parquet")
    (row,) = import_benchmark("parquet", tmp_path / "graph.parquet")
    assert row.targets == {"accuracy": 91.0, "flops": 1.0, "params": 2.0, "latency/pixel3": 3.0}
    (row,) = import_benchmark("parquet", tmp_path / "code.parquet")
    assert (row.targets, row.input) == ({"latency": 0.25}, "import triton")


@pytest.mark.filterwarnings("ignore:.*read as a pickle")
@pytest.mark.parametrize("name", WRITERS)
def test_truncated_files_and_files_of_other_formats_are_refused(tmp_path, name):
    path = WRITERS[name](tmp_path)
    content = path.read_bytes()
    truncated = content[: len(content) // 2], content[:-3], b""
    for damaged in (*truncated, b"\x80\x05]q\x00.", b'{"a": [{"b": 1}]}'):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{path.name}.* (is not|has no measurements)"):
            import_benchmark(name, path, allow_pickle=True)


def test_a_damaged_length_does_not_blame_the_memory(tmp_path):
    path = tmp_path / "hw.pickle"
    path.write_bytes(b"\x80\x04\x8e" + (2**62).to_bytes(8, "little"))
    with (
        pytest.warns(UserWarning, match="read as a pickle"),
        pytest.raises(ValueError, match=r"hw\.pickle' (is damaged or does not fit|is not HW-NAS-Bench)"),
    ):
        import_benchmark("hw_nas_bench", path, allow_pickle=True)


def test_pickles_are_only_read_on_request(tmp_path):
    path = write_hw_nas_bench(tmp_path)
    with pytest.raises(ValueError, match="can run any code when they are read: use --allow-pickle"):
        import_benchmark("hw_nas_bench", path)
    assert [name for name, file_format in FORMATS.items() if file_format.is_pickle] == [
        *("nasbench201", "nats_size", "hw_nas_bench", "hw_gpt_bench")
    ]


def test_unknown_formats_and_missing_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no format 'nasbench202'; did you mean nasbench201"):
        import_benchmark("nasbench202", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing at .* expected NAS-Bench-201-v1_1"):
        import_benchmark("nasbench201", tmp_path / "none.pth")


def test_rows_and_numbers_of_a_parquet_file_that_are_not_valid_are_left_out(tmp_path):
    valid = {"identifier": "a", "space": "NB201", "arch_str": CELL_NOTATIONS[0], "val_accuracy": 91.0}
    records = [
        valid | {"metadata": "{'lat_pixel3': 3.0}"},
        valid | {"metadata": "{'lat_pixel3': -1.0}"},
        valid | {"metadata": "{'lat_pixel3': 'fast', 'lat_a b': 1.0}"},
        valid | {"metadata": "{'lat_pixel3': 3.0}", "val_accuracy": 910.0},
        valid | {"metadata": "not a dict"},
        valid | {"metadata": "{}", "arch_str": ""},
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet")
    with pytest.warns(UserWarning) as warnings:
        rows = import_benchmark("parquet", tmp_path / "t.parquet")
    assert [row.targets for row in rows] == [
        {"accuracy": 91.0, "latency/pixel3": 3.0},
        {"accuracy": 91.0},
        {"accuracy": 91.0},
        {"latency/pixel3": 3.0},
    ]
    assert sorted(str(w.message).partition(" not valid")[0] for w in warnings) == [
        *("1 entry of accuracy is", "1 entry of latency/a b is"),
        *("2 entries are", "2 entries of latency/pixel3 are"),
    ]
    write(tmp_path / "out.parquet", rows)
    with pytest.raises(ValueError, match=r"latency/pixel3 of 'a' is -1.0, expected a number"):
        read(tmp_path / "t.parquet")


def test_records_of_snas_that_are_not_valid_are_left_out(tmp_path):
    space = search_spaces.get("snas")
    cell = str(space.sample(np.random.default_rng(0)))
    record = {"uid": "snas-0", "arch_str": cell, "val_accuracy": 50.0, "params": 5, "flops": 7, "seed": 0}
    changes = (
        {"val_accuracy": "high"},
        {"arch_str": "x"},
        {"arch_str": None},
        {"params": -1},
        {"uid": "\ud800"},
    )
    lines = [json.dumps(record | change) for change in ({}, {"val_accuracy": None}, *changes)]
    path = tmp_path / "snas.jsonl"
    path.write_text("\n".join([*lines, "[]", "{", ""]))
    with pytest.warns(UserWarning) as warnings:
        rows = import_benchmark("snas", path)
    assert [row.targets.keys() for row in rows] == [
        {"accuracy", "params", "flops"},
        {"params", "flops"},
        {"accuracy", "flops"},
    ]
    assert sorted(str(w.message).partition(" not valid")[0] for w in warnings) == [
        *("1 entry of accuracy is", "1 entry of params is", "5 entries are"),
    ]
