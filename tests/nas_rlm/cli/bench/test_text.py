from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import refused


def test_bench_text_counts_tokens_of_spaces_or_of_tables(tmp_path, model, capsys):
    write(tmp_path / "own.parquet", [Row("python", "", {"memory": 1.0}, "x = [0] * n") for _ in range(3)])
    assert main(["bench", "text", *model, "--space", "nats_size", "--count", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("nats_size")
    assert main(["bench", "text", *model, "--data", str(tmp_path / "own.parquet")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "own"
    line = refused(capsys, "bench", "text", "--space", "fbnet", "--data", tmp_path / "own.parquet")
    assert "--space and --data: give one of them" in line
