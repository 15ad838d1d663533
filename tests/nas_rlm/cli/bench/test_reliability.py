from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import refused


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
