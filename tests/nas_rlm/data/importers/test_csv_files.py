import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.importers.csv_files import read_csv

A, B, C = "8:8:8:8:8", "64:32:48:8:16", "16:16:16:16:16"


def write_file(tmp_path, *lines, encoding="utf-8", end="\n"):
    path = tmp_path / "numbers.csv"
    path.write_bytes((end.join(lines) + end).encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_marks_and_ends_of_lines_are_found(tmp_path, separator, encoding, end):
    lines = ["arch,acc_cifar100,Latency/box,note", f'{A},91.5,3,"x"', "", f"{B},NA,4e-1,y"]
    path = write_file(tmp_path, *(s.replace(",", separator) for s in lines), encoding=encoding, end=end)
    table = read_csv(path, "nats_size")
    assert table.rows == [
        Row("nats_size", A, {"accuracy/cifar100": 91.5, "latency/box": 3.0}),
        Row("nats_size", B, {"latency/box": 0.4}),
    ]
    assert table.summary == [
        "accuracy/cifar100 from column acc_cifar100: 1 value from 91.5 to 91.5, 1 missing, in %",
        "latency/box from column Latency/box: 2 values from 0.4 to 3, in ms",
        "columns that are not used: note",
    ]


def test_columns_with_other_names_are_given(tmp_path):
    path = write_file(tmp_path, "net,top,val,id,accuracy", f"{A},90,-1.25,first,1", f"{B},80,0,second,2")
    table = read_csv(path, "nats_size", "net", {"accuracy": "top", "loss/val": "val"})
    assert table.rows == [
        Row("nats_size", A, {"accuracy": 90.0, "loss/val": -1.25}, identifier="first"),
        Row("nats_size", B, {"accuracy": 80.0, "loss/val": 0.0}, identifier="second"),
    ]
    assert table.summary[-1] == "columns that are not used: accuracy"


def test_a_column_names_the_space_of_each_line(tmp_path):
    cell = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"
    path = write_file(tmp_path, "space,arch,mIoU", f"nats_size,{A},0.5", f"NB201,{cell},0.25")
    rows = read_csv(path).rows
    assert [(row.space, row.targets) for row in rows] == [
        ("nats_size", {"miou": 0.5}),
        ("nasbench201", {"miou": 0.25}),
    ]
    path = write_file(tmp_path, "space,arch,mIoU", f"nats_sise,{A},0.5")
    with pytest.raises(ValueError, match="line 2, column space: no search space 'nats_sise'; did you mean"):
        read_csv(path)


def test_architectures_of_an_own_space_are_read(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "wide.py").write_text(
        "from search_spaces.nats_size import NATSSize\n\n\nclass Wide(NATSSize):\n    name = 'wide'\n"
    )
    path = write_file(tmp_path, "architecture,loss", f"{A},-3")
    assert read_csv(path, f"{tmp_path / 'wide.py'}:Wide").rows == [Row("wide", A, {"loss": -3.0})]


@pytest.mark.parametrize("missing", ["", "NA", "nan", "NaN", "N/A", "None", "null", "-", " ", "#N/A", "<NA>"])
def test_missing_values_are_counted(tmp_path, missing):
    path = write_file(tmp_path, "arch,accuracy,loss", f"{A},{missing},1", f"{B},50,2")
    table = read_csv(path, "nats_size")
    assert table.rows[0].targets == {"loss": 1.0}
    assert "1 missing" in table.summary[0] and "missing" not in table.summary[1]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("fast", r"'fast' is not valid for latency/box: expected a number from 0 to 1e\+09 ms, or an empty"),
        ("-1", "'-1' is not valid for latency/box: expected a number from 0 to 1e"),
        ("\N{MINUS SIGN}1.5", r"'−1\.5' has another sign than -: expected '-1\.5'"),
        ("inf", "'inf' is not valid"),
        ("1e30", r"'1e30' is not valid for latency/box: expected a number from 0 to 1e\+09 ms"),
        ("1_000", "'1_000' is not valid"),
        ("3 ms", "'3 ms' is not valid"),
        ('"3,5"', "'3,5' has a comma: expected a number with a decimal point, such as 3.5"),
        ('"1,000.5"', "'1,000.5' has a comma: expected a number with a decimal point$"),
    ],
)
def test_a_bad_cell_is_named(tmp_path, cell, message):
    path = write_file(tmp_path, "arch,latency/box", f"{A},2", f"{B},{cell}")
    with pytest.raises(ValueError, match=rf"numbers.csv' line 3, column latency/box: {message}"):
        read_csv(path, "nats_size")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_decides_the_separator(tmp_path, separator):
    path = write_file(
        tmp_path, separator.join(["arch", "accuracy", "note"]), separator.join([A, "93.4", "first"])
    )
    table = read_csv(path, "nats_size")
    assert [(row.arch_str, row.targets) for row in table.rows] == [(A, {"accuracy": 93.4})]


def test_decimal_commas_are_refused_with_each_separator(tmp_path):
    path = write_file(tmp_path, "arch;accuracy", f"{A};93,4", f"{B};92,1")
    with pytest.raises(ValueError, match=r"line 2, column accuracy: '93,4' has a comma: .* such as 93\.4"):
        read_csv(path, "nats_size")
    path = write_file(tmp_path, "arch,accuracy", f"{A},93,4")
    with pytest.raises(
        ValueError, match=r"line 2: 3 cells, .*: expected 2, .* a decimal comma separates cells too"
    ):
        read_csv(path, "nats_size")


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ([""], {}, "has no lines: expected a header"),
        (["arch,accuracy"], {}, "has only a header"),
        (["arch,accuracy", "7,9"], {}, "line 2, column arch: "),
        (
            ["arch,accuracy", ",9"],
            {},
            "line 2, column arch: '' is no architecture: expected one of nats_size",
        ),
        (
            ["arch,accuracy", A],
            {},
            "line 2: 1 cell, of which .* expected 2, as in the header, 'arch,accuracy'",
        ),
        (["arch,x,x", f"{A},1,1"], {}, "line 1: two columns have the name 'x'"),
        (["net,accuracy", f"{A},1"], {}, "has the columns net, accuracy: expected one of architecture"),
        (["arch,speed", f"{A},1"], {}, "no column of numbers whose name is an objective"),
        (["arch,note,loss", f"{A},1,slow"], {}, "no column of numbers whose name is an objective"),
        (["arch,accuracy,val_accuracy", f"{A},1,1"], {}, "accuracy and val_accuracy are both accuracy"),
        (
            ["arch,top1x", f"{A},1"],
            {"objectives": {"accuracy": "top1"}},
            "no column 'top1' .* did you mean top1x",
        ),
        (["arch,top1x", f"{A},1"], {"architecture": "ach"}, "no column 'ach' for the architecture"),
        (
            ["arch,top1x", f"{A},1"],
            {"objectives": {"a b": "top1x"}},
            "'a b' cannot be the name of an objective",
        ),
        (["arch,accuracy", f'"{A},1'], {}, 'line 2: a cell that starts with " has no second one'),
        (["arch,accuracy", f"{A},1"], {"space": ""}, "has no column space"),
        (["arch,accuracy", f"{A},1"], {"space": "nats_sise"}, "no search space 'nats_sise'"),
    ],
)
def test_a_bad_file_is_explained(tmp_path, lines, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_csv(write_file(tmp_path, *lines), **{"space": "nats_size", **arguments})


def test_other_encodings_and_missing_files_are_refused(tmp_path):
    for encoding in ("utf-16", "latin-1"):
        path = write_file(tmp_path, "arch,accuracy,ä", f"{A},1,1", encoding=encoding)
        with pytest.raises(ValueError, match="is not text in UTF-8"):
            read_csv(path, "nats_size")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_csv(tmp_path / "none.csv", "nats_size")


def test_repeated_architectures_are_merged_or_reported(tmp_path):
    lines = [f"{A},90,", f"{B},80,1", f"{A},,2", f"{B},80,1", f"{C},70,5", f"{C},71,5", f"{C},72,5"]
    table = read_csv(write_file(tmp_path, "arch,accuracy,loss", *lines), "nats_size")
    assert [(row.arch_str, *row.targets.values()) for row in table.rows] == [
        *((A, 90.0, 2.0), (B, 80.0, 1.0)),
        *((C, 70.0, 5.0), (C, 71.0, 5.0), (C, 72.0, 5.0)),
    ]
    assert table.summary[-2:] == [
        "lines that repeat an architecture without contradiction: 2, merged",
        "lines that contradict an earlier line: 2, each kept as a row; models learn from all, and a search"
        " takes the last one. The first ones:"
        f" accuracy of {C} is 70 in line 6 and 71 in line 7;"
        f" accuracy of {C} is 70 in line 6 and 72 in line 8",
    ]


def test_latencies_of_zero_are_reported(tmp_path):
    path = write_file(tmp_path, "arch,latency/box", f"{A},0", f"{B},0.005")
    line = read_csv(path, "nats_size").summary[0]
    assert "1 is 0, which models do not learn" in line


SPACE = search_spaces.get("nasbench201")
CELLS = [str(SPACE.sample(np.random.default_rng(seed))) for seed in range(8)]


def test_costs_that_are_not_those_of_the_networks_are_reported(tmp_path):
    flops = [SPACE.flops(SPACE.parse(cell)) for cell in CELLS]
    right = [f"{cell},{value},2.0" for cell, value in zip(CELLS, flops, strict=True)]
    assert read_csv(write_file(tmp_path, "arch,flops,latency/x", *right), "nasbench201").warnings == []
    doubled = [*flops[:2], *(2 * value for value in flops[2:])]
    wrong = [f"{cell},{value},2.0" for cell, value in zip(CELLS, doubled, strict=True)]
    (warning,) = read_csv(write_file(tmp_path, "arch,flops,latency/x", *wrong), "nasbench201").warnings
    assert warning.startswith(
        "flops is not that of the networks in lines 4, 5, 6, 7, 8 and 1 more: line 4 has "
    )
    assert f"and the network has {flops[2]:,}. Leave the column out" in warning
