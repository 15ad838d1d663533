from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import ARCHS, refused


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
