import json
import pickle
import subprocess
import sys

import numpy as np

from nas_rlm.cli import main
from nas_rlm.data import read, write
from tests.nas_rlm.cli.commands import refused


def test_data_import_writes_a_table_or_nothing(tmp_path, capsys):
    net = {"block_type": "res_basic_block", "ds": [1, 1, 1], "ws": [16, 16, 16], "ss": [1, 2, 2]}
    entries = [{"net": net, "test_ep_top1": [50.0, 8.0], "params": 10, "flops": 20}]
    (tmp_path / "ResNet.json").write_text(json.dumps(entries))
    out = tmp_path / "table.parquet"
    assert main(["data", "import", "nds", str(tmp_path / "ResNet.json"), "--out", str(out)]) == 0
    assert "1 row:" in capsys.readouterr().out
    (row,) = read(out).rows
    assert (row.space, row.targets["accuracy"]) == ("nds_resnet", 92.0)
    (tmp_path / "ResNet.json").write_text("[")
    other = tmp_path / "other.parquet"
    line = refused(capsys, "data", "import", "nds", tmp_path / "ResNet.json", "--out", other)
    assert "is not a JSON file of the nds repository" in line
    assert not other.exists()
    line = refused(capsys, "data", "import", "nasbench201", tmp_path / "ResNet.json", "--out", other)
    assert "--allow-pickle" in line
    table = out.read_bytes()
    line = refused(capsys, "data", "import", "parquet", out, "--out", tmp_path / "." / "table.parquet")
    assert "is the file to read: choose another" in line
    assert out.read_bytes() == table
    assert "did you mean nds" in refused(capsys, "data", "import", "ndss", tmp_path, "--out", other)


def test_an_import_of_labels_needs_no_torch(tmp_path):
    """It takes most of the time of a start."""
    labels, out = tmp_path / "labels.csv", tmp_path / "labels.parquet"
    labels.write_text("architecture,accuracy\n64:32:48:8:16,91.2\n")
    arguments = ["data", "import", "csv", str(labels), "--space", "nats_size", "--out", str(out)]
    program = f"import sys; sys.modules['torch'] = None; from nas_rlm.cli import main; main({arguments!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    assert read(out).rows[0].targets == {"accuracy": 91.2}


def test_snas_generate_and_import(tmp_path, capsys):
    rng, folder = np.random.default_rng(0), tmp_path / "cifar"
    folder.mkdir()
    for name in ("data_batch_1", "test_batch"):
        content = {
            b"data": rng.integers(256, size=(20, 3072), dtype=np.uint8),
            b"labels": rng.integers(10, size=20).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(content))
    out = tmp_path / "snas.jsonl"
    command = ["snas", "generate", "--images", str(folder), "--out", str(out), "--steps", "1"]
    assert main([*command, "--batch-size", "4", "--count", "1"]) == 0
    assert main([*command, "--batch-size", "4", "--count", "2"]) == 0
    assert "2 records, 0 of them failed" in capsys.readouterr().out
    assert "batch_size 4, not 8" in refused(capsys, *command, "--batch-size", "8", "--count", "3")
    assert "--count is 0" in refused(capsys, *command, "--count", "0")
    assert main(["data", "import", "snas", str(out), "--out", str(tmp_path / "snas.parquet")]) == 0
    assert [r.space for r in read(tmp_path / "snas.parquet").rows] == ["snas", "snas"]


def test_a_csv_file_becomes_a_table_by_one_command(tmp_path, capsys):
    path, out = tmp_path / "mine.csv", tmp_path / "mine.parquet"
    path.write_text("net,top1,score,seed\n8:8:8:8:8,0.71,-2.5,1\n64:32:48:8:16,0.9,3,1\n")
    command = ["data", "import", "csv", str(path), "--space", "nats_size", "--architecture", "net"]
    named = [*command, "--objective", "accuracy=top1", "score"]
    declared = ["--maximise", "score", "--unit", "score=points", "--out", str(out)]
    assert main([*named, *declared]) == 0
    printed = capsys.readouterr()
    assert "2 rows" in printed.out and "columns that are not used: seed" in printed.out
    assert "accuracy is at most 0.9: expected percentages" in printed.err
    table = read(out)
    assert table.maximised == ("score",) and table.declarations["score"].unit == "points"
    assert [row.targets for row in table.rows] == [
        {"accuracy": 0.71, "score": -2.5},
        {"accuracy": 0.9, "score": 3.0},
    ]
    copy = tmp_path / "copy.parquet"
    assert main(["data", "import", "parquet", str(out), "--out", str(copy)]) == 0
    assert read(copy).declarations == table.declarations
    before = out.read_bytes()
    for changed, message in (
        ([*command, "--objective", "top2"], "has no column 'top2' for top2; did you mean top1?"),
        ([*command, "--objective", "accuracy="], "--objective is 'accuracy=': expected OBJECTIVE=COLUMN"),
        ([*command, "--objective", "a=top1", "a=seed"], "names 'a' twice"),
        ([*named, "--maximise", "scores"], "no row has 'scores'; did you mean score?"),
        ([*named, "--unit", "accuracy=share"], "accuracy is in %, not share: expected values in %"),
        ([*command, "--objective", "loss=net"], "line 2, column net: '8:8:8:8:8' is not valid for loss"),
        (["data", "import", "onnx", str(path), "--architecture", "net"], "is for csv, not for onnx"),
    ):  # fmt: skip
        assert message in refused(capsys, *changed, "--out", out)
    assert out.read_bytes() == before


def test_an_import_of_onnx_files_says_what_it_read(tmp_path, cell_files, capsys):
    path = tmp_path / "measured.csv"
    lines = [f"{file.name},{2 + i}.5,1" for i, file in enumerate(cell_files)]
    path.write_text("\n".join(["file,latency/mybox,ms", *lines]) + "\n")
    assert main(["data", "import", "onnx", str(path), "--out", str(tmp_path / "table.parquet")]) == 0
    captured = capsys.readouterr()
    assert "latency/mybox from column latency/mybox: 2 values from 2.5 to 3.5, in ms" in captured.out
    assert "'ms' is not used; are these latencies in milliseconds?" in captured.err
    assert "latency/mydevice=ms" in captured.err


def test_repeated_rows_of_a_table_are_counted(tmp_path, table, capsys):
    twice = tmp_path / "twice.parquet"
    write(twice, [*read(table).rows, *read(table).rows[:2]])
    assert main(["data", "import", "parquet", str(twice), "--out", str(tmp_path / "copy.parquet")]) == 0
    assert "the network or program of an earlier row: 2, each kept" in capsys.readouterr().out


def test_programs_in_another_language_than_their_column_says_are_named(tmp_path, capsys):
    lines = ["language,code,time", 'Java,"def f(x):\n    return x",1', "Python 3,f(,2", "Python,x = 1,3"]
    (tmp_path / "solutions.csv").write_text("\n".join(lines))
    out = tmp_path / "table.parquet"
    assert main(["data", "import", "programs", str(tmp_path / "solutions.csv"), "--out", str(out)]) == 0
    shown = capsys.readouterr().err
    assert "programs in another language than the column says: line 3 is not Java" in shown
    assert "(its content is Python) and 1 other" in shown
    assert len(read(out).rows) == 3
