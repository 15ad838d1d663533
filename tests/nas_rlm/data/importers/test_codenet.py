import csv

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.data.importers.registry import import_benchmark
from nas_rlm.data.splits import train_validation_test_split
from tests.nas_rlm.cli.commands import refused

FIELDS = ("submission_id", "problem_id", "language", "filename_ext", "status", "memory")


def submission(directory, number, language, suffix, memory, status="Accepted", source="x = 1\n"):
    problem = "p00001"
    source_directory = directory / "data" / problem / language
    source_directory.mkdir(parents=True, exist_ok=True)
    (source_directory / f"{number}.{suffix}").write_bytes(
        source if isinstance(source, bytes) else source.encode()
    )
    return dict(zip(FIELDS, (number, problem, language, suffix, status, memory), strict=True))


@pytest.fixture
def directory(tmp_path):
    records = [
        submission(tmp_path, "s1", "Python", "py", "9176"),
        submission(tmp_path, "s2", "C++", "cpp", "3412.0", source="int main() {}\n"),
        submission(tmp_path, "s3", "Python", "py", "9000", status="Wrong Answer"),
        submission(tmp_path, "s4", "Ruby", "rb", "9000"),
        submission(tmp_path, "s5", "Python", "py", ""),
        submission(tmp_path, "s6", "C", "c", "800", source=b"\xff\xfe"),
        submission(tmp_path, "s7", "C", "c", "800", source="  \n"),
    ]
    write_records(tmp_path, records)
    return tmp_path


def write_records(directory, records):
    (directory / "metadata").mkdir(exist_ok=True)
    with open(directory / "metadata" / "p00001.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(records)


def test_accepted_submissions_become_rows(directory, tmp_path):
    out = tmp_path / "table.parquet"
    assert main(["data", "import", "codenet", str(directory), "--out", str(out)]) == 0
    rows = {row.identifier: row for row in read(out).rows}
    assert rows.keys() == {"s1", "s2"}
    assert rows["s1"].targets == {"memory": 9176 * 1024} and rows["s1"].space == "CDSS/Python"
    assert rows["s2"].space == "CDSS/C++" and rows["s2"].input == "int main() {}\n"
    assert {row.group for row in rows.values()} == {"p00001"}
    assert sum(map(len, train_validation_test_split(read(out), by_group=True))) == 2


def test_submissions_of_a_language_are_drawn_at_random(directory, monkeypatch):
    write_records(directory, [submission(directory, f"s{i}", "Python", "py", "9000") for i in range(30)])
    monkeypatch.setattr("nas_rlm.data.importers.codenet.MAX_SUBMISSIONS_PER_LANGUAGE", 7)
    drawn = [row.identifier for row in import_benchmark("codenet", directory)]
    assert len(set(drawn)) == 7 and drawn != [f"s{i}" for i in range(7)]
    assert drawn == [row.identifier for row in import_benchmark("codenet", directory)]


def test_directories_of_another_format_are_refused(directory, tmp_path, capsys):
    out = tmp_path / "no.parquet"
    (tmp_path / "empty").mkdir()
    line = refused(capsys, "data", "import", "codenet", tmp_path / "empty", "--out", out)
    assert "is not the directory Project_CodeNet" in line and "it has no metadata/p00000.csv" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"submission_id": "../../s1"}, r"p00001.csv line 2: it names p00001/../../s1.py"),
        ({"submission_id": "s404"}, "s404: .*No such file"),
        ({"memory": "much"}, "could not convert"),
        ({"memory": "inf"}, "the memory is inf"),
        ({"memory": "nan"}, "the memory is nan"),
        ({"memory": "1e308"}, r"the memory is 1e\+308"),
        ({"memory": "-5"}, "the memory is -5"),
        ({"filename_ext": ""}, "it names p00001/s1.: expected"),
    ],
)
def test_submissions_that_are_not_valid_are_left_out(directory, capsys, tmp_path, change, reason):
    valid = [submission(directory, f"s{i}", "Python", "py", "9000") for i in (1, 2)]
    write_records(directory, [valid[0] | change, valid[1]])
    with pytest.warns(UserWarning, match=f"1 entry is not valid and was left out: .*{reason}"):
        rows = import_benchmark("codenet", directory)
    assert [row.identifier for row in rows] == ["s2"]
    write_records(directory, [valid[0] | change])
    line = refused(capsys, "data", "import", "codenet", directory, "--out", tmp_path / "no.parquet")
    assert "has no measurements" in line and not (tmp_path / "no.parquet").exists()


def test_metadata_without_a_column_is_left_out(directory):
    (directory / "metadata" / "p00002.csv").write_text("submission_id,memory\ns1,9000\ns2,9000\n")
    (directory / "metadata" / "p00003.csv").write_bytes(b"\xff\xfe\n")
    with pytest.warns(UserWarning, match=r"2 entries .*: p00002.csv line 2: 'status' is missing"):
        assert len(import_benchmark("codenet", directory)) == 2
