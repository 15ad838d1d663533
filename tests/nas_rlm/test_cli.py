import csv
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import nas_rlm
import nas_rlm.text
import search_spaces
from nas_rlm.cli import main
from nas_rlm.data import Row, read, write

SPACE = search_spaces.get("nasbench201")
ARCHS = [str(SPACE.sample(np.random.default_rng(seed))) for seed in range(6)]
SEARCH = ("search", "--space", "nasbench201", "--population", "6", "--generations", "3")


@pytest.fixture
def model(tiny_checkpoint):
    return ("--model", str(tiny_checkpoint))


@pytest.fixture
def archs(tmp_path):
    path = tmp_path / "archs.txt"
    path.write_text("".join(f"{a}\n" for a in ARCHS))
    return ("--space", "nasbench201", "--archs", str(path))


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def refused(capsys, *arguments):
    """The one line that a bad command line gets."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("nas-rlm: error: ")] == lines[-1:]
    return lines[-1]


def test_spaces_lists_every_space(capsys):
    assert main(["spaces"]) == 0
    shown = capsys.readouterr().out
    for name in search_spaces.names():
        assert name in shown
    assert "15,625" in shown


def test_help_of_every_command(capsys):
    for command in ([], ["search"], ["predict"], ["tokenizer", "train"], ["bench", "search"], ["finetune"]):
        assert main([*command, "--help"]) == 0
        assert "Usage: nas-rlm" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert nas_rlm.__version__ in capsys.readouterr().out


def test_export_writes_graphs_and_the_text_of_each(tmp_path):
    assert (
        main(
            [
                "export",
                "--space",
                "nasbench201",
                "--arch",
                *ARCHS[:2],
                "--sample",
                "2",
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    listed = (tmp_path / "archs.txt").read_text().splitlines()
    assert listed[:2] == ARCHS[:2]
    assert len(listed) == 4
    for i, name in enumerate(listed):
        model = onnx.load(tmp_path / f"{i:03d}.onnx")
        assert model == SPACE.to_onnx(SPACE.parse(name))
        assert (tmp_path / f"{i:03d}.txt").read_text() == nas_rlm.text.from_onnx(model)


def test_exported_weights_run(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    main(["export", "--space", "nasbench201", "--arch", ARCHS[0], "--out", str(tmp_path), "--weights"])
    session = onnxruntime.InferenceSession(tmp_path / "000.onnx")
    image = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    assert np.isfinite(session.run(None, {session.get_inputs()[0].name: image})[0]).all()


def test_predict_has_a_row_for_each_in_order(tmp_path, model, archs, tiny_checkpoint):
    out = tmp_path / "out.csv"
    arguments = ["--objectives", "accuracy,latency/pixel3", "--quantiles", ".1,.9", "--out", str(out)]
    assert main(["predict", *model, *archs, *arguments]) == 0
    found = rows(out)
    assert [r["arch"] for r in found] == ARCHS
    assert list(found[0]) == [
        "arch",
        "accuracy",
        "latency/pixel3",
        "accuracy@0.1",
        "accuracy@0.9",
        "latency/pixel3@0.1",
        "latency/pixel3@0.9",
    ]
    expected = nas_rlm.RLM.load(tiny_checkpoint).predict(SPACE, ARCHS, ["accuracy", "latency/pixel3"])
    written = [[float(r["accuracy"]), float(r["latency/pixel3"])] for r in found]
    assert written == pytest.approx(expected)
    assert all(float(r["accuracy@0.1"]) <= float(r["accuracy"]) <= float(r["accuracy@0.9"]) for r in found)


def test_predict_reads_onnx_files_and_says_the_same_of_them(tmp_path, model, archs, capsys):
    main(["export", "--space", "nasbench201", "--arch", *ARCHS, "--out", str(tmp_path / "nets")])
    files = [str(tmp_path / "nets" / f"{i:03d}.onnx") for i in range(len(ARCHS))]
    main(["predict", *files, *model, "--objectives", "accuracy", "--out", str(tmp_path / "a.csv")])
    main(["predict", *archs, *model, "--objectives", "accuracy", "--out", str(tmp_path / "b.csv")])
    from_files, from_space = rows(tmp_path / "a.csv"), rows(tmp_path / "b.csv")
    assert [r["arch"] for r in from_files] == files
    assert [r["accuracy"] for r in from_files] == [r["accuracy"] for r in from_space]


def test_rank_puts_the_best_first(tmp_path, model, archs):
    main(
        [
            "rank",
            *model,
            *archs,
            "--by",
            "latency/pixel3",
            "--objectives",
            "accuracy",
            "--out",
            str(tmp_path / "l.csv"),
        ]
    )
    main(["rank", *model, *archs, "--by", "accuracy", "--top", "3", "--out", str(tmp_path / "a.csv")])
    latencies = [float(r["latency/pixel3"]) for r in rows(tmp_path / "l.csv")]
    accuracies = [float(r["accuracy"]) for r in rows(tmp_path / "a.csv")]
    assert latencies == sorted(latencies)
    assert len(latencies) == 6
    assert accuracies == sorted(accuracies, reverse=True)
    assert len(accuracies) == 3


def test_predictions_go_to_stdout_without_out(model, archs, capsys):
    assert main(["rank", *model, *archs, "--by", "accuracy", "--top", "1"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "arch,accuracy"
    assert row.rsplit(",", 1)[0] in ARCHS


def test_search_resume_and_plot(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--resume"]) == 0
    assert str(tmp_path / "run" / "pareto.png") in capsys.readouterr().out
    kept = {n: (tmp_path / "run" / n).read_bytes() for n in ("front.csv", "log.jsonl", "pareto.png")}
    assert kept["log.jsonl"].count(b"\n") == 18
    (tmp_path / "run" / "log.jsonl").write_bytes(kept["log.jsonl"][:1000])
    (tmp_path / "run" / "front.csv").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert {n: (tmp_path / "run" / n).read_bytes() for n in kept} == kept
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == kept["pareto.png"]
    for name in ("again.svg", "again.pdf", "again.jpg"):
        assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 10_000


def test_search_refuses_the_folder_of_another(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy", "--out", str(tmp_path / "run")]
    main(arguments)
    assert "--resume" in refused(capsys, *arguments)
    assert "seed 0 where 1" in refused(capsys, *arguments, "--resume", "--seed", "1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes")
    assert "holds no search" in refused(capsys, *arguments[:-1], tmp_path / "mine", "--resume")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_search_with_constraints_that_nothing_meets_says_so(tmp_path, model, capsys):
    bound = ("--constraint", "latency/pixel3<=-1")
    line = refused(capsys, *SEARCH, *model, *bound, "--objectives", "accuracy", "--out", tmp_path / "run")
    assert "none within latency/pixel3<=-1" in line
    assert not (tmp_path / "run" / "front.csv").exists()


def test_what_the_model_never_saw_is_one_line_on_stderr(tmp_path, capsys, shipped_rlm):
    space = search_spaces.get("nats_size")
    (tmp_path / "archs.txt").write_text(f"{space.sample(np.random.default_rng(0))}\n")
    files = ("--space", "nats_size", "--archs", str(tmp_path / "archs.txt"))
    assert main(["predict", *files, "--objectives", "accuracy,latency/pixel3"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "nas-rlm: warning: the model has never seen latency/pixel3 of nats_size" in shown.err
    assert main(["predict", *files, "--objectives", "accuracy"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_folders_that_are_not_empty_are_left_alone(tmp_path, model, table, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    for arguments in (
        ["export", "--space", "nasbench201", "--sample", "1"],
        ["finetune", *model, "--data", table, "--objectives", "accuracy"],
    ):
        assert "is not empty" in refused(capsys, *arguments, "--out", tmp_path)
    assert "is a folder" in refused(capsys, "tokenizer", "train", "tokenizer", "--out", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "table.parquet"]


def test_bench_search_prints_a_line_for_each_method(tmp_path, model, capsys):
    names = ("accuracy", "latency/pixel3", "latency/eyeriss")
    path = tmp_path / "cells.parquet"
    write(
        path,
        [
            Row("nasbench201", a, dict(zip(names, (90.0 + i, 5.0 + i, 3.0), strict=True)))
            for i, a in enumerate(ARCHS)
        ],
    )
    size = ("--population", "4", "--generations", "2", "--seeds", "2")
    assert main(["bench", "search", *model, "--data", str(path), *size]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3:5] for line in lines[1:]] == [
        [m, "8"] for m in ("nsga2", "random", "measured")
    ] * 2
    assert "seeds is 0" in refused(capsys, "bench", "search", *model, "--data", path, "--seeds", "0")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["export", "--space", "nasbnech201", "--sample", "1"], ["'nasbnech201'", "nasbench201"]),
        (["export", "--space", "nasbench201"], ["--arch", "--sample"]),
        (["export", "--space", "nasbench201", "--arch", ARCHS[0].replace("~0", "~7", 1)], ["~7"]),
        (
            ["export", "--space", "nasbench201", "--arch", "|conv_9x9~0|+" + ARCHS[0].split("+", 1)[1]],
            ["conv_9x9"],
        ),
        (["predict", "absent.onnx", "--objectives", "accuracy"], ["no ONNX file", "absent.onnx"]),
        (["predict", "--objectives", "accuracy"], ["ONNX files", "--space and --archs"]),
        (["predict", "--space", "nasbench201", "--objectives", "accuracy"], ["--space and --archs"]),
        (
            ["predict", "x.onnx", "--space", "nasbench201", "--archs", "y", "--objectives", "flops"],
            ["either"],
        ),
        (
            ["predict", "--space", "nasbench201", "--archs", "absent", "--objectives", "accuracy"],
            ["absent: No such file"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", "a"], ["--quantiles", "'a'"]),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", ".1,.1"], ["different", "'.1,.1'"]),
        (
            ["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", "0.5,1"],
            ["between .001 and .999"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", ".1,.10000001"], ["different"]),
        (["predict", ".", "--objectives", "accuracy"], ["'.' is a folder"]),
        (
            ["predict", "README.md", "--objectives", "accuracy", "--out", "README.md"],
            ["one of the files to read"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--out", "."], ["'.' is a folder"]),
        (["predict", "--space", "", "--archs", "y", "--objectives", "accuracy"], ["''"]),
        (["rank", "x.onnx", "--by", "accuracy", "--out", "README.md/a.csv"], ["is a file"]),
        (["export", "--space", "nasbench201", "--sample", "-1"], ["--sample is -1"]),
        (["export", "--space", "nasbench201", "--sample", "1", "--seed", "-1"], ["--seed is -1"]),
        (["predict", "x.onnx"], ["--objectives"]),
        (
            ["search", "--space", "nasbench201", "--objectives", "accuracy", "--algorithm", "nsga3"],
            ["'nsga3'", "'nsga2'"],
        ),
        (
            ["search", "--space", "nasbench201", "--objectives", "accuracy", "--constraint", "accuracy>9"],
            ["'accuracy>9'"],
        ),
        (["search", "--space", "nasbench201", "--objectives", "accuracy", "--population", "many"], ["many"]),
        (
            ["search", "--space", "nasbench201", "--objectives", "accuracy", "--population", "2.5"],
            ["'2.5' is not a whole number"],
        ),
        (
            ["search", "--space", "nasbench201", "--objectives", "accuracy", "--population", "99999"],
            ["99,999", "15,625"],
        ),
        (["export", "--space", "nasbench101", "--arch", "[" * 100_000], ["nested too deeply"]),
        (["search", "--space", "nasbench201", "--objectives", "accuracy", "--fast"], ["--fast"]),
        (["train", "absent.yaml"], ["absent.yaml"]),
        (["tokenizer", "train", "absent.yaml"], ["absent.yaml"]),
        (["plot", "absent"], ["absent"]),
        (["plot", "absent", "--out", "picture"], ["'picture' is no picture", ".png"]),
        (["serach"], ["serach"]),
    ],
)
def test_bad_input_gets_one_clear_line(capsys, tmp_path, model, arguments, parts):
    if arguments[0] in ("export", "search", "train", "tokenizer"):
        arguments = [*arguments, "--out", tmp_path / "out"]
    if arguments[0] in ("predict", "search"):
        arguments = [*arguments, *model]
    line = refused(capsys, *arguments)
    assert all(part in line for part in parts), line
    assert not (tmp_path / "out").exists()


def test_unknown_objectives_are_named_before_anything_is_written(capsys, tmp_path, model, archs):
    out = tmp_path / "out"
    for arguments in (
        [*SEARCH, *model, "--objectives", "accuracy,latency/pixle3", "--out", out],
        [*SEARCH, *model, "--objectives", "accuracy", "--constraint", "latency/pixle3<=3", "--out", out],
        ["predict", *model, *archs, "--objectives", "latency/pixle3", "--out", out],
        ["rank", *model, *archs, "--by", "latency/pixle3", "--out", out],
    ):
        line = refused(capsys, *arguments)
        assert "'latency/pixle3'" in line
        assert "latency/pixel3" in line
        assert not out.exists()


def test_a_malformed_line_is_found(capsys, tmp_path, model):
    path = tmp_path / "archs.txt"
    path.write_text(f"{ARCHS[0]}\n\n{ARCHS[1].replace('~1', '~x', 1)}\n")
    line = refused(
        capsys, "predict", *model, "--space", "nasbench201", "--archs", path, "--objectives", "accuracy"
    )
    assert "archs.txt line 3" in line
    path.write_text("\n")
    line = refused(
        capsys, "predict", *model, "--space", "nasbench201", "--archs", path, "--objectives", "accuracy"
    )
    assert "no architectures" in line


def test_bad_onnx_files_are_refused(capsys, tmp_path, model, monkeypatch):
    def predict(path):
        return refused(capsys, "predict", path, *model, "--objectives", "accuracy")

    (tmp_path / "text.onnx").write_text("no protobuf at all")
    assert "not an ONNX" in predict(tmp_path / "text.onnx")
    empty = onnx.parser.parse_model(
        '<ir_version:10,opset_import:["":21]>main(float[1] x)=>(float[1] y){y=Relu(x)}'
    )
    del empty.graph.node[:]
    empty.graph.output[0].name = "x"
    onnx.save(empty, tmp_path / "empty.onnx")
    assert "no operators" in predict(tmp_path / "empty.onnx")
    with open(tmp_path / "large.onnx", "wb") as file:
        file.truncate(513 * 1024 * 1024)
    assert "more than the limit" in predict(tmp_path / "large.onnx")


def test_damaged_checkpoints_are_refused(capsys, tmp_path, tiny_checkpoint, archs):
    def predict(folder):
        return refused(capsys, "predict", "--model", folder, *archs, "--objectives", "accuracy")

    for damaged in ("model.safetensors", "config.json", "tokenizer.model"):
        folder = tmp_path / damaged.replace(".", "-")
        shutil.copytree(tiny_checkpoint, folder)
        content = (folder / damaged).read_bytes()
        (folder / damaged).write_bytes(content[: len(content) // 2])
        assert damaged in predict(folder) or "not a SentencePiece model" in predict(folder)
        (folder / damaged).unlink()
        assert f"{damaged} missing" in predict(folder)
    assert "absent" in predict(tmp_path / "absent")


def test_the_tokenizer_of_another_checkpoint_is_refused(capsys, tmp_path, tiny_checkpoint, archs):
    from nas_rlm.text import Tokenizer

    folder = tmp_path / "mixed"
    shutil.copytree(tiny_checkpoint, folder)
    Tokenizer.train(["v1=Relu(v0)\n"] * 50, vocab_size=800).save(folder / "tokenizer.model")
    line = refused(capsys, "predict", "--model", folder, *archs, "--objectives", "accuracy")
    assert "not this checkpoint's tokenizer" in line


def test_as_a_process(tmp_path):
    """Exit status and streams are what a shell sees."""

    def run(*arguments):
        command = [sys.executable, "-m", "nas_rlm.cli", *arguments]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(nas_rlm.__file__).parents[1]), *sys.path]),
        }
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )

    good = run("export", "--space", "nasbench201", "--sample", "1", "--out", "one")
    assert (good.returncode, good.stdout) == (0, "1 architectures in one\n")
    bad = run("export", "--space", "nowhere", "--sample", "1", "--out", "two")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert len(bad.stderr.splitlines()) == 1
    assert not (tmp_path / "two").exists()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.parquet"
    write(
        path,
        [Row("nasbench201", a, {"latency/toaster": 3.0 + i, "accuracy": 90.0}) for i, a in enumerate(ARCHS)],
    )
    return path


def test_finetune_teaches_a_new_objective(tmp_path, model, table, archs, capsys):
    tuned = tmp_path / "tuned"
    objectives = ("--objectives", "latency/toaster")
    assert "latency/toaster" in refused(capsys, "predict", *model, *archs, *objectives)
    assert main(["finetune", *model, "--data", str(table), *objectives, "--out", str(tuned)]) == 0
    assert (
        main(["predict", "--model", str(tuned), *archs, *objectives, "--out", str(tmp_path / "t.csv")]) == 0
    )
    assert len(rows(tmp_path / "t.csv")) == len(ARCHS)
    line = refused(
        capsys, "finetune", *model, "--data", table, "--objectives", "latency/x", "--out", tmp_path / "no"
    )
    assert "latency/x" in line


def test_tokenizer_train_writes_one_that_loads(tmp_path, table):
    out = tmp_path / "tokenizer.model"
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"tables: [{table}]\nspaces: [{{name: snas, networks: 20}}]\nvocab_size: 850\n")
    assert main(["tokenizer", "train", str(recipe), "--out", str(out)]) == 0
    assert 800 < nas_rlm.text.Tokenizer.load(out).vocab_size <= 850


def test_evaluate_prints_a_line_for_each_objective(model, table, capsys):
    assert main(["evaluate", *model, "--data", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("table ")] == [
        ["objective", "rows"],
        ["accuracy", "6"],
    ]


def test_a_damaged_table_is_refused(tmp_path, model, capsys):
    (tmp_path / "bad.parquet").write_text("not parquet")
    for command in (
        ["finetune", "--out", tmp_path / "out", "--objectives", "accuracy"],
        ["evaluate"],
        ["bench", "search"],
    ):
        assert "bad.parquet" in refused(capsys, *command, *model, "--data", tmp_path / "bad.parquet")


def test_the_shipped_model_searches(shipped_rlm, tmp_path):
    arguments = [
        *SEARCH,
        "--objectives",
        "accuracy,latency/pixel3,latency/eyeriss",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(arguments) == 0
    accuracies = [float(r["accuracy"]) for r in rows(tmp_path / "run" / "front.csv")]
    assert accuracies == sorted(accuracies, reverse=True)
    assert 80 < accuracies[0] < 96


def test_data_import_writes_a_table_or_nothing(tmp_path, capsys):
    net = {"block_type": "res_basic_block", "ds": [1, 1, 1], "ws": [16, 16, 16], "ss": [1, 2, 2]}
    entries = [{"net": net, "test_ep_top1": [50.0, 8.0], "params": 10, "flops": 20}]
    (tmp_path / "ResNet.json").write_text(json.dumps(entries))
    out = tmp_path / "table.parquet"
    assert main(["data", "import", "nds", str(tmp_path / "ResNet.json"), "--out", str(out)]) == 0
    assert "1 rows" in capsys.readouterr().out
    (row,) = read(out).rows
    assert (row.space, row.targets["accuracy"]) == ("nds_resnet", 92.0)
    (tmp_path / "ResNet.json").write_text("[")
    other = tmp_path / "other.parquet"
    line = refused(capsys, "data", "import", "nds", tmp_path / "ResNet.json", "--out", other)
    assert "is not a JSON of the nds repository" in line
    assert not other.exists()
    line = refused(capsys, "data", "import", "nasbench201", tmp_path / "ResNet.json", "--out", other)
    assert "--allow-pickle" in line
    assert "did you mean nds" in refused(capsys, "data", "import", "ndss", tmp_path, "--out", other)


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
    assert "batch_size 4 where 8" in refused(capsys, *command, "--batch-size", "8", "--count", "3")
    assert "--count is 0" in refused(capsys, *command, "--count", "0")
    assert main(["data", "import", "snas", str(out), "--out", str(tmp_path / "snas.parquet")]) == 0
    assert [r.space for r in read(tmp_path / "snas.parquet").rows] == ["snas", "snas"]
