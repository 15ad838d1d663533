import json
from dataclasses import replace

import pytest

from nas_rlm.data import Row, read, write
from nas_rlm.programs import table
from nas_rlm.programs.python_runner import Failure, Plan, Program
from nas_rlm.programs.table import measured, read_cases, read_programs

QUICK = Plan(repeats=0, counts=False, seconds=5, trusted=True)
SOURCES = {
    "small": "def f(n): return n",
    "large": "def f(n): return [0] * n",
    "broken": "def f(n): return 1 / 0",
}
PROGRAMS = {name: Program(source, "f", [{"args": [9000]}]) for name, source in SOURCES.items()}


def test_a_row_for_each_program_and_going_on(tmp_path):
    out = tmp_path / "t.parquet"
    some = {name: PROGRAMS[name] for name in ("small", "broken")}
    measured(some, out, QUICK)
    found = {row.identifier: row for row in measured(PROGRAMS, out, QUICK, jobs=3).rows}
    assert {row.identifier: row for row in read(out).rows} == found
    assert list(found) == ["small", "broken", "large"]
    assert {name: row.input for name, row in found.items()} == SOURCES
    assert found["small"].targets["memory"] < 2_000 < 72_000 < found["large"].targets["memory"]
    assert not found["broken"].targets
    assert "division by zero" in json.loads(found["broken"].metainformation)["error"]
    assert json.loads(found["large"].metainformation)["allocated"] > 70_000


def test_what_is_done_is_kept_when_it_is_cut_off(tmp_path, monkeypatch):
    asked = []

    def measure(program, plan):
        asked.append(program)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return Failure("not here")

    monkeypatch.setattr(table, "measure", measure)
    out = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        measured(PROGRAMS, out, QUICK)
    assert [row.identifier for row in read(out).rows] == ["small", "large"]
    measured(PROGRAMS, out, QUICK)
    assert len(read(out)) == 3 and len(asked) == 4


def test_other_tables_and_other_measurements_are_left_alone(tmp_path):
    out = tmp_path / "t.parquet"
    measured({"small": PROGRAMS["small"]}, out, QUICK)
    before = out.read_bytes()
    changed = Program("def f(n): return n + 1", "f", [{"args": [9000]}])
    for programs, plan in (({"small": changed}, QUICK), (PROGRAMS, replace(QUICK, counts=True))):
        with pytest.raises(ValueError, match=r"t\.parquet has 'small' with another source, or measured in"):
            measured(programs, out, plan)
    assert out.read_bytes() == before
    write(out, [Row("APPS", "", {"memory": 3.0}, "x = 1", "small")])
    with pytest.raises(
        ValueError, match=r"is no table of measured python programs: it has 'small' of 'APPS'"
    ):
        measured(PROGRAMS, out, QUICK)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is no program"),
        ("[]", "line 2 is no program"),
        ('{"name": "x", "source": 3, "cases": [{}]}', "source and entry are texts"),
        ('{"name": "x", "source": "1", "cases": []}', "no inputs"),
        ('{"name": "x", "source": "", "cases": [{}]}', "a program is empty"),
        ('{"name": "x", "source": "\\ud800", "cases": [{}]}', "is no Unicode"),
        ('{"name": "x", "source": "1"}', r"\('cases'\)"),
        ('{"name": "one", "source": "1", "cases": [{"stdin": ""}]}', "'one' is there twice"),
    ],
)
def test_lines_that_are_no_programs(tmp_path, line, message):
    path = tmp_path / "p.jsonl"
    path.write_text('{"name": "one", "source": "1", "cases": [{"stdin": ""}]}\n' + line + "\n")
    with pytest.raises(ValueError, match=message):
        read_programs(path)


def test_files_of_programs_and_inputs(tmp_path, monkeypatch):
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
    monkeypatch.setattr(table, "MOST", 0)
    with pytest.raises(ValueError, match="is larger than 0 bytes"):
        read_programs(path)
    path.write_text('[{"args": [1]}]')
    assert read_cases(path) == [{"args": [1]}]
    for content, message in (("{}", "is no list of inputs"), ("[", "is no JSON"), ("[" * 9**5, "is no JSON")):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_cases(path)


def test_names_that_no_table_can_hold_are_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.programs.table.measure", lambda *_: pytest.fail("measured"))
    programs = {"one": Program("pass", "", [{}]), "\ud800": Program("pass", "", [{}])}
    with pytest.raises(ValueError, match=r"the name '\\ud800' is no Unicode"):
        measured(programs, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()
