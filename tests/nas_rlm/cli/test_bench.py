import json
from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.ablations import ABLATIONS, Trial
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from nas_rlm.expert import experts_of
from tests.nas_rlm.cli.commands import ARCHS, SPACE, refused


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
    assert "is no picture" in refused(capsys, *command, "--out", tmp_path / "r.txt")
    for objective, message in (
        ("latency/pixel3", "no table has two rows with latency/pixel3"),
        ("latency/x", "does not know the objective 'latency/x'"),
    ):
        assert message in refused(capsys, *command, "--objectives", objective, "--out", picture)


def test_bench_measure_goes_on_and_draws(tmp_path, tiny_checkpoint, capsys, monkeypatch):
    monkeypatch.setattr("nas_rlm.devices.exploring.POOL", 30)
    rng = np.random.default_rng(0)
    cells = {str(c): c for c in (SPACE.sample(rng) for _ in range(200))}
    rows = [
        Row(
            "nasbench201",
            name,
            {"accuracy": 85 + 10 * rng.random(), "latency/mine": 1 + SPACE.flops(c) / 1e7},
        )
        for name, c in cells.items()
    ]
    write(tmp_path / "mine.parquet", rows)
    command = ["bench", "measure", "--model", str(tiny_checkpoint), "--data", str(tmp_path / "mine.parquet")]
    command += ["--population", "6", "--generations", "2", "--seeds", "1", "--devices", "mine"]
    kept = ["--out", str(tmp_path / "m.jsonl"), "--picture", str(tmp_path / "m.png")]
    assert main([*command, *kept, "--budgets", "12"]) == main([*command, *kept, "--budgets", "12,14"]) == 0
    records = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [(r["policy"], r["budget"]) for r in records] == [
        (policy, budget) for budget in (12, 14) for policy in ("where it pays", "front once", "random")
    ]
    assert all(r["measured"] <= r["budget"] and 0 < r["share_measured"] <= 1 for r in records)
    said = capsys.readouterr().out
    assert said.count("where it pays        12") == 2
    assert (tmp_path / "m.png").stat().st_size > 10_000
    for more, message in (
        (("--budgets", "12,5"), "--budgets is 12,5: expected whole numbers from 10 on"),
        (("--devices", "none"), "mine has no latency/none"),
        (("--picture", tmp_path / "m.txt"), "is no picture"),
    ):
        assert message in refused(capsys, *command, *more)


def test_bench_devices_learns_new_ones_and_goes_on(tmp_path, tiny_checkpoint, capsys):
    rng = np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(60)]
    times = {str(c): 1 + SPACE.flops(c) / 1e7 for c in cells}

    def rows(*names):
        return [Row("nasbench201", c, {f"latency/{n}": t for n in names}) for c, t in times.items()]

    rlm = RLM.load(tiny_checkpoint)
    rlm.experts = experts_of(rows("pixel3", "eyeriss"), ["latency/pixel3", "latency/eyeriss"])
    rlm.save(tmp_path / "model")
    write(tmp_path / "mine.parquet", rows("mine", "pixel3"))
    command = ["bench", "devices", "--space", "nasbench201", "--model", str(tmp_path / "model")]
    command += ["--data", str(tmp_path / "mine.parquet"), "--samples", "10"]
    more = ["--split", "new", "--again", str(tmp_path / "mine.parquet"), "--out", str(tmp_path / "d.jsonl")]
    assert main([*command, *more, "--seeds", "1"]) == main([*command, *more, "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("latency/mine measured twice: 60 networks, Spearman 1.000, 0.0% apart") == 2
    records = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert [(r["target"], r["selection"], r["seed"]) for r in records] == [
        *[("latency/mine", how, 0) for how in ("random", "chosen")],
        *[("latency/mine", how, 1) for how in ("random", "chosen")],
    ]
    assert all(r["spearman"] > 0.95 for r in records)
    given = {"--model": tmp_path / "model", "--data": tmp_path / "mine.parquet", "--samples": "10"}
    for wrong, message in (
        ({"--split": "help"}, "mine has no latency/1080ti_1"),
        ({"--split": "half"}, "--split is 'half': expected one-out, help, new, or the name of another space"),
        ({"--split": "nasbench201"}, "knows no device of mine from nasbench201 as another space"),
        ({"--samples": "0"}, "--samples is 0, expected at least 10"),
        ({"--samples": "9"}, "--samples is 9, expected at least 10"),
        ({"--samples": "59", "--split": "new"}, "expected 61 at least"),
        ({"--model": tiny_checkpoint}, "has no experts on two latencies of nasbench201"),
    ):
        options = [part for pair in (given | wrong).items() for part in pair]
        assert message in refused(capsys, "bench", "devices", "--space", "nasbench201", *options)
