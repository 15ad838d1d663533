"""Users' own spaces as `--space FILE.py:CLASS` in all verbs."""

import shutil

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import SearchRun, training
from nas_rlm.cli import main
from nas_rlm.data import Row, read, write
from tests.nas_rlm.cli.commands import refused, rows
from tests.search_spaces import plain_space

NAMES = ["3x16 5x32 1x64", "5x64 1x16 3x32", "1x16 1x16 1x16"]
FLOPS = 16 * 16 * 16 * 3 + 8 * 8 * 16 * 16 + 4 * 4 * 16 * 16 + 16 * 10  # of the third network
SEARCH = (
    *("--objectives", "flops,params", "--maximise", "params", "--population", "6", "--sample", "10"),
    *("--generations", "2"),
)


@pytest.fixture(autouse=True)
def own_space(tmp_path, monkeypatch):
    """The location of the space, relative to the working directory."""
    monkeypatch.setattr(search_spaces, "_registered", {})
    monkeypatch.chdir(tmp_path)
    shutil.copy(plain_space.__file__, "mine.py")
    (tmp_path / "archs.txt").write_text("".join(f"{name}\n" for name in NAMES))
    return "mine.py:PlainSpace"


def labelled():
    rng, networks = np.random.default_rng(0), plain_space.PlainSpace()
    names = sorted({str(networks.sample(rng)) for _ in range(30)})
    flops = [networks.flops(networks.parse(name)) for name in names]
    spaces = ["plain", "mine.py:PlainSpace"] * len(names)
    return [Row(s, n, {"latency/mine": 1 + f / 1e6}) for s, n, f in zip(spaces, names, flops, strict=False)]


def test_predict_and_rank(own_space, model):
    inputs = ("--space", own_space, "--archs", "archs.txt", *model)
    assert main(["predict", *inputs, "--objectives", "flops,params", "--out", "p.csv"]) == 0
    assert [float(row["flops"]) for row in rows("p.csv")] == [963200, 1368384, FLOPS]
    assert main(["rank", *inputs, "--by", "flops", "--out", "r.csv"]) == 0
    assert [row["arch"] for row in rows("r.csv")] == [NAMES[2], NAMES[0], NAMES[1]]


def test_files_are_predicted_as_part_of_a_space(own_space, model, capsys):
    assert main(["export", "--space", own_space, "--sample", "1", "--out", "nets"]) == 0
    files = ("predict", "nets/000.onnx", "--objectives", "accuracy", *model)
    assert main([*files, "--space", own_space]) == 0
    assert "there is no space 'plane'" in refused(capsys, *files, "--space", "plane")


def test_search_report_and_resume(own_space, model, tmp_path, monkeypatch):
    assert main(["search", "--space", own_space, *SEARCH, *model, "--out", "run"]) == 0
    search_spaces._registered.clear()
    monkeypatch.chdir(tmp_path / "run")
    assert main(["report", "."]) == 0
    run = SearchRun.load(".")
    assert run.space.name == run.settings.space == "plain"
    assert run.settings.location == f"{tmp_path / 'mine.py'}:PlainSpace"
    resumed = (*SEARCH[:-1], "3", *model, "--out", ".", "--resume")
    assert main(["search", "--space", "../mine.py:PlainSpace", *resumed]) == 0


def test_parallel_workers_know_the_space(own_space, model):
    search = ("search", "--space", own_space, "--objectives", "accuracy,flops", "--generations", "2")
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert (
                main([*search, *model, "--population", "80", "--sample", "100", "--out", f"run{count}"]) == 0
            )
    finally:
        torch.set_num_threads(threads)
    assert rows("run1/front.csv") == rows("run2/front.csv")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_space_may_have_fewer_architectures_than_a_population(own_space, model, tmp_path, count):
    with open("mine.py", "a") as file:
        genes = (1, count, 1, 1, 1, 1)
        file.write(f"\n\nclass Small(PlainSpace):\n    name, size, genes = 'small', {count}, {genes}\n")
    common = ("--space", "mine.py:Small", "--objectives", "accuracy,flops", *model)
    assert main(["search", *common, "--out", "run"]) == 0
    evaluated = SearchRun.load("run").result.architectures
    assert main(["propose", *common, "--out", "proposed.txt"]) == 0
    proposed = (tmp_path / "proposed.txt").read_text().split("\n")[:-1]
    assert len({*evaluated}) == count and sorted(evaluated) == sorted(proposed)


def test_a_changed_space_does_not_resume_a_search(own_space, model, capsys):
    search = ("search", "--space", own_space, *SEARCH, *model, "--out", "run")
    assert main([*search]) == 0
    with open("mine.py", "a") as file:
        file.write("\nKERNELS = (1, 3, 7)\n")
    assert "run holds another search" in refused(capsys, *search, "--resume")


def test_tables_name_the_space_or_its_location(own_space, model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training.finetune, "MAX_EPOCHS", 2)
    write(tmp_path / "labels.parquet", labelled())
    data = ("--data", "labels.parquet")
    propose = ("propose", "--space", own_space, "--objectives", "latency/mine", "--count", "2")
    assert main([*propose, *data, *model, "--out", "proposed.txt"]) == 0
    assert len((tmp_path / "proposed.txt").read_text().splitlines()) >= 1
    search_spaces._registered.clear()
    finetune = ("finetune", *data, "--objectives", "latency/mine", *model)
    assert "no search space of that name is registered" in refused(capsys, *finetune, "--out", "bad")
    assert main([*finetune, "--space", own_space, "--out", "tuned"]) == 0
    search_spaces._registered.clear()
    evaluate = ("evaluate", *data, "--model", "tuned", "--samples", "0", "--space", own_space)
    assert main([*evaluate]) == 0
    search_spaces._registered.clear()
    inputs = ("--space", own_space, "--archs", "archs.txt", "--objectives", "latency/mine")
    capsys.readouterr()
    assert main(["predict", *inputs, "--model", "tuned"]) == 0
    assert "not trained" not in capsys.readouterr().err


def test_profile(own_space, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ("--device", "onnxruntime-cpu-1t", "--windows", "1", "--seconds", "0.01", "--out", "t.parquet")
    assert main(["profile", "--space", own_space, "--arch", *NAMES[:2], *options]) == 0
    table = read(tmp_path / "t.parquet")
    assert [(row.space, row.arch_str) for row in table.rows] == [("plain", name) for name in NAMES[:2]]
    assert table.rows[0].targets["latency/onnxruntime-cpu-1t"] > 0


def test_bench_text(own_space, model, capsys):
    assert main(["bench", "text", "--space", own_space, "--count", "5", *model]) == 0
    assert "plain" in capsys.readouterr().out


def test_one_line_for_a_space_that_cannot_be_loaded(own_space, capsys):
    for verb in (
        ("predict", "--objectives", "flops", "--archs", "archs.txt"),
        ("rank", "--by", "flops", "--archs", "archs.txt"),
        ("search", "--objectives", "flops", "--out", "run"),
        ("propose", "--objectives", "flops"),
        ("export", "--sample", "1", "--out", "nets"),
        ("profile", "--sample", "1", "--device", "onnxruntime-cpu-1t", "--out", "t.parquet"),
        ("bench", "text"),
    ):
        assert "is a file: expected FILE.py:CLASS" in refused(capsys, *verb, "--space", "mine.py")
        assert "mine.py has no class 'Plane'" in refused(capsys, *verb, "--space", "mine.py:Plane")
