import pytest

from nas_rlm.cli import main
from nas_rlm.data import Row, Table, read
from nas_rlm.programs import triton_runner
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
    (reason,) = [line for line in printed.splitlines() if line.startswith(f"  {files[1]}: ")]
    assert "1 cannot be measured:" in printed and "name 'missing' is not defined" in reason
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


def test_files_whose_functions_are_not_called_are_named(tmp_path, capsys):
    sources = {
        "one.py": "def f(n):\n    return [0] * n\n",
        "two.py": '"""Two."""\nfrom math import pi\nclass A:\n    pass\n',
        "three.py": "def f(n):\n    return [0] * n\nprint(f(3))\n",
    }
    files = [str(tmp_path / name) for name in sources]
    for file, source in zip(files, sources.values(), strict=True):
        (tmp_path / file).write_text(source)
    quick = ("--repeats", "0", "--warmup", "0", "--no-counts")
    command = ("measure", "python", *files, *quick, "--out", str(tmp_path / "t.parquet"))
    assert main(command) == 0
    shown = capsys.readouterr().err
    assert f"{files[0]} and 1 other: functions are defined and not called; give --entry" in shown
    assert main(["measure", "python", files[2], *quick, "--out", str(tmp_path / "u.parquet")]) == 0
    assert "not called" not in capsys.readouterr().err


def test_every_failure_is_listed_with_its_reason(tmp_path, capsys):
    sources = {
        "reads": "print(int(input()))",
        "loops": "while True: pass",
        "hoards": "x = bytearray(1 << 34)",
        **{f"fails{i}": f"raise ValueError({i})" for i in range(9)},
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    files = [str(tmp_path / f"{name}.py") for name in sources]
    limits = ["--seconds", ".2", "--memory", str(2**28), "--repeats", "0", "--no-counts"]
    assert main(["measure", "python", *files, *limits, "--out", str(tmp_path / "t.parquet")]) == 2
    printed, error = capsys.readouterr()
    assert error.splitlines()[-1] == "nas-rlm: error: nothing was measured: 12 programs failed"
    assert [row.identifier for row in read(tmp_path / "t.parquet").rows] == files
    for expected in (
        f"  {files[0]}: input 0: EOFError",
        "it ran longer than 1.2 seconds, 6 times the limit, in a run that records memory",
        "MemoryError: it needs more than the limit of 268,435,456 bytes",
        "fails6.py: input 0: ValueError: 6",
        "  … and 2 more, with their errors in the table",
        'programs that read input need --cases with a file such as [{"stdin": "1 2"}]',
    ):
        assert expected in printed
    assert "fails7" not in printed


@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_tables_are_written_with_their_own_ending_alone(tmp_path, capsys, ending):
    (tmp_path / "f.py").write_text("x = 1\n")
    out = tmp_path / f"t{ending}"
    line = refused(capsys, "measure", "python", tmp_path / "f.py", "--out", out)
    assert line.endswith(f"the table is a parquet file, expected {tmp_path / 't.parquet'}")
    assert not out.exists()


def test_bad_inputs_are_reported_with_the_file_of_the_inputs(tmp_path, capsys):
    program, cases = tmp_path / "f.py", tmp_path / "cases.json"
    program.write_text("def f(n):\n    return n\n")
    command = ["measure", "python", program, "--entry", "f", "--cases", cases, "--out", tmp_path / "t"]
    for content, message in {
        '[{"arg": [3]}]': f"{cases}: {{'arg': [3]}} is not an input: expected for example",
        "[]": f"{cases} has no inputs: expected for example",
    }.items():
        cases.write_text(content)
        assert message in refused(capsys, *command)
    assert not (tmp_path / "t").exists()


def test_files_that_are_no_programs_are_listed_and_the_others_measured(tmp_path, capsys):
    contents = {"empty": b"", "blank": b" \n", "bytes": b"\xff\xfe\x00", "one": b"x = [0] * 1000\n"}
    for name, content in contents.items():
        (tmp_path / f"{name}.py").write_bytes(content)
    *wrong, right = (str(tmp_path / f"{name}.py") for name in contents)
    out = tmp_path / "t.parquet"
    command = ("measure", "python", *wrong, "--repeats", "0", "--no-counts", "--out", str(out))
    assert refused(capsys, *command).endswith("nothing was measured: 3 programs failed")
    assert not out.exists()
    assert main([*command, right]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"1 program with memory: {out}", "3 cannot be measured:"]
    reasons = ("is empty: expected a program", "is empty: expected a program", "is not text in UTF-8")
    for path, reason, line in zip(wrong, reasons, lines[2:], strict=True):
        assert path in line and reason in line
    assert [row.identifier for row in read(out).rows] == [right]
    assert "there is no file" in refused(capsys, *command, right, tmp_path / "missing.py")


def test_notebooks_and_other_languages_are_no_python_programs(tmp_path, capsys):
    contents = {"a.ipynb": '{"cells": []}', "b.cpp": "int f();", "nul.py": "x = 1\0", "two\nlines.py": " "}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    out = tmp_path / "t.parquet"
    refused(capsys, "measure", "python", *(tmp_path / name for name in contents), "--out", out)
    assert not out.exists()
    assert main(["measure", "python", *(str(tmp_path / n) for n in contents), "--out", str(out)]) == 2
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"  {tmp_path}/a.ipynb is a notebook: expected its code as a program, such as a.py",
        f"  {tmp_path}/b.cpp is in C++: expected a program in Python",
        f"  {tmp_path}/nul.py is not text, since it has NUL characters: expected a program",
        f"  {tmp_path}/two lines.py is empty: expected a program",
    ]


def test_measure_triton_warns_once_of_a_kernel_whose_sizes_contradict_each_other(
    tmp_path, monkeypatch, capsys
):
    pytest.importorskip("triton")

    def measured(kernels, *_, **__):
        rows = [
            Row("triton", "", {"latency/gpu": 1.0}, k.source, n, metainformation="{}")
            for n, k in kernels.items()
        ]
        return Table("found", rows)

    monkeypatch.setattr(triton_runner, "measure_kernels", measured)
    kernel = "import triton\n@triton.jit\ndef f(x): pass\ndef get_inputs(): return [torch.rand(64)]\n"
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    wrong.write_text(f"# input: [[4096]]\n{kernel}")
    right.write_text(f"# input: [[64]]\n{kernel}")
    command = ["measure", "triton", wrong, right, wrong, "--out", tmp_path / "t.parquet"]
    assert main(list(map(str, command))) == 0
    printed, error = capsys.readouterr()
    assert "2 kernels with latency" in printed
    assert error == (
        f"nas-rlm: warning: {wrong}: its first line has the input sizes [[4096]], and its get_inputs() has"
        " [[64]]; models learn those of the first line\n"
    )
