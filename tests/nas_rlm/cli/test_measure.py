from nas_rlm.cli import main
from nas_rlm.data import read
from tests.nas_rlm.cli.commands import refused


def test_measure_python(tmp_path, capsys):
    for name, body in (("one", "list(range(n))"), ("two", "missing")):
        (tmp_path / f"{name}.py").write_text(f"def f(n):\n    return {body}\n")
    (tmp_path / "cases.json").write_text('[{"args": [10]}, {"args": [1000]}]')
    files = [str(tmp_path / "one.py"), str(tmp_path / "two.py")]
    out = ["--out", str(tmp_path / "t.parquet")]
    command = ["measure", "python", *files, "--entry", "f", "--cases", str(tmp_path / "cases.json")]
    assert main([*command, *out, "--repeats", "2", "--warmup", "0"]) == 0
    printed = capsys.readouterr().out
    assert "1 program with memory" in printed
    assert "1 cannot be measured" in printed and "name 'missing' is not defined" in printed
    rows = read(tmp_path / "t.parquet").rows
    assert [row.identifier for row in rows] == files
    assert rows[0].targets["memory"] > 8_000
    programs = ["measure", "python", "--programs", str(tmp_path / "cases.json"), *out]
    assert "line 1 is not a program" in refused(capsys, *programs)
    assert "--cases and --entry are for files" in refused(capsys, *programs, "--entry", "f")
    assert "give either files" in refused(capsys, *command, *programs[2:])
    assert "give either files" in refused(capsys, "measure", "python", *out)
    assert "jobs is 0" in refused(capsys, *command, *out, "--jobs", "0")
    assert "seconds of a run are 0" in refused(capsys, *command, *out, "--seconds", "0")
