import json

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import search_spaces
from nas_rlm.benchmarks.reading import cases_of_index, cases_of_table, read_case, summarize
from nas_rlm.cli import main

SPACE = search_spaces.get("nats_size")
ARCHITECTURE = SPACE.parse("8:16:24:32:40")
CONTENT = SPACE.to_onnx(ARCHITECTURE).SerializeToString()


@pytest.fixture
def table(tmp_path):
    macs = SPACE.flops(ARCHITECTURE)
    rows = {
        "identifier": ["right", "wrong", "broken"],
        "family": ["a", "a", "b"],
        "onnx": [CONTENT, CONTENT, b"\x08"],
        "macs": [macs, 2 * macs, 1],
    }
    pq.write_table(pa.table(rows), tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


def test_counts_are_compared_with_the_reference(table):
    readings = [read_case(case, list) for case in cases_of_table(table)]
    assert [r.deviation for r in readings] == [0.0, -0.5, None]
    assert [r.is_read for r in readings] == [True, True, False]
    summary = summarize(readings)
    assert (summary.files, summary.read, summary.exact) == (3, pytest.approx(2 / 3), 0.5)


def test_an_index_names_files_and_shapes(tmp_path):
    onnx.save(SPACE.to_onnx(ARCHITECTURE), tmp_path / "net.onnx")
    lines = [{"file": "net.onnx", "macs": SPACE.flops(ARCHITECTURE)}, {"file": None}]
    (tmp_path / "index.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (case,) = cases_of_index(tmp_path / "index.jsonl")
    assert read_case(case, list).deviation == 0


def test_the_verb_lists_wrong_counts(table, tmp_path, capsys):
    assert main(["bench", "reading", str(table), "--out", str(tmp_path / "r.jsonl")]) == 0
    output = capsys.readouterr().out
    assert "wrong: " in output
    assert "broken: " in output
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) >= 3
    assert main(["bench", "reading"]) == 2
