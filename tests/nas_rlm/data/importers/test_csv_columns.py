import pytest

from nas_rlm.data import Row
from nas_rlm.data.importers.csv_columns import (
    Line,
    column_hints,
    find_objectives,
    merge_rows,
    objective_of_column,
    read_each,
    read_lines,
    read_targets,
    repeated_rows,
    unused_columns,
)


def lines_of(*values, column="x"):
    return [Line(number, {column: value}) for number, value in enumerate(values, 2)]


@pytest.mark.parametrize(
    ("column", "objective"),
    [
        *(("flops", "flops"), ("Params", "params"), ("BLEU", "bleu"), ("throughput/gpu", "throughput/gpu")),
        *(("lat_pixel3", "latency/pixel3"), ("mem_a100", "memory/a100"), ("energy/Box", "energy/Box")),
        *(("epoch", ""), ("lat_", ""), ("accuracy (%)", ""), ("loss/", ""), ("column 1", "")),
    ],
)
def test_names_of_columns_that_are_objectives(column, objective):
    assert objective_of_column(column) == objective


def hints(column):
    return column_hints([column], lines_of("1", "2", column=column), ())


@pytest.mark.parametrize(
    "column",
    [
        *("ms", "MS", "Time", "latency_ms", "msec", "lat_ms", "ms_mean", "pixel3_ms", "runtime [ms]"),
        *("mytime", "times", "tme_gpu"),
    ],
)
def test_a_column_of_milliseconds_gets_the_hint_to_name_the_device(column):
    (found,) = hints(column)
    assert "are these latencies in milliseconds?" in found
    assert found.endswith(f"--objective latency/mydevice={column}")


@pytest.mark.parametrize(
    ("column", "unit"), [("us", "microseconds"), ("t_ns", "nanoseconds"), ("latency (s)", "seconds")]
)
def test_latencies_in_other_units_are_to_be_converted(column, unit):
    (found,) = hints(column)
    assert f"are these latencies in {unit}? Convert them to milliseconds" in found


@pytest.mark.parametrize("column", ["lat_s7", "latency/box_ms", "time/box"])
def test_a_device_may_have_the_name_of_a_unit_in_its_own(column):
    assert objective_of_column(column)


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("latncy/x", "latency/x"),
        ("accurracy", "accuracy"),
        ("Latency_x", "latency/x"),
        ("thoughput/gpu", "throughput/gpu"),
        ("seed", ""),
        ("epochs", ""),
        ("train_s", ""),
    ],
)
def test_a_column_that_is_nearly_an_objective_gets_a_hint(column, meant):
    hint = f"column {column!r} is not used; did you mean {meant}? Rename it, or give --objective "
    hint += f"{meant}={column}"
    assert hints(column) == ([hint] if meant else [])
    assert column_hints([column], lines_of("a", "b", column=column), ()) == []  # no numbers
    with pytest.raises(ValueError, match="has no column of numbers whose name is an objective") as error:
        find_objectives("numbers.csv", [column], lines_of("1", column=column), {}, ())
    assert (hint in str(error.value)) == bool(meant)


def test_columns_without_use_are_listed():
    assert unused_columns(["a", "b"], ["b"]) == ["columns that are not used: a"]
    assert unused_columns(["a"], ["a"]) == []


@pytest.mark.parametrize(("cell", "targets"), [("NA", {}), ("", {}), ("1e3", {"loss": 1000.0})])
def test_missing_numbers_are_left_out(cell, targets):
    assert read_targets(Line(2, {"x": cell}), {"loss": "x"}) == targets


def test_all_lines_that_cannot_be_read_are_named():
    lines = lines_of("1", "1,5", "2", "red")
    with pytest.raises(ValueError) as error:
        read_each("a.csv", lines, lambda line: read_targets(line, {"loss": "x"}))
    first, second = str(error.value).split("; ")
    assert first.startswith("'a.csv' line 3, column x: '1,5' has a comma: expected a number with a decimal")
    assert second.startswith("line 5, column x: 'red' is not valid for loss: expected")
    assert read_each("a.csv", lines[::2], lambda line: line.number) == [2, 4]


@pytest.mark.parametrize(("cells", "has_hint"), [("2,3,4", True), ("2", False)])
def test_all_lines_with_another_number_of_cells_are_named(tmp_path, cells, has_hint):
    path = tmp_path / "a.csv"
    path.write_text(f"x,y\n1,2\n{cells}\n\n3,4\n{cells}\n")
    with pytest.raises(ValueError) as error:
        read_lines(path)
    count = f"{len(cells.split(','))} cell{'s' if has_hint else ''}, of which the first is '2'"
    expected = f"{str(path)!r} line 3: {count}; line 6: {count}: expected 2, as in the header, 'x,y'"
    assert str(error.value).startswith(expected)
    assert ("decimal comma" in str(error.value)) == has_hint


@pytest.mark.parametrize("cell", ['"a" ', '"say "no""'])
def test_a_cell_that_goes_on_after_its_quotation_marks_is_named_by_its_line(tmp_path, cell):
    path = tmp_path / "data.csv"
    path.write_text(f"t,y\na,1\n{cell},2\n")
    with pytest.raises(ValueError, match='line 3: a cell goes on after its second ": expected a "'):
        read_lines(path)
    path.write_text('t,y\n"say ""no""",1\n')
    assert read_lines(path)[1][0].cells["t"] == 'say "no"'


@pytest.mark.parametrize("ending", [".jsonl", ".Parquet"])
def test_files_of_other_formats_are_refused_by_their_ending(tmp_path, ending):
    path = tmp_path / f"data{ending}"
    path.write_text('{"t": "a", "y": 1}\n{"t": "b", "y": 2}\n')
    with pytest.raises(ValueError, match=f"data{ending}' is of another format: expected a CSV file"):
        read_lines(path)


def test_a_quotation_mark_that_is_never_closed_is_named_by_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x,y\n1,2\n1\n"a\nb",3\n"5,6\n7,8\n')
    with pytest.raises(ValueError, match='line 6: a cell that starts with " has no second one'):
        read_lines(path)


def test_rows_of_a_network_are_merged_or_reported():
    measured = ({"loss": 1.0}, {"iou": 2.0}, {"loss": 3.0})
    rows = [Row("mine", "", targets, "text", "a.onnx") for targets in measured]
    merged, reports = merge_rows(lines_of("1", "2", "3"), rows, ["a"] * 3, "file")
    assert [row.targets for row in merged] == [{"loss": 1.0, "iou": 2.0}, {"loss": 3.0}]
    assert reports[0] == "lines that repeat a file without contradiction: 1, merged"
    assert reports[1].endswith("The first one: loss of a.onnx is 1 in line 2 and 3 in line 4")


def test_rows_of_one_network_are_counted():
    rows = [Row("mine", arch, {"loss": 1.0}) for arch in ("a", "b", "a", "a")]
    (line,) = repeated_rows(rows)
    assert line.startswith("rows that repeat the network or program of an earlier row: 2, each kept; models")
    assert repeated_rows(rows[:2]) == []
    assert repeated_rows([Row("mine", "a", {}, uid="x"), Row("mine", "a", {}, uid="y")]) == []
