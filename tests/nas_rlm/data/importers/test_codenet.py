import csv

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.data.importers.official import read_official
from nas_rlm.data.tables import split_in_three
from tests.nas_rlm.cli.commands import refused

FIELDS = ("submission_id", "problem_id", "language", "filename_ext", "status", "memory")


def submission(folder, number, language, suffix, memory, status="Accepted", source="x = 1\n"):
    problem = "p00001"
    place = folder / "data" / problem / language
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{number}.{suffix}").write_bytes(source if isinstance(source, bytes) else source.encode())
    return dict(zip(FIELDS, (number, problem, language, suffix, status, memory), strict=True))


@pytest.fixture
def folder(tmp_path):
    records = [
        submission(tmp_path, "s1", "Python", "py", "9176"),
        submission(tmp_path, "s2", "C++", "cpp", "3412.0", source="int main() {}\n"),
        submission(tmp_path, "s3", "Python", "py", "9000", status="Wrong Answer"),
        submission(tmp_path, "s4", "Ruby", "rb", "9000"),
        submission(tmp_path, "s5", "Python", "py", ""),
        submission(tmp_path, "s6", "C", "c", "800", source=b"\xff\xfe"),
        submission(tmp_path, "s7", "C", "c", "800", source="  \n"),
    ]
    written(tmp_path, records)
    return tmp_path


def written(folder, records):
    (folder / "metadata").mkdir(exist_ok=True)
    with open(folder / "metadata" / "p00001.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(records)


def test_accepted_submissions_become_rows(folder, tmp_path):
    out = tmp_path / "table.parquet"
    assert main(["data", "import", "codenet", str(folder), "--out", str(out)]) == 0
    rows = {row.identifier: row for row in read(out).rows}
    assert rows.keys() == {"s1", "s2"}
    assert rows["s1"].targets == {"memory": 9176 * 1024} and rows["s1"].space == "CDSS/Python"
    assert rows["s2"].space == "CDSS/C++" and rows["s2"].input == "int main() {}\n"
    assert {row.group for row in rows.values()} == {"p00001"}
    assert sum(map(len, split_in_three(read(out), by_group=True))) == 2


def test_of_many_some_are_drawn(folder, monkeypatch):
    written(folder, [submission(folder, f"s{i}", "Python", "py", "9000") for i in range(30)])
    monkeypatch.setattr("nas_rlm.data.importers.codenet.MOST", 7)
    drawn = [row.identifier for row in read_official("codenet", folder)]
    assert len(set(drawn)) == 7 and drawn != [f"s{i}" for i in range(7)]
    assert drawn == [row.identifier for row in read_official("codenet", folder)]


def test_folders_that_are_not_codenet(folder, tmp_path, capsys):
    out = tmp_path / "no.parquet"
    (tmp_path / "empty").mkdir()
    line = refused(capsys, "data", "import", "codenet", tmp_path / "empty", "--out", out)
    assert "holds nothing that was measured: expected the folder Project_CodeNet" in line
    written(folder, [submission(folder, "s1", "Python", "py", "9000") | {"submission_id": "../../s1"}])
    assert "names p00001/../../s1.py" in refused(capsys, "data", "import", "codenet", folder, "--out", out)
    written(folder, [submission(folder, "s1", "Python", "py", "9000") | {"submission_id": "s404"}])
    assert "No such file" in refused(capsys, "data", "import", "codenet", folder, "--out", out)
    assert not out.exists()
