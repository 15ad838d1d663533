import json
from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.ablations import ABLATIONS, Trial
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import SPACE, refused


def test_bench_search_prints_a_line_for_each_method_and_goes_on(tmp_path, model, monkeypatch, capsys):
    names = ("accuracy", "latency/pixel3", "latency/eyeriss")
    monkeypatch.setattr("nas_rlm.benchmarks.search.SETS", (names[:2], names))
    monkeypatch.setattr(
        "nas_rlm.search.algorithms.MAX_DUPLICATES", 2
    )  # in a table so small there is soon nothing new
    path, rng = tmp_path / "cells.parquet", np.random.default_rng(0)
    cells = {str(SPACE.sample(rng)): None for _ in range(150)}
    values = [(85 + 5 * rng.random(), *(2 + 5 * rng.random(2))) for _ in cells]
    write(
        path,
        [Row("nasbench201", a, dict(zip(names, v, strict=True))) for a, v in zip(cells, values, strict=True)],
    )
    command = ["bench", "search", *model, "--data", str(path), "--population", "10", "--generations", "3"]
    kept = ["--out", str(tmp_path / "s.jsonl"), "--picture", str(tmp_path / "s.png")]
    assert main([*command, *kept, "--seeds", "1"]) == main([*command, *kept, "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "evolution on truth" in line]) == 2 * 2
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 2 * 5
    assert (tmp_path / "s.png").stat().st_size > 10_000
    assert "--seeds is 0" in refused(capsys, *command, "--seeds", "0")
    assert "150 labels of 150 rows" in refused(capsys, *command, "--labels", "150")
    assert "is not a picture" in refused(capsys, *command, "--picture", tmp_path / "s.txt")


def test_bench_few_shot_prints_a_line_for_each_method(tmp_path, model, capsys):
    path = tmp_path / "cells.parquet"
    cells = [str(SPACE.sample(np.random.default_rng(i))) for i in range(40)]
    write(path, [Row("nasbench201", a, {"accuracy": 50.0 + a.count("conv")}) for a in cells])
    command = ("bench", "few-shot", *model, "--space", "nasbench201", "--data", str(path))
    methods = ("--methods", "flops,gcn")
    assert main([*command, "--labels", "12", "--seeds", "2", *methods]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("40 rows of nasbench201, 12 labels, seeds 0 to 1")
    assert [line.split()[0] for line in lines[2:]] == ["flops", "gcn"]
    assert all(line.count("±") == 2 for line in lines[2:])
    assert "seeds is 0" in refused(capsys, *command, "--labels", "12", "--seeds", "0")
    assert "no method 'gcm'" in refused(capsys, *command, "--labels", "12", "--methods", "gcm")
    assert "--others has nasbench201 itself" in refused(
        capsys, *command, "--labels", "12", "--others", "nasbench201"
    )
    assert "39 labels of 40 rows" in refused(capsys, *command, "--labels", "39", *methods)
    assert "no row of nasbench101" in refused(
        capsys, *command[:5], "nasbench101", *command[6:], "--labels", "12"
    )


def test_bench_few_shot_goes_on_and_is_advised_by_other_tables(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    for name in ("nasbench201", "nats_size"):
        space = search_spaces.get(name)
        drawn = [space.sample(np.random.default_rng(i)) for i in range(30)]
        rows = [Row(name, str(a), {"accuracy": 50 + space.params(a) / 1e5}) for a in drawn]
        write(tmp_path / "architectures" / f"{name}.parquet", rows)
    out = tmp_path / "few.jsonl"
    command = ["bench", "few-shot", *model, "--space", "nasbench201", "--labels", "12", "--seeds", "1"]
    command += ["--methods", "params,process", "--out", str(out)]
    assert main(command) == main([*command, "--others", "nats_size"]) == main(command) == 0
    tables = capsys.readouterr().out.split("30 rows of ")[1:]
    assert tables[0] == tables[2]
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["method"], r["others"]) for r in records] == [
        (method, others) for others in ([], ["nats_size"]) for method in ("params", "process")
    ]
    assert records[0]["spearman"] == records[2]["spearman"] == pytest.approx(1)


def test_bench_ablation_prints_a_line_for_each_trial_and_goes_on(tmp_path, monkeypatch, capsys):
    write(
        tmp_path / "architectures" / "nasbench201.parquet",
        [
            Row("nasbench201", str(SPACE.sample(np.random.default_rng(i))), {"accuracy": 50.0 + i})
            for i in range(40)
        ],
    )
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    trial = Trial(spaces=("nasbench201",), rows=16, steps=2, size=1)
    monkeypatch.setitem(ABLATIONS, "length", {"16 tokens": replace(trial, length=16), "all tokens": trial})
    out = tmp_path / "runs" / "length.jsonl"
    for seeds in (1, 2):
        assert main(["bench", "ablation", "length", "--seeds", str(seeds), "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines if "nasbench201" in line] == ["16 tokens", "all tokens"] * 3
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["trial"], r["seed"]) for r in records] == [
        (name, seed) for seed in (0, 1) for name in ("16 tokens", "all tokens")
    ]
    assert "seeds is 0" in refused(capsys, "bench", "ablation", "length", "--seeds", "0")
    assert "no ablation 'lenght'; did you mean length" in refused(capsys, "bench", "ablation", "lenght")


def test_bench_reliability_prints_a_line_and_draws(tmp_path, model, table, capsys):
    picture = tmp_path / "reliability.png"
    command = ("bench", "reliability", *model, "--data", table)
    assert main([*map(str, command), "--out", str(picture)]) == 0
    assert "table        accuracy" in capsys.readouterr().out
    assert picture.stat().st_size > 1000
    assert "is not a picture" in refused(capsys, *command, "--out", tmp_path / "r.txt")
    for objective, message in (
        ("latency/pixel3", "no table has two rows with latency/pixel3"),
        ("latency/x", "does not know the objective 'latency/x'"),
    ):
        assert message in refused(capsys, *command, "--objectives", objective, "--out", picture)


def test_bench_references_adds_what_is_not_there(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setattr(search_spaces, "names", lambda: ["nasbench201", "hiaml"])
    out = tmp_path / "references.json"
    out.write_text('{"nasbench201": {"flops": 3.0}}')
    assert main(["bench", "references", *model, "--count", "5", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["nasbench201"]["flops"] == 3
    assert found["nasbench201"]["params"] > 0 and found["hiaml"]["flops"] > 0
    assert "reference values of 2 spaces" in capsys.readouterr().out


def test_bench_text_counts_tokens_of_spaces_or_of_tables(tmp_path, model, capsys):
    write(tmp_path / "own.parquet", [Row("python", "", {"memory": 1.0}, "x = [0] * n") for _ in range(3)])
    assert main(["bench", "text", *model, "--space", "nats_size", "--count", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("nats_size")
    assert main(["bench", "text", *model, "--data", str(tmp_path / "own.parquet")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "own"
    line = refused(capsys, "bench", "text", "--space", "fbnet", "--data", tmp_path / "own.parquet")
    assert "--space and --data: give one of them" in line
