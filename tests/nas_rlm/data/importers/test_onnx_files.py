"""CSV files of numbers that belong to ONNX files."""

import onnx
import pytest

from nas_rlm.cli import main
from nas_rlm.data import read as read_table
from nas_rlm.data.importers.registry import import_benchmark
from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import small_model

MACS, PARAMS = 2 * 8 * 4, 8 * 4


@pytest.fixture(autouse=True)
def files(tmp_path):
    for name, rows in (("a", 2), ("b", 3)):
        onnx.save(
            small_model("y = MatMul(x, w)", f"float[{rows},8] x", {"w": (8, 4)}), tmp_path / f"{name}.onnx"
        )


def rows_of(tmp_path, content):
    path = tmp_path / "numbers.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return import_benchmark("onnx", path)


@pytest.mark.parametrize(
    "content",
    [
        "file,accuracy,space\na.onnx,71.5,mine\n",
        "\n\n space , file, accuracy\n\n mine , a.onnx , 71.5\n,,\n",
        "file,accuracy,space\r\na.onnx,71.5,mine\r\n",
        b"\xef\xbb\xbffile,accuracy,space\na.onnx,71.5,mine",
        'file,accuracy,space\n"a.onnx","71.5","mine"\n',
        "file,accuracy,space,flops,params\na.onnx,71.5,mine,,\n",
        "File;Accuracy;space\na.onnx;71.5;mine\n",
        "file\taccuracy\tspace\na.onnx\t71.5\tmine\n",
        "file,accuracy,space\na.onnx,71.5,mine\n./a.onnx,71.5,mine\n",
    ],
)
def test_lines_become_rows(tmp_path, content):
    (row,) = rows_of(tmp_path, content)
    assert (row.space, row.targets, row.identifier) == ("mine", {"accuracy": 71.5}, "a.onnx")
    assert row.input == from_onnx(tmp_path / "a.onnx")


@pytest.mark.parametrize("flops", [str(MACS), "6.4e1", f"{MACS}.0"])
def test_costs_of_the_network_may_be_given(tmp_path, flops):
    (row,) = rows_of(tmp_path, f"file,flops,params\na.onnx,{flops},{PARAMS}\n")
    assert row.targets == {"flops": MACS, "params": PARAMS}


def test_objectives_may_be_of_any_kind(tmp_path):
    (row,) = rows_of(tmp_path, "file,loss/val,latency/mybox\na.onnx,-1.5,2\n")
    assert row.targets == {"loss/val": -1.5, "latency/mybox": 2}


def test_vertical_bars_separate_columns(tmp_path):
    (row,) = rows_of(tmp_path, "accuracy | file\n71.5 | a.onnx\n")
    assert row.targets == {"accuracy": 71.5}


def test_a_file_may_occur_in_several_spaces(tmp_path):
    assert len(rows_of(tmp_path, "file,space,accuracy\na.onnx,s,70\na.onnx,t,71\nb.onnx,s,72\n")) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no lines: expected a header"),
        ("accuracy / file\n71.5/a.onnx\n", "has the columns accuracy / file: expected file, with paths"),
        ("net,accuracy\na.onnx,71.5\n", "has the columns net, accuracy: expected file, with paths"),
        ("file,accuracy,accuracy\na.onnx,1,2\n", "two columns have the name 'accuracy'"),
        ("file\na.onnx\n", "has no column of numbers whose name is an objective"),
        ("file,space\na.onnx,s\n", "has no column of numbers whose name is an objective"),
        ("file,score\na.onnx,1\n", "has no column of numbers whose name is an objective"),
        ("file,accuracy\na.onnx,71,5\n", "line 2: 3 cells, of which the first is 'a.onnx': expected 2"),
        ("file,accuracy\n\nb.onnx,1\na.onnx\n", "line 4: 1 cell, of which the first is 'a.onnx': expected 2"),
        ('file,accuracy\n"a.onnx,71.5\n', 'line 2: a cell that starts with " has no second one'),
        ("file,accuracy\n,71.5\n", "line 2 has no file"),
        ("file,flops\nb.onnx,\na.onnx,128\n", "line 3 has flops 128, but 'a.onnx' has 64 multiply-acc"),
        ("file,params\na.onnx,31\n", "line 2 has params 31, but 'a.onnx' has 32 parameters"),
        ("file,accuracy\n", "has only a header"),
        ("file,accuracy\na.onnx,abc\n", "no column of numbers whose name is an objective"),
        ("file,accuracy\na.onnx,7\nb.onnx,abc\n", "line 3, column accuracy: 'abc' is not valid for accuracy"),
        ("file,accuracy\na.onnx,7\nb.onnx,172\n", "line 3, column accuracy: '172' is not valid for accuracy"),
        ("file;latency/x\na.onnx;7,5\n", "line 2, column latency/x: '7,5' has a comma"),
        ("file,latency/x\na.onnx,1e30\n", "line 2, column latency/x: '1e30' is not valid for latency/x"),
        ("file,accuracy\nc.onnx,1\n", "no ONNX file can be read: line 2, c.onnx: no ONNX file at"),
        (b"file,accuracy\n\xe9.onnx,1\n", "is not text in UTF-8"),
    ],
)
def test_other_files_have_one_clear_error(tmp_path, content, message, capsys):
    with pytest.raises(ValueError, match=message) as error:
        rows_of(tmp_path, content)
    assert str(error.value).count("numbers.csv") >= 1 and "\n" not in str(error.value)
    out = tmp_path / "new" / "t.parquet"
    before = sorted(tmp_path.iterdir())
    assert main(["data", "import", "onnx", str(tmp_path / "numbers.csv"), "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_lines_that_are_left_out_are_named(tmp_path, capsys):
    (tmp_path / "numbers.csv").write_text("file,accuracy\na.onnx,70\nc.onnx,71\nb.onnx,NA\n")
    out = tmp_path / "t.parquet"
    assert main(["data", "import", "onnx", str(tmp_path / "numbers.csv"), "--out", str(out)]) == 0
    error = capsys.readouterr().err
    assert "line 3, c.onnx: no ONNX file" in error
    assert [row.targets for row in read_table(out).rows] == [{"accuracy": 70}, {}]


def test_objectives_and_the_space_may_be_given(tmp_path, capsys):
    lines = ["file,top,ms,seed", "a.onnx,70,2,1", "b.onnx,71,3,2", "b.onnx,72,3,3"]
    (tmp_path / "numbers.csv").write_text("\n".join(lines))
    out = tmp_path / "t.parquet"
    command = ["data", "import", "onnx", str(tmp_path / "numbers.csv"), "--out", str(out), "--space", "mine"]
    assert main([*command, "--objective", "accuracy=top"]) == 0
    shown = capsys.readouterr()
    assert "accuracy from column top: 3 values from 70 to 72, in %" in shown.out
    assert "columns that are not used: ms, seed" in shown.out
    assert "contradict an earlier line: 1, each kept as a row; models learn from all" in shown.out
    assert "column 'ms' is not used; are these latencies in milliseconds?" in shown.err
    assert [(row.space, row.targets["accuracy"]) for row in read_table(out).rows] == [
        *(("mine", 70), ("mine", 71), ("mine", 72))
    ]


def test_files_in_nested_directories_have_several_objectives_and_missing_values(tmp_path):
    for name, folder in (("a", "x"), ("b", "x/y")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.onnx").rename(tmp_path / folder / f"{name}.onnx")
    content = "file,accuracy,latency/box,loss/val\nx/a.onnx,70,,-1\nx/y/b.onnx,NA,2.5,-\n"
    first, second = rows_of(tmp_path, content)
    assert first.targets == {"accuracy": 70, "loss/val": -1}
    assert (second.targets, second.identifier) == ({"latency/box": 2.5}, "x/y/b.onnx")


def test_input_shapes_are_those_of_the_files_with_open_sizes(tmp_path):
    (tmp_path / "x").mkdir()
    for name in ("c", "d"):
        path = tmp_path / "x" / f"{name}.onnx"
        onnx.save(small_model("y = MatMul(x, w)", "float[n,m,8] x", {"w": (8, 4)}), path)
    path, out = tmp_path / "numbers.csv", tmp_path / "t.parquet"
    path.write_text("file,accuracy,flops\nx/c.onnx,1,\nx/d.onnx,2,160\n")
    command = ["data", "import", "onnx", str(path), "--input-shape", "x:1x5x8", "--out", str(out)]
    assert main(command) == 0
    rows = read_table(out).rows
    assert [row.targets for row in rows] == [{"accuracy": 1}, {"accuracy": 2, "flops": 160}]
    assert all("float[1,5,8]" in row.input for row in rows)


@pytest.mark.parametrize("content", [b"", b"no ONNX file", b"\x08\x08", "directory"])
def test_a_bad_file_is_left_out(tmp_path, content):
    bad = tmp_path / "bad.onnx"
    bad.mkdir() if content == "directory" else bad.write_bytes(content)
    with pytest.warns(UserWarning, match="1 entry is not valid and was left out: line 3, bad.onnx"):
        (row,) = rows_of(tmp_path, "file,accuracy\na.onnx,70\nbad.onnx,71\n")
    assert row.identifier == "a.onnx"
