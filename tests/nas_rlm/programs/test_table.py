import json
from dataclasses import replace

import pytest

from nas_rlm.data import Row, read, write
from nas_rlm.programs import table
from nas_rlm.programs.python_runner import Failure, Plan, Program
from nas_rlm.programs.table import measure_programs, read_cases, read_programs

QUICK = Plan(repeats=0, count_lines=False, seconds_per_run=5, trusted=True)
SOURCES = {
    "small": "def f(n): return n",
    "large": "def f(n): return [0] * n",
    "broken": "def f(n): return 1 / 0",
}
PROGRAMS = {name: Program(source, "f", [{"args": [9000]}]) for name, source in SOURCES.items()}


def test_each_program_has_a_row_and_is_measured_once(tmp_path):
    out = tmp_path / "t.parquet"
    two_programs = {name: PROGRAMS[name] for name in ("small", "broken")}
    measure_programs(two_programs, out, QUICK)
    rows = {row.identifier: row for row in measure_programs(PROGRAMS, out, QUICK, jobs=3).rows}
    assert {row.identifier: row for row in read(out).rows} == rows
    assert list(rows) == ["small", "broken", "large"]
    assert {name: row.input for name, row in rows.items()} == SOURCES
    assert rows["small"].targets["memory"] < 2_000 < 72_000 < rows["large"].targets["memory"]
    assert not rows["broken"].targets


def test_timed_runs_give_the_time_of_a_call(tmp_path):
    found = measure_programs(PROGRAMS, tmp_path / "t.parquet", replace(QUICK, repeats=2))
    rows = {row.identifier: row for row in found.rows}
    assert rows["small"].targets["time"] > 0 and set(rows["large"].targets) == {"memory", "time"}
    assert not rows["broken"].targets
    assert "division by zero" in json.loads(rows["broken"].metainformation)["error"]
    assert json.loads(rows["large"].metainformation)["allocated"] > 70_000


def test_finished_measurements_are_kept_after_an_interruption(tmp_path, monkeypatch):
    measured = []

    def measure(program, plan):
        measured.append(program)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return Failure("not here")

    monkeypatch.setattr(table, "measure", measure)
    out = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        measure_programs(PROGRAMS, out, QUICK)
    assert [row.identifier for row in read(out).rows] == ["small", "large"]
    measure_programs(PROGRAMS, out, QUICK)
    assert len(read(out)) == 3 and len(measured) == 4


def test_tables_of_other_programs_or_settings_are_refused(tmp_path):
    out = tmp_path / "t.parquet"
    measure_programs({"small": PROGRAMS["small"]}, out, QUICK)
    before = out.read_bytes()
    changed = Program("def f(n): return n + 1", "f", [{"args": [9000]}])
    for programs, plan in (({"small": changed}, QUICK), (PROGRAMS, replace(QUICK, count_lines=True))):
        with pytest.raises(ValueError, match=r"t\.parquet has 'small' with another source or other settings"):
            measure_programs(programs, out, plan)
    assert out.read_bytes() == before
    write(out, [Row("APPS", "", {"memory": 3.0}, "x = 1", "small")])
    with pytest.raises(
        ValueError, match=r"is not a table of measured python programs: it has 'small' of 'APPS'"
    ):
        measure_programs(PROGRAMS, out, QUICK)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not a program"),
        ("[]", "line 2 is not a program"),
        ('{"name": "x", "source": 3, "cases": [{}]}', "source and entry must be text"),
        ('{"name": "x", "source": "1", "cases": []}', "no inputs"),
        ('{"name": "x", "source": "", "cases": [{}]}', "a program is empty"),
        ('{"name": "x", "source": "\\ud800", "cases": [{}]}', "is not valid Unicode"),
        ('{"name": "x", "source": "1"}', "it has no cases"),
        ('{"name": "one", "source": "1", "cases": [{"stdin": ""}]}', "'one' occurs twice"),
    ],
)
def test_lines_that_are_not_programs_are_refused(tmp_path, line, message):
    path = tmp_path / "p.jsonl"
    path.write_text('{"name": "one", "source": "1", "cases": [{"stdin": ""}]}\n' + line + "\n")
    with pytest.raises(ValueError, match=message):
        read_programs(path)


def test_all_lines_that_are_not_programs_are_named(tmp_path):
    path = tmp_path / "p.jsonl"
    right = '{"name": "one", "source": "1", "cases": [{"stdin": ""}]}'
    path.write_text("\n".join(["[", right, right, '{"name": "two"}', "", '{"name": "one"}'] + 4 * ["{"]))
    with pytest.raises(ValueError) as error:
        read_programs(path)
    start, _, end = str(error.value).partition(": expected for example ")
    first, *others = start.split("; ")
    assert first.startswith(f"{path} line 1 is not a program (Expecting value")
    assert others[:3] == [
        "line 3 is not a program ('one' occurs twice)",
        "line 4 is not a program (it has no source)",
        "line 6 is not a program (it has no source)",
    ]
    assert others[3].startswith("line 7 is not a program (") and others[4] == "and 3 more"
    assert read_programs_of(tmp_path, end) == ["one"]


def read_programs_of(tmp_path, line):
    (tmp_path / "example.jsonl").write_text(line)
    return list(read_programs(tmp_path / "example.jsonl"))


def test_files_of_programs_and_inputs_are_read(tmp_path, monkeypatch):
    path = tmp_path / "p.jsonl"
    records = [
        {"name": n, "source": s, "entry": "f", "cases": [{"args": [9000]}]} for n, s in SOURCES.items()
    ]
    path.write_text("\n".join(map(json.dumps, records)) + "\n\n")
    assert read_programs(path) == PROGRAMS
    odd = {**records[0], "source": "x = '\u2028'"}
    path.write_text(json.dumps(odd, ensure_ascii=False))
    assert read_programs(path)["small"].source == odd["source"]
    path.write_text("\n")
    with pytest.raises(ValueError, match="has no programs"):
        read_programs(path)
    monkeypatch.setattr(table, "MAX_PROGRAMS_BYTES", 0)
    with pytest.raises(ValueError, match="is larger than 0 bytes"):
        read_programs(path)
    path.write_text('[{"args": [1]}]')
    assert read_cases(path, "f") == [{"args": [1]}]
    for content, message in (
        ("{}", "is not a list of inputs"),
        ("[]", "has no inputs"),
        ("[", "is not JSON"),
        ("[" * 9**5, "is not JSON"),
    ):
        path.write_text(content)
        for entry, example in (("f", r'\[{"args": \[1, 2\]}\]'), ("", r'\[{"stdin": "1 2"}\]')):
            with pytest.raises(ValueError, match=f"{message}.*: expected for example {example}$"):
                read_cases(path, entry)


def test_names_that_are_not_unicode_are_refused_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.programs.table.measure", lambda *_: pytest.fail("measured"))
    programs = {"one": Program("pass", "", [{}]), "\ud800": Program("pass", "", [{}])}
    with pytest.raises(ValueError, match=r"the name '\\ud800' is not valid Unicode"):
        measure_programs(programs, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()
