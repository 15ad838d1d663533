import json
import re

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import search_spaces
from nas_rlm.benchmarks.robustness.reading import cases_of_index, cases_of_table, read_case, summarize
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


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("garbage", "line 1: 'garbage' is not JSON"),
        ('{"file": "net.onnx"}\n{"file": "net.onnx"', "line 2: .* is not JSON"),
        ("[1]", r"line 1: '\[1\]' is no object with a file"),
        ('\n\n{"shapes": {}}', "line 3: .* is no object with a file"),
        ('{"file": 3}', "line 1: file is 3: expected a text"),
        ('{"file": ""}', "line 1: file is '': expected a text"),
        ('{"file": "net.onnx", "group": 1}', "line 1: group is 1: expected a text"),
        ('{"file": "net.onnx", "shapes": "x"}', "line 1: shapes is 'x': expected lists of sizes by name"),
        ('{"file": "net.onnx", "shapes": {"x": 3}}', "line 1: shapes is .*: expected lists of sizes"),
        ('{"file": "net.onnx", "macs": "y"}', "line 1: macs is 'y': expected a number"),
        ('{"file": "net.onnx", "macs": NaN}', "line 1: macs is nan: expected a number"),
        ('{"file": "net.onnx", "macs_ort": -1}', "line 1: macs_ort is -1: expected a number"),
        ('{"file": "net.onnx", "macs": true}', "line 1: macs is True: expected a number"),
        ('{"file": "nope.onnx"}', "line 1: no ONNX file at .*nope.onnx"),
        ('{"file": "."}', "line 1: .* is a directory: expected an ONNX file"),
        ("", "lists no ONNX files"),
        ('{"file": null}', "lists no ONNX files"),
        (b"\xff\xfe", "is not text in UTF-8: expected an index of JSON lines"),
    ],
)
def test_other_indices_have_one_clear_error(tmp_path, lines, message, capsys):
    onnx.save(SPACE.to_onnx(ARCHITECTURE), tmp_path / "net.onnx")
    (tmp_path / "index.jsonl").write_bytes(lines.encode() if isinstance(lines, str) else lines)
    assert main(["bench", "reading", str(tmp_path / "index.jsonl")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "index.jsonl" in captured.err and re.search(message, captured.err)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"identifier": ["a"]}, "has no column onnx, it has identifier: expected a parquet table with"),
        ({"name": ["a"], "content": [b""]}, "has no column identifier and onnx, it has name, content"),
        ({"identifier": [1], "onnx": [b"x"]}, "the column identifier has the type int64: expected texts"),
        ({"identifier": ["a"], "onnx": ["x"]}, "the column onnx has the type string: expected bytes"),
        (
            {"identifier": ["a"], "onnx": [b"x"], "macs": ["1"]},
            "the column macs has the type string: expected numbers",
        ),
        ({"identifier": ["a"], "onnx": [b""]}, "lists no ONNX files"),
        (None, "is not a parquet table with the columns identifier and onnx"),
        ((), "there is no file .*table.parquet': expected a parquet table"),
    ],
)
def test_other_tables_have_one_clear_error(tmp_path, columns, message, capsys):
    path = tmp_path / "table.parquet"
    if columns:
        pq.write_table(pa.table(columns), path)
    elif columns is None:
        path.write_text("no table")
    assert main(["bench", "reading", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "table.parquet" in captured.err and re.search(message, captured.err)


@pytest.mark.parametrize("option", [("--step", "0"), ("--refused", "-1")])
def test_options_out_of_range_are_refused(option, table, capsys):
    assert main(["bench", "reading", str(table), *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_a_missing_index_has_one_clear_error(tmp_path, capsys):
    assert main(["bench", "reading", str(tmp_path / "nope.jsonl")]) == 2
    assert "there is no file" in capsys.readouterr().err
