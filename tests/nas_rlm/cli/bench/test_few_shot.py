import json

import numpy as np
import pytest

import search_spaces
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import SPACE, refused


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
    assert all(line.count("±") == 3 for line in lines[2:])
    assert "seeds is 0" in refused(capsys, *command, "--labels", "12", "--seeds", "0")
    assert "no method 'gcm'" in refused(capsys, *command, "--labels", "12", "--methods", "gcm")
    assert "--source-spaces has nasbench201 itself" in refused(
        capsys, *command, "--labels", "12", "--source-spaces", "nasbench201"
    )
    assert "39 labels of 40 rows" in refused(capsys, *command, "--labels", "39", *methods)
    assert "is of the space 'nasbench101'; did you mean nasbench201?" in refused(
        capsys, *command[:5], "nasbench101", *command[6:], "--labels", "12"
    )


def test_bench_few_shot_continues_and_transfers_from_other_tables(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    for name in ("nasbench201", "nats_size"):
        space = search_spaces.get(name)
        drawn = [space.sample(np.random.default_rng(i)) for i in range(30)]
        rows = [Row(name, str(a), {"accuracy": 50 + space.params(a) / 1e5}) for a in drawn]
        write(tmp_path / "architectures" / f"{name}.parquet", rows)
    out = tmp_path / "few.jsonl"
    command = ["bench", "few-shot", *model, "--space", "nasbench201", "--labels", "12", "--seeds", "1"]
    command += ["--methods", "params,gaussian-process", "--out", str(out)]
    assert main(command) == main([*command, "--source-spaces", "nats_size"]) == main(command) == 0
    tables = capsys.readouterr().out.split("30 rows of ")[1:]
    assert tables[0] == tables[2]
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["method"], r["source_spaces"]) for r in records] == [
        (method, sources) for sources in ([], ["nats_size"]) for method in ("params", "gaussian-process")
    ]
    assert records[0]["spearman"] == records[2]["spearman"] == pytest.approx(1)
