import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nas_rlm.data.text_files import numeric_columns, read_text_file

ROWS = [{"name": " a,b ", "size": 3, "y": 1.5}, {"name": "ü\n2", "size": None, "y": None}]


@pytest.fixture(params=["csv", "parquet", "jsonl"])
def path(request, tmp_path):
    file = tmp_path / f"data.{request.param}"
    if request.param == "csv":
        file.write_text('name,size,y\n" a,b ",3,1.5\n"ü\n2",,\n')
    elif request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        file.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return file


def test_texts_are_read_as_they_are(path):
    file = read_text_file(path, "name", ["y"])
    assert file.texts == [" a,b ", "ü\n2"]
    assert file.notes == ["columns that are not used: size"]


def test_without_a_text_column_a_text_is_the_json_of_the_others(path):
    file = read_text_file(path, targets=["y"])
    assert [json.loads(text) for text in file.texts] == [{k: r[k] for k in ("name", "size")} for r in ROWS]
    assert file.columns == ("name", "size")
    assert read_text_file(path, columns=file.columns).texts == file.texts


def test_columns_with_numbers_are_listed(path):
    assert numeric_columns(path) == ["size", "y"]


def test_rows_without_a_text_are_left_out(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"t": "a", "y": 1}\n{"y": 2}\n{"t": {"k": [1]}, "y": 3}\n')
    file = read_text_file(path, "t", ["y"])
    assert (file.texts, file.values) == (["a", '{"k": [1]}'], {"y": [1, 3]})
    assert file.notes == ["left out: 1 row has no t"] and file.num_left_out == 1
    path.write_text('{"t": null, "y": 1}\n{"y": 2}\n')
    with pytest.raises(ValueError, match="has no row with a t: expected texts in this column"):
        read_text_file(path, "t", ["y"])


def test_empty_texts_are_counted(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("t,y\n,1\na,2\n   ,3\n")
    file = read_text_file(path, "t", ["y"])
    assert (file.texts, file.notes) == (["", "a", "   "], ["2 texts are empty"])
    assert read_text_file(path, targets=["y"]).notes == []


def test_bytes_are_texts_in_utf_8(tmp_path):
    path = tmp_path / "data.parquet"
    columns = {"t": ["größe".encode(), b"b"], "image": [b"\xff", b"\xff"], "y": [1, 2]}
    pq.write_table(pa.table(columns), path)
    assert read_text_file(path, "t", ["y"]).texts == ["größe", "b"]
    assert read_text_file(path, columns=["t"]).texts == ['{"t": "größe"}', '{"t": "b"}']
    with pytest.raises(ValueError, match=r"row 1, column image: b'\\xff': expected text in UTF-8; row 2"):
        read_text_file(path, "image", ["y"])


def test_numbers_of_json_beyond_the_largest_one_are_no_infinity(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"t": "a", "y": 1e400}\n{"t": "b", "y": Infinity}\n')
    with pytest.raises(ValueError, match=r"line 1, column y: '1e400': expected a number of at most [^;]*$"):
        read_text_file(path, "t", ["y"])


def test_two_names_of_an_object_are_refused(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"t": "a", "y": 1}\n{"t": "b", "y": 1, "y": 2}\n')
    with pytest.raises(ValueError, match="line 2: the name 'y' occurs twice"):
        read_text_file(path, "t", ["y"])


def test_a_name_with_a_comma_is_said_to_be_one(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('t,"loss, final"\na,1\n')
    with pytest.raises(
        ValueError, match="no column 'loss'; 'loss, final' has a comma, which separates names"
    ):
        read_text_file(path, "t", ["loss", "final"])


def test_a_cell_may_be_longer_than_the_limit_of_the_csv_module(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"t,y\n{'x' * 200_000},1\n")
    assert len(read_text_file(path, "t", ["y"]).texts[0]) == 200_000


def test_a_cell_without_a_value_is_named_by_its_line(tmp_path):
    rows = [{"y": 1}, {"y": "2 ms"}]
    (tmp_path / "data.csv").write_text("t,y\na,1\n\nb,2 ms\n")
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(
        pa.Table.from_pylist([{k: str(v) for k, v in row.items()} for row in rows]), tmp_path / "data.parquet"
    )
    for suffix, place in (("csv", "line 4"), ("jsonl", "line 2"), ("parquet", "row 2")):
        message = f"{place}, column y: '2 ms': expected a number alone, such as 2"
        with pytest.raises(ValueError, match=message):
            read_text_file(tmp_path / f"data.{suffix}", targets=["y"], columns=["y"])


def test_of_many_columns_that_are_not_used_the_first_are_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"t,y,{','.join(f'c{i}' for i in range(999))}\na,1{',2' * 999}\n")
    assert read_text_file(path, "t", ["y"]).notes == ["columns that are not used: c0, c1, c2, c3, c4, c5, …"]


def test_all_cells_without_values_are_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("t,y,z\na,1,red\nb,2 ms,\nc,2,3\nd,1.000.000,x\n" + "e,z,1\n" * 3)
    with pytest.raises(ValueError) as error:
        read_text_file(path, targets=["y", "z"])
    places = [part.partition(": '")[0] for part in str(error.value).split("; ")]
    assert places == [
        f"{str(path)!r} line 2, column z",
        *("line 3, column y", "line 5, column y", "line 5, column z", "line 6, column y", "and 2 more"),
    ]
    assert "line 3, column y: '2 ms': expected a number alone, such as 2;" in str(error.value)


def test_all_lines_that_are_no_objects_are_named(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"t": 1}\n[1, 2]\n{"t":\n')
    with pytest.raises(ValueError, match=r"line 2 is '\[1, 2\]': expected an object, .*; line 3 is not JSON"):
        read_text_file(path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table([[1], [2]], names=["y", "y"]), path)
    with pytest.raises(ValueError, match="two columns have the name 'y'"):
        read_text_file(path, targets=["y"])


def test_bad_files_are_refused_with_the_reason(path, tmp_path):
    with pytest.raises(ValueError, match=r"has no column 'nam'; did you mean name\?"):
        read_text_file(path, "nam", ["y"])
    with pytest.raises(ValueError, match="'y' is both the text and a target"):
        read_text_file(path, "y", ["y"])
    with pytest.raises(ValueError, match="expected one with texts"):
        read_text_file(path, targets=["name", "size", "y"])
    with pytest.raises(FileNotFoundError, match=r"expected one of \.csv"):
        read_text_file(tmp_path / "no.csv")
    for name, content, message in (
        ("a.txt", "x", "of an unknown kind"),
        ("a.parquet", "x", "not a readable parquet file"),
        ("a.jsonl", "{", "line 1 is not JSON"),
        ("a.jsonl", "[1]", "expected an object"),
        ("a.jsonl", "", "has no rows"),
        ("a.csv", "", "has no lines"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            read_text_file(tmp_path / name)


WRITTEN = (
    "1.10",
    "1.1",
    "1.100",
    "007",
    "7",
    "+7",
    "7.0",
    "1e5",
    "100000",
    "1E5",
    "-0.50",
    "00.5",
    ".5",
    "5.",
)


@pytest.mark.parametrize("text", ["", "code"])
def test_cells_of_csv_files_stay_as_they_are_written(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text("code,y\n" + "".join(f"{cell},1\n" for cell in WRITTEN))
    texts = read_text_file(path, text, targets=["y"]).texts
    if text:
        assert tuple(texts) == WRITTEN
        return
    assert len(set(texts)) == len(WRITTEN)
    for cell, found in zip(WRITTEN, texts, strict=True):
        assert found in (f'{{"code": {cell}}}', f'{{"code": "{cell}"}}')
        code = json.loads(found)["code"]
        assert code == cell if isinstance(code, str) else code == float(cell)
    numbers = [
        cell for cell, found in zip(WRITTEN, texts, strict=True) if '"' not in found.removeprefix('{"code"')
    ]
    assert numbers == ["1.10", "1.1", "1.100", "7", "7.0", "1e5", "100000", "1E5", "-0.50"]


def test_words_for_missing_cells_are_null_and_others_strings(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('a,b,y\nNA,"say ""5""",1\n-,true,2\n')
    texts = read_text_file(path, targets=["y"]).texts
    assert texts == ['{"a": null, "b": "say \\"5\\""}', '{"a": null, "b": "true"}']


def test_a_json_file_is_told_from_json_lines(tmp_path):
    path = tmp_path / "data.json"
    path.write_text('[{"t": "a", "y": 1}]')
    with pytest.raises(ValueError, match=r"data.json' is of an unknown kind: .*an object in each line"):
        read_text_file(path, "t", ["y"])


def test_a_directory_is_said_to_be_one(tmp_path):
    with pytest.raises(ValueError, match=r"is a directory: expected a file, one of \.csv"):
        numeric_columns(tmp_path)
