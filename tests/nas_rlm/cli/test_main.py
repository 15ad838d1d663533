import os
import subprocess
import sys
from pathlib import Path

import pytest

import nas_rlm
from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import ARCHS, SEARCH, refused


def test_help_of_every_command(capsys):
    for command in ([], ["search"], ["predict"], ["tokenizer", "train"], ["bench", "search"], ["finetune"]):
        assert main([*command, "--help"]) == 0
        assert "Usage: nas-rlm" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert nas_rlm.__version__ in capsys.readouterr().out


def test_directories_that_are_not_empty_are_not_changed(tmp_path, model, table, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    for arguments in (
        ["export", "--space", "nasbench201", "--sample", "1"],
        ["finetune", *model, "--data", table, "--objectives", "accuracy"],
    ):
        assert "is not empty" in refused(capsys, *arguments, "--out", tmp_path)
    assert "is a directory" in refused(capsys, "tokenizer", "train", "tokenizer", "--out", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "table.parquet"]


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
        (["predict", "absent.onnx", "--objectives", "accuracy"], ["there is no file 'absent.onnx'"]),
        (["predict", "--objectives", "accuracy"], ["ONNX files", "--space and --archs"]),
        (["predict", "--space", "nasbench201", "--objectives", "accuracy"], ["--space and --archs"]),
        (
            ["predict", "x.onnx", "--space", "nasbench201", "--archs", "y", "--objectives", "flops"],
            ["either"],
        ),
        (
            ["predict", "--space", "nasbench201", "--archs", "absent", "--objectives", "accuracy"],
            ["there is no file 'absent'"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", "a"], ["--quantiles", "'a'"]),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", ".1,.1"], ["different", "'.1,.1'"]),
        (
            ["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", "0.5,1"],
            ["between .001 and .999"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--quantiles", ".1,.10000001"], ["different"]),
        (["predict", ".", "--objectives", "accuracy"], ["'.' is a directory"]),
        (
            ["predict", "README.md", "--objectives", "accuracy", "--out", "README.md"],
            ["one of the files to read"],
        ),
        (["predict", "x.onnx", "--objectives", "accuracy", "--out", "."], ["'.' is a directory"]),
        (
            ["predict", "--space", "", "--archs", "y", "--objectives", "accuracy"],
            ["the name of a search space is empty"],
        ),
        (["rank", "x.onnx", "--by", "accuracy", "--out", "README.md/a.csv"], ["is a file"]),
        (["export", "--space", "nasbench201", "--sample", "-1"], ["--sample is -1"]),
        (["export", "--space", "nasbench201", "--sample", "1", "--seed", "-1"], ["--seed is -1"]),
        (["predict", "x.onnx"], ["--objectives"]),
        (
            ["search", "--space", "nasbench201", "--objectives", "accuracy", "--algorithm", "nsga"],
            ["'nsga'", "'nsga3'"],
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
        (["export", "--space", "nasbench101", "--arch", "[" * 100_000], ["[ … [", "is not JSON"]),
        (["search", "--space", "nasbench201", "--objectives", "accuracy", "--fast"], ["--fast"]),
        (["train", "absent.yaml"], ["absent.yaml"]),
        (["tokenizer", "train", "absent.yaml"], ["absent.yaml"]),
        (["plot", "absent"], ["absent"]),
        (["plot", "absent", "--out", "picture"], ["'picture' is not a picture", ".png"]),
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


def test_a_damaged_table_is_refused(tmp_path, model, capsys):
    (tmp_path / "bad.parquet").write_text("not parquet")
    for command in (
        ["finetune", "--out", tmp_path / "out", "--objectives", "accuracy"],
        ["evaluate"],
        ["bench", "search"],
    ):
        assert "bad.parquet" in refused(capsys, *command, *model, "--data", tmp_path / "bad.parquet")


def test_as_a_process(tmp_path):
    """Exit status and streams are what a shell sees."""

    def run(*arguments):
        command = [sys.executable, "-m", "nas_rlm", *arguments]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(nas_rlm.__file__).parents[1]), *sys.path]),
        }
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )

    good = run("export", "--space", "nasbench201", "--sample", "1", "--out", "one")
    assert (good.returncode, good.stdout) == (0, "1 architecture in one\n")
    bad = run("export", "--space", "nowhere", "--sample", "1", "--out", "two")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert len(bad.stderr.splitlines()) == 1
    assert not (tmp_path / "two").exists()


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_output_ends_the_command_silently(tmp_path, unbuffered):
    read, write = os.pipe()
    os.close(read)  # as `head` does
    command = [sys.executable, "-m", "nas_rlm", "spaces"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(nas_rlm.__file__).parents[1]),
        "PYTHONUNBUFFERED": unbuffered,
    }
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_to_another_process_is_an_error(monkeypatch, capsys):
    def fail():
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("search_spaces.names", fail)
    assert main(["spaces"]) == 2
    assert "nas-rlm: error: [Errno 32] Broken pipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (
            KeyboardInterrupt(),
            130,
            "nas-rlm: interrupted; search and train continue with --resume, measure, profile, snas and search"
            " --train with the same command; others wrote no result",
        ),
        (MemoryError(), 2, "nas-rlm: error: there is not enough memory for that"),
        (MemoryError("a copy was killed"), 2, "nas-rlm: error: a copy was killed"),
    ],
)
def test_interruptions_and_missing_memory_are_reported(raised, code, line, monkeypatch, capsys):
    def fail():
        raise raised

    monkeypatch.setattr("search_spaces.names", fail)
    assert main(["spaces"]) == code
    assert capsys.readouterr().err.strip() == line
