"""Parquet files of ONNX networks."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nas_rlm.data import network_files, read, splits
from nas_rlm.data.importers.registry import import_benchmark
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model

CELL = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"
DATA = Path(os.environ.get("NAS_RLM_DATA", "")) / "networks"


def model(columns):
    return small_model("y = MatMul(x, w)", f"float[2,{columns}] x", {"w": (columns, 4)})


def network(name, columns=8, **values):
    return {"identifier": name, "onnx": model(columns).SerializeToString(), **values}


def write(path, *rows):
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.Table.from_pylist([dict.fromkeys(names) | row for row in rows]), path)
    return path


def test_networks_of_families_and_cells_have_latencies(tmp_path):
    path = write(
        tmp_path / "nnmeter.parquet",
        network(
            "vgg11_0", family="vgg", macs=5.0, lat_cortexA76cpu_tflite21=3.5, lat_adreno640gpu_tflite21=None
        ),
        {"identifier": "cell", "arch_str": CELL, "family": "nasbench201", "lat_cortexA76cpu_tflite21": 2.5},
    )
    table = read(path)
    first, cell = table.rows
    assert (first.space, first.group, first.identifier) == ("nnmeter", "vgg", "vgg11_0")
    assert first.targets == {"latency/cortexA76cpu": 3.5} and first.input == from_onnx(model(8))
    assert (cell.space, cell.arch_str, cell.input, cell.group) == ("nasbench201", CELL, "", "nasbench201")
    assert table.objectives == ["latency/cortexA76cpu"]


def test_models_have_accuracies_and_latencies_of_variants(tmp_path):
    path = write(
        tmp_path / "timm.parquet",
        network(
            "resnet50@224",
            model="resnet50",
            size=224,
            top1=80.8,
            top1_any=81.1,
            ms_4090_amp_pt240=0.3,
            ms_4090_amp_pt291=0.2,
            ms_i7_fp32_pt240=30.0,
        ),
        network(
            "vit_tiny@224",
            model="vit_tiny",
            size=224,
            top1=None,
            top1_any=75.0,
            ms_4090_amp_pt240=None,
            ms_4090_amp_pt291=None,
            ms_i7_fp32_pt240=None,
        ),
    )
    first, second = read(path).rows
    assert first.targets == {
        **{"accuracy/imagenet": 80.8, "accuracy/imagenet_any": 81.1},
        **{"latency/4090_amp_pt240": 0.3, "latency/4090_amp_pt291": 0.2},
        "latency/i7": 30.0,
    }
    assert second.targets == {"accuracy/imagenet_any": 75.0}
    assert (first.group, second.group) == ("resnet", "vit")


def test_a_table_may_have_a_column_of_networks(tmp_path):
    values = {"space": "s", "input": from_onnx(model(8)), "metadata": "{'lat_x': 3.0}"}
    (row,) = read(write(tmp_path / "n.parquet", network("a", lat_x=1.0, **values))).rows
    assert (row.space, row.targets) == ("s", {"latency/x": 3.0})


def test_families_are_kept_together_by_a_split_by_group(tmp_path):
    rows = [network(f"{f}_{i}", 2 + i + 9 * k, family=f) for k, f in enumerate("abcdefgh") for i in range(4)]
    train, validation = splits.split(read(write(tmp_path / "n.parquet", *rows)), 0.5, by_group=True)
    groups = [{row.group for row in table.rows} for table in (train, validation)]
    assert groups[0] | groups[1] == set("abcdefgh") and not groups[0] & groups[1] and all(groups)


@pytest.mark.parametrize("content", [b"no ONNX file", b"\x00", b""])
def test_a_network_that_cannot_be_read_is_an_error_or_left_out(tmp_path, content):
    path = write(
        tmp_path / "n.parquet",
        network("good", lat_x=1.0),
        {"identifier": "bad", "onnx": content, "lat_x": 2.0},
    )
    with pytest.raises(ValueError, match=r"n\.parquet.*bad"):
        read(path)
    with pytest.warns(UserWarning, match="1 entry is not valid and was left out: row 2.*bad"):
        rows = import_benchmark("parquet", path)
    assert [row.identifier for row in rows] == ["good"]


def test_numbers_that_are_not_valid_are_left_out(tmp_path):
    path = write(tmp_path / "n.parquet", network("a", lat_x=-1.0, lat_y=2.0))
    with pytest.raises(ValueError, match=r"latency/x of 'a' is -1\.0, expected a number"):
        read(path)
    with pytest.warns(UserWarning, match="latency/x"):
        (row,) = import_benchmark("parquet", path)
    assert row.targets == {"latency/y": 2.0}


def test_texts_are_cached_by_the_content_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("NAS_RLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(network_files, "MIN_CACHED_NETWORKS", 1)
    path = write(tmp_path / "n.parquet", network("a"))
    first = read(path).rows
    monkeypatch.setattr(network_files, "from_onnx", None)
    assert read(path).rows == first
    write(path, network("a", 9))
    with pytest.raises(ValueError, match="not callable"):
        read(path)


@pytest.mark.skipif(not (DATA / "timm.parquet").is_file(), reason="no networks at NAS_RLM_DATA")
def test_the_tables_of_networks_are_read(tmp_path):
    for name in ("nnmeter", "timm"):
        table = pq.ParquetFile(DATA / f"{name}.parquet")
        batch = next(table.iter_batches(8))
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / f"{name}.parquet")
        rows = read(tmp_path / f"{name}.parquet").rows
        assert len(rows) == 8 and all(row.targets and row.group and row.input for row in rows)
