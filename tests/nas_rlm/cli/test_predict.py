import csv
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
from nas_rlm.data import Row
from nas_rlm.files import ASSETS
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.training.trainer import training_coverage
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.cli.commands import ARCHS, SPACE, refused, rows
from tests.nas_rlm.onnx_models import residual_network


def test_spaces_lists_every_space(capsys):
    assert main(["spaces"]) == 0
    shown = capsys.readouterr().out
    for name in search_spaces.names():
        assert name in shown
    assert "15,625" in shown


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


@pytest.fixture
def programs(tmp_path, tiny_checkpoint):
    """Files, and a model that knows what memory such programs take by how many lists they make."""
    rng = np.random.default_rng(0)
    source = {
        space: [(f"{start}{'x = [0] * n; ' * k}", 1000.0 * k) for k in rng.integers(1, 9, 40).tolist()]
        for space, start in (("APPS", "def f(n): "), ("CDSS/C++", "int main() { } // "))
    }
    known = [Row(s, "", {"memory": v}, text) for s, pairs in source.items() for text, v in pairs]
    rlm = nas_rlm.RLM.load(tiny_checkpoint).with_objectives(["memory"])
    rlm.trained_on = {**rlm.trained_on, **training_coverage(known)}
    rlm.surrogates = fit_surrogates(known, ["memory"])
    rlm.save(tmp_path / "programs")
    written = {
        "small.py": "def f(n): x = [0] * n; ",
        "large.cpp": "int main() { } // " + "x = [0] * n; " * 8,
        "large.py": "def f(n): " + "x = [0] * n; " * 8,
        "small.cpp": "int main() { } // x = [0] * n; ",
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in written], ["--model", str(tmp_path / "programs")]


def test_the_model_is_the_one_that_reads_such_files(programs, capsys):
    files, _ = programs
    line = refused(capsys, "predict", files[0], "net.onnx", "--objectives", "memory")
    assert f"{files[0]} is a program and net.onnx a network" in line


def test_the_shipped_model_reads_programs(tmp_path):
    if not (ASSETS / "programs").is_dir():
        pytest.skip("no shipped model in nas_rlm/assets/programs")
    (tmp_path / "small.py").write_text("def total(n):\n    return sum(i for i in range(n))\n")
    (tmp_path / "large.py").write_text(
        "def total(n):\n    dp = [[0] * (n + 1) for _ in range(n + 1)]\n    return dp\n"
    )
    files = [str(tmp_path / name) for name in ("large.py", "small.py")]
    assert (
        main(["rank", *files, "--by", "memory", "--quantiles", ".1,.9", "--out", str(tmp_path / "m.csv")])
        == 0
    )
    found = rows(tmp_path / "m.csv")
    assert [Path(row["arch"]).name for row in found] == ["small.py", "large.py"]
    assert all(float(r["memory@0.1"]) < float(r["memory"]) < float(r["memory@0.9"]) for r in found)


def test_programs_are_read_as_they_are(tmp_path, programs, capsys):
    files, model = programs
    command = ["predict", *files, *model, "--objectives", "memory", "--quantiles", ".1,.9"]
    assert main([*command, "--out", str(tmp_path / "p.csv")]) == 0
    found = rows(tmp_path / "p.csv")
    assert [r["arch"] for r in found] == files
    small, large, larger, smaller = (float(r["memory"]) for r in found)
    assert max(small, smaller) < min(large, larger)
    assert all(float(r["memory@0.1"]) <= float(r["memory"]) <= float(r["memory@0.9"]) for r in found)
    assert (
        main(["rank", *files, *model, "--by", "memory", "--top", "2", "--out", str(tmp_path / "r.csv")]) == 0
    )
    assert {r["arch"] for r in rows(tmp_path / "r.csv")} == {files[0], files[3]}
    capsys.readouterr()
    assert "is a program: flops is computed for networks only" in refused(
        capsys, "predict", *files, *model, "--objectives", "memory,flops"
    )


def test_doubtful_programs_are_named(tmp_path, programs, capsys):
    files, model = programs
    (tmp_path / "bad.py").write_text("def f(n)\n    return [0] * n\n")
    command = ["predict", *model, "--objectives", "memory"]
    assert main([*command, *files[:3]]) == 0
    shown = capsys.readouterr().err
    assert f"{files[0]} and 1 more as part of APPS, {files[1]} as part of CDSS/C++: memory may have" in shown
    assert main([*command, str(tmp_path / "bad.py")]) == 0
    assert "bad.py is not Python 3 (line 1: expected ':')" in capsys.readouterr().err
    (tmp_path / "a.java").write_text("def f(n):\n    return [0] * n\n")
    assert main([*command, str(tmp_path / "a.java")]) == 0
    assert "a.java is not Java (its content is Python): predictions are" in capsys.readouterr().err
    (tmp_path / "comment.py").write_text("# nothing\n")
    assert main([*command, str(tmp_path / "comment.py")]) == 0
    assert "comment.py is not Python 3 (it has no statement)" in capsys.readouterr().err
    kernel = "# input: [[64]]\n@triton.jit\ndef f(x): pass\ndef get_inputs(): return [torch.rand(4096)]\n"
    (tmp_path / "kernel.py").write_text(kernel)
    assert main([*command, str(tmp_path / "kernel.py")]) == 0
    sizes = "its first line has the input sizes [[64]], and its get_inputs() has [[4096]]"
    assert f"kernel.py: {sizes}; it is predicted with those of the first line" in capsys.readouterr().err
    assert main([*command, files[0], "--space", "CDSS/C++"]) == 0
    assert f"{files[0]} is in Python, and the programs of CDSS/C++ are in C++" in capsys.readouterr().err


def test_programs_that_differ_in_numbers_only_need_a_model_that_learnt_such(tmp_path, programs, capsys):
    _, model = programs
    bounds = [2**k for k in range(4, 16)]
    texts = [f"def f(n): x = [0] * {bound}" for bound in bounds]
    files = [str(tmp_path / f"{bound}.py") for bound in bounds]
    for file, text in zip(files, texts, strict=True):
        Path(file).write_text(text)
    assert main(["rank", *model, "--by", "memory", *files]) == 0
    assert (
        "the 12 programs differ only in numbers and words, which the model has not" in capsys.readouterr().err
    )
    known = [Row("APPS", "", {"memory": 8.0 * b}, t) for b, t in zip(bounds, texts, strict=True)][::-1]
    learnt = nas_rlm.RLM.load(model[1]).fine_tune(known, ["memory"], learn="none")
    learnt.save(tmp_path / "learnt")
    assert main(["rank", "--model", str(tmp_path / "learnt"), "--by", "memory", *files[::-1]]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [line.split(",")[0] for line in shown.out.splitlines()[1:]] == files


def test_a_space_that_has_the_objective_is_named(tmp_path, programs, capsys):
    files, model = programs
    rlm = nas_rlm.RLM.load(model[1]).with_objectives(["memory", "time"])
    judge = [Row("LeetCode/Python", "", {"time": 1.0}, "def f(n): pass")]
    rlm.trained_on = {**rlm.trained_on, **training_coverage(judge)}
    rlm.save(tmp_path / "judge")
    command = ["predict", files[0], "--model", str(tmp_path / "judge"), "--objectives"]
    line = refused(capsys, *command, "memory,time")
    assert f"{files[0]} is predicted as part of APPS, for which the model has not learnt time" in line
    assert "--space LeetCode/Python" in line
    assert "unknown objective 'flop'" in refused(capsys, *command, "flop")
    assert "flops" not in refused(capsys, *command, "flop")


def test_costs_are_counted_of_architectures_and_of_files(tmp_path, model, archs, capsys):
    wanted = ("--objectives", "flops,params,accuracy", *model)
    assert main(["export", "--space", "nasbench201", "--arch", *ARCHS, "--out", str(tmp_path / "x")]) == 0
    files = sorted(map(str, (tmp_path / "x").glob("*.onnx")))
    for given in (archs, files):
        assert main(["predict", *map(str, given), *wanted, "--out", str(tmp_path / "p.csv")]) == 0
        cells = [SPACE.parse(a) for a in ARCHS]
        assert [(float(r["flops"]), float(r["params"])) for r in rows(tmp_path / "p.csv")] == [
            (SPACE.flops(c), SPACE.params(c)) for c in cells
        ]


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


def test_predictions_on_a_terminal_are_rounded(model, archs, capsys, monkeypatch, tmp_path):
    command = ["predict", *model, *archs, "--objectives", "accuracy,flops"]
    assert main([*command, "--out", str(tmp_path / "out.csv")]) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out == (tmp_path / "out.csv").read_text()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(command) == 0
    shown = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    for row, full in zip(shown, rows(tmp_path / "out.csv"), strict=True):
        assert row["accuracy"] == f"{float(full['accuracy']):.5g}" and row["flops"] == full["flops"]


def test_files_that_are_neither_networks_nor_programs_are_named(tmp_path, capsys, model):
    for name, content in {"blob": b"\x80\0" * 99, "empty": b"", "weights.bin": bytes(range(256))}.items():
        (tmp_path / name).write_bytes(content)
        line = refused(capsys, "predict", tmp_path / name, *model, "--objectives", "accuracy")
        assert f"{name}' is not an ONNX file: it is {'empty' if not content else 'damaged'}" in line
        assert line.endswith("expected an ONNX file, or a program with an ending such as .py")
        (tmp_path / "a.go").write_text("package main\n")
        for files in ([tmp_path / name], [tmp_path / "a.go", tmp_path / name]):
            assert line == refused(capsys, "rank", *files, "--by", "memory")
        assert name in refused(capsys, "inspect", tmp_path / name)


def test_what_the_model_never_saw_is_one_line_on_stderr(tmp_path, capsys, shipped_rlm):
    space = search_spaces.get("nats_size")
    (tmp_path / "archs.txt").write_text(f"{space.sample(np.random.default_rng(0))}\n")
    files = ("--space", "nats_size", "--archs", str(tmp_path / "archs.txt"))
    assert main(["predict", *files, "--objectives", "accuracy,latency/pixel3"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "nas-rlm: warning: no labels of latency/pixel3 for nats_size: the ranking rests on" in shown.err
    assert main(["predict", *files, "--objectives", "accuracy"]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.fixture
def short_model(tmp_path, tiny_checkpoint):
    """A model that reads only 60 tokens."""
    directory = shutil.copytree(tiny_checkpoint, tmp_path / "short")
    saved = checkpoint_files.read(directory)
    saved["network"]["max_length"] = 60
    checkpoint_files.write(directory, saved)
    return ("--model", str(directory))


@pytest.mark.parametrize("verb", [("predict",), ("rank", "--by", "accuracy")])
def test_files_whose_texts_are_truncated_are_named(tmp_path, short_model, capsys, verb):
    main(["export", "--space", "nasbench201", "--arch", *ARCHS[:3], "--out", str(tmp_path / "nets")])
    small = residual_network(1)
    del small.graph.node[1:]
    small.graph.node[0].output[0] = small.graph.output[0].name
    onnx.save(small, tmp_path / "small.onnx")
    long = [str(tmp_path / "nets" / f"{i:03d}.onnx") for i in range(3)]
    files = [long[0], str(tmp_path / "small.onnx"), *long[1:]]
    capsys.readouterr()
    assert main([*verb, *files, *short_model, "--objectives", "accuracy,latency/pixel3"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 5
    (line,) = [line for line in shown.err.splitlines() if "reads only" in line]
    assert line.startswith("nas-rlm: warning: the model reads only the first 60 tokens of ")
    assert [name for name in files if f"{name} (" in line] == long


def test_architectures_that_an_exported_model_truncates_are_named(tmp_path, short_model, archs, capsys):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    exported = str(tmp_path / "exported")
    assert main(["export-model", *short_model, "--out", exported]) == 0
    capsys.readouterr()
    assert main(["predict", "--model", exported, *archs, "--objectives", "accuracy"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "first 60 tokens of" in line]
    assert all(any(f"{arch} (" in line for line in lines) for arch in ARCHS)


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
        file.truncate(2**31 + 1)
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


def test_an_exported_model_predicts_without_torch(tmp_path, model, archs, capsys):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    out = tmp_path / "lite"
    assert main(["export-model", *model, "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    wanted = ["--objectives", "flops,accuracy", "--quantiles", ".1,.9"]
    for chosen, name in ((model, "whole"), (["--model", str(out)], "lite")):
        assert main(["predict", *archs, *wanted, *chosen, "--out", str(tmp_path / f"{name}.csv")]) == 0
    whole, lite = (rows(tmp_path / f"{name}.csv") for name in ("whole", "lite"))
    assert [(row["arch"], row["flops"]) for row in lite] == [(row["arch"], row["flops"]) for row in whole]
    assert "it predicts --archs of a --space here" in refused(
        capsys, "predict", "net.onnx", "--objectives", "accuracy", "--model", out
    )
    assert "is not empty" in refused(capsys, "export-model", *model, "--out", out)
    program = (
        "import sys\nsys.modules['torch'] = None\nfrom nas_rlm.cli import main\n"
        f"sys.exit(main({['predict', *map(str, archs), *wanted, '--model', str(out)]!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.splitlines()[0].startswith("arch,flops,accuracy,")


def test_a_network_unlike_all_labelled_ones_is_named_with_its_devices(
    capsys, tmp_path, layer_checkpoint, cell_files
):
    novel = tmp_path / "novel.onnx"
    onnx.save(residual_network(2, initialisers=True), novel)
    command = ["predict", "--model", str(layer_checkpoint), "--quantiles", ".1,.9", "--objectives"]
    assert main([*command, "latency/cortexA76cpu", str(cell_files[0]), str(novel)]) == 0
    output = capsys.readouterr()
    (warning,) = output.err.splitlines()
    assert warning.startswith("nas-rlm: warning: nothing with a label of latency/cortexA76cpu is like /")
    assert warning.endswith(f"{novel.name}: the predicted interval is wide")
    assert output.out.startswith(
        "arch,latency/cortexA76cpu,latency/cortexA76cpu@0.1,latency/cortexA76cpu@0.9\n"
    )
    assert main([*command, "latency/cortexA76cpu", *map(str, cell_files)]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "flops", str(novel)]) == 0
    assert capsys.readouterr().err == ""


def test_architectures_unlike_all_labelled_networks_give_a_warning(capsys, tmp_path, layer_checkpoint):
    space, archs = search_spaces.get("gpt_s"), tmp_path / "archs.txt"
    drawn = [str(space.sample(np.random.default_rng(seed))) for seed in range(3)]
    archs.write_text("\n".join(drawn))
    inputs = ["--space", "gpt_s", "--archs", str(archs), "--model", str(layer_checkpoint)]
    for verb in (["predict", "--objectives"], ["rank", "--by"]):
        capsys.readouterr()
        assert main([*verb, "latency/cortexA76cpu", *inputs]) == 0
        captured = capsys.readouterr()
        assert captured.err.count("nothing with a label of latency/cortexA76cpu is like ") == 1
        assert "the predicted intervals are wide" in captured.err
    search = ["search", "--space", "gpt_s", "--model", str(layer_checkpoint), "--out", str(tmp_path / "run")]
    small = ["--population", "3", "--generations", "2", "--sample", "2"]
    assert main([*search, "--objectives", "latency/cortexA76cpu,latency/mybox", *small]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "nothing with a label" in line]
    assert len(warned) == 1
