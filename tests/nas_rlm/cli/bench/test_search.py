import numpy as np
import pytest

from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import SPACE, refused


@pytest.mark.long
def test_bench_search_prints_a_line_for_each_method_and_continues(tmp_path, model, monkeypatch, capsys):
    names = ("accuracy", "latency/pixel3", "latency/eyeriss")
    monkeypatch.setattr("nas_rlm.benchmarks.search.fronts.OBJECTIVE_SETS", (names[:2], names))
    monkeypatch.setattr("nas_rlm.search.algorithms.random_search.MAX_DUPLICATES", 2)
    path, rng = tmp_path / "cells.parquet", np.random.default_rng(0)
    cells = {str(SPACE.sample(rng)): None for _ in range(150)}
    values = [(85 + 5 * rng.random(), *(2 + 5 * rng.random(2))) for _ in cells]
    write(
        path,
        [Row("nasbench201", a, dict(zip(names, v, strict=True))) for a, v in zip(cells, values, strict=True)],
    )
    command = ["bench", "search", *model, "--data", str(path), "--population", "10", "--generations", "3"]
    output = ["--out", str(tmp_path / "s.jsonl"), "--picture", str(tmp_path / "s.png")]
    assert main([*command, *output, "--seeds", "1"]) == main([*command, *output, "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "evolution on true values" in line]) == 2 * 2
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 2 * 5
    assert (tmp_path / "s.png").stat().st_size > 10_000
    assert "--seeds is 0" in refused(capsys, *command, "--seeds", "0")
    assert "150 labels of 150 rows" in refused(capsys, *command, "--labels", "150")
    assert "is not a picture" in refused(capsys, *command, "--picture", tmp_path / "s.txt")
