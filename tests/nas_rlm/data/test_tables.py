import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import search_spaces
from nas_rlm.data import Row, read, write
from nas_rlm.data.objective_kinds import Declaration
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import COLUMNS, check_readable

CHAIN = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"


def record(**changes):
    empty = dict.fromkeys(COLUMNS, "")
    return {**empty, "space": "NB201", "arch_str": CHAIN, "val_accuracy": 90.0, "flops": None} | changes


def write_records(path, *records):
    pq.write_table(pa.Table.from_pylist([{**r, "params": 5.0} for r in records]), path)
    return path


def test_columns_of_the_public_schema_become_objectives(tmp_path):
    path = write_records(
        tmp_path / "nb.parquet",
        record(metadata="{'lat_pixel3': 3.5, 'acc_cifar100': 70, 'zcp_snip': 1.0, 'lat_fpga': None}"),
    )
    table = read(path)
    assert table.name == "nb"
    assert table.rows[0].space == "nasbench201"
    expected = {"accuracy": 90.0, "params": 5.0, "latency/pixel3": 3.5, "accuracy/cifar100": 70.0}
    assert table.rows[0].targets == expected
    assert table.objectives == ["accuracy", "accuracy/cifar100", "latency/pixel3", "params"]


@pytest.mark.parametrize(("first", "is_kept"), [(0.0033, False), (0.011, True), (0.03, True)])
def test_times_in_which_nothing_was_computed_are_no_latencies(tmp_path, first, is_kept):
    latencies = [first, *np.linspace(9, 11, 20)]
    rows = [Row("nasbench201", CHAIN, {"latency/phone": value}) for value in latencies]
    write(tmp_path / "t.parquet", rows)
    found = [row.targets["latency/phone"] for row in read(tmp_path / "t.parquet").rows]
    assert found == [first if is_kept else 0.0, *latencies[1:]]


def test_short_latencies_of_all_networks_are_kept(tmp_path):
    rows = [Row("other", "", {"latency/fpga": 2e-4 * k}, "some text", str(k)) for k in range(1, 900)]
    write(tmp_path / "t.parquet", rows)
    assert read(tmp_path / "t.parquet").rows == rows


def test_written_rows_are_read_unchanged(tmp_path):
    rows = [
        Row("nasbench201", CHAIN, {"accuracy": 90.5, "latency/mine": 2.25, "accuracy/cifar100": 60.0}),
        Row("other", "", {"params": 7.0}, "some text", "id", "u"),
    ]
    write(tmp_path / "t.parquet", rows)
    assert read(tmp_path / "t.parquet").rows == rows


@pytest.mark.parametrize(("objective", "value"), [("memory", 4096.0), ("latency", 0.0073)])
def test_written_programs_are_read_unchanged(tmp_path, objective, value):
    rows = [Row("Triton", "", {objective: value}, "def kernel(): pass", "t0")]
    write(tmp_path / "programs.parquet", rows)
    assert read(tmp_path / "programs.parquet").rows == rows
    both = [Row("Triton", "", {"memory": 1.0, "latency": 1.0}, "def kernel(): pass", "t0")]
    write(tmp_path / "programs.parquet", both)
    assert read(tmp_path / "programs.parquet").rows == both


def test_metadata_of_programs_gives_language_group_and_kind_of_inputs(tmp_path):
    def record(name, metadata):
        common = {
            "identifier": name,
            "space": "CDSS",
            "input": "int main() {}",
            "target_metric": "val_accuracy",
        }
        return common | {"val_accuracy": 4096.0, "metric_type": "memory_bytes", "metadata": repr(metadata)}

    records = [
        record("a", {"problem": "p1", "language": "C++"}),
        record("b", {"kernel": "add", "larger_inputs": True}),
        record("c", {"problem": "p1", "larger_inputs": False}),
        record("d", {"problem": "aizu:p00007", "problem_id": "x"}),
        record("e", {"problem": None, "problem_id": 0}),
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "public.parquet")
    rows = read(tmp_path / "public.parquet").rows
    assert [(row.space, row.group, row.targets) for row in rows] == [
        ("CDSS/C++", "p1", {"memory": 4096.0}),
        ("CDSS", "add", {"memory": 4096.0}),
        ("CDSS", "p1", {"memory/small-inputs": 4096.0}),
        ("CDSS", "p00007", {"memory": 4096.0}),
        ("CDSS", "0", {"memory": 4096.0}),
    ]
    for subset in (rows[:2], rows[2:3]):
        write(tmp_path / "written.parquet", subset)
        assert read(tmp_path / "written.parquet").rows == subset


def test_a_judge_of_many_languages_has_adjusted_memory_time_author_and_date(tmp_path):
    def record(name, adjusted, time):
        metadata = {
            **{"language": "Java", "problem": "1", "time_ms": time, "adjusted_bytes": adjusted},
            **{"half_year": "2022H1", "source": "author01"},
        }
        common = {"identifier": name, "space": "JUDGE", "input": "class Solution {}", "val_accuracy": 5e7}
        return common | {"metric_type": "memory_bytes", "metadata": repr(metadata)}

    records = [record("a", 4.5e7, 3.0), record("b", -2e6, 0.0)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "judge.parquet")
    rows = read(tmp_path / "judge.parquet").rows
    common = {"metainformation": "2022H1", "group": "1", "source": "author01"}
    assert rows == [
        Row("LeetCode/Java", "", {"memory": 4.5e7, "time": 3.0}, "class Solution {}", "a", **common),
        Row("LeetCode/Java", "", {"time": 0.0}, "class Solution {}", "b", **common),
    ]
    assert rows[1].is_measured("time")
    write(tmp_path / "written.parquet", rows)
    assert read(tmp_path / "written.parquet").rows == rows


def test_numpy_numbers_are_written(tmp_path):
    targets = {"accuracy": np.float64(90.5), "latency/pixel3": np.float64(3.25)}
    write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, targets)])
    assert read(tmp_path / "t.parquet").rows[0].targets == targets


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.float16(1.5), np.int64(2), np.uint8(2), np.float64(1.5), 2]
)
def test_numpy_scalars_are_as_good_as_numbers_of_python(tmp_path, value):
    row = Row(
        np.str_("nasbench201"), np.str_(CHAIN), {np.str_("latency/a"): value, np.str_("loss"): value},
        identifier=np.str_("x"), group=np.str_("g"),
    )  # fmt: skip
    assert row.is_measured("latency/a")
    write(tmp_path / "t.parquet", [row])
    (found,) = read(tmp_path / "t.parquet").rows
    assert found == row == Row("nasbench201", CHAIN, {"latency/a": float(value), "loss": float(value)},
                               identifier="x", group="g")  # fmt: skip
    assert {type(v) for v in row.targets.values()} <= {int, float}
    assert [type(text) for text in (row.space, row.arch_str, row.group, *row.targets)] == [str] * 5


def test_objectives_of_any_kind_are_written_and_read_unchanged(tmp_path):
    targets = {
        "accuracy": 71.5,
        "memory": 5.0,
        "latency": 2.0,
        "loss/val": -1.25,
        "score": 0.0,
        "energy/box": 1e-9,
        "throughput/box": 3200.0,
        "mIoU/cityscapes": 0.7,
        "perplexity": 17.5,
    }
    rows = [Row("nasbench201", CHAIN, targets), Row("nasbench201", CHAIN, {"latency": 3.0})]
    declarations = {"score": Declaration("points", "maximize"), "loss/val": Declaration("nats")}
    write(tmp_path / "t.parquet", rows, declarations)
    table = read(tmp_path / "t.parquet")
    assert table.rows == rows
    assert table.declarations == declarations
    assert table.maximised == ("score",)
    assert table.where_measured("loss/val").maximised == table.sample(1).maximised == ("score",)
    assert table.column("loss/val")[0] == -1.25 and table.column("score")[0] == 0


def test_the_perplexity_of_public_tables_is_an_objective(tmp_path):
    path = write_records(tmp_path / "gpt.parquet", record(metadata="{'perplexity': 25.5, 'origin': 'x'}"))
    assert read(path).rows[0].targets["perplexity"] == 25.5


@pytest.mark.parametrize(
    ("name", "direction", "message"),
    [
        ("throughput/a", "minimize", "throughput/a is maximised: expected the name of a cost"),
        ("score", "up", "direction is 'up', expected maximize or minimize"),
    ],
)
def test_declarations_that_are_not_valid_are_refused(tmp_path, name, direction, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, {})], {name: Declaration("", direction)})


def test_damaged_declarations_are_refused(tmp_path):
    write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, {"score": 1.0})])
    content = pq.read_table(tmp_path / "t.parquet")
    for damaged in (b"[", b"[1]", b'{"score": {"colour": "red"}}', b'{"score": {"direction": "up"}}'):
        pq.write_table(
            content.replace_schema_metadata({"nas_rlm.objectives": damaged}), tmp_path / "d.parquet"
        )
        with pytest.raises(ValueError, match="units and directions cannot be read"):
            read(tmp_path / "d.parquet")


def test_a_row_with_neither_notation_nor_input_is_refused(tmp_path):
    write(tmp_path / "t.parquet", [Row("nasbench201", "", {"accuracy": 90.0}, "", "x0")])
    with pytest.raises(ValueError, match="'x0' has neither arch_str nor input"):
        read(tmp_path / "t.parquet")
    write(tmp_path / "t.parquet", [Row("nasbench201", name, {"accuracy": 90.0}) for name in (CHAIN, "")])
    with pytest.raises(ValueError, match="'row 2' has neither arch_str nor input"):
        read(tmp_path / "t.parquet")


def test_missing_values_are_left_out(tmp_path):
    path = write_records(tmp_path / "t.parquet", record(val_accuracy=float("nan"), metadata=""))
    assert read(path).rows[0].targets == {"params": 5.0}


def test_files_that_are_not_tables_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no table at"):
        read(tmp_path / "none.parquet")
    for name, content in (("text.parquet", "some words\n"), ("a.jsonl", '{"arch": "x", "accuracy": 1}\n')):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match="is not a readable parquet file, but of another format"):
            read(tmp_path / name)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(ValueError, match="is not a readable parquet file: "):
        check_readable(tmp_path / "cut.parquet")
    pq.write_table(pa.table({"space": ["NB201"]}), tmp_path / "columns.parquet")
    with pytest.raises(ValueError, match="lacks the columns identifier"):
        read(tmp_path / "columns.parquet")
    bad = write_records(tmp_path / "bad.parquet", record(identifier="row 7", metadata="__import__('os')"))
    with pytest.raises(ValueError, match=r"metadata of 'row 7' is .* expected a dict"):
        read(bad)
    bad = write_records(
        tmp_path / "word.parquet", record(identifier="row 8", metadata="{'lat_pixel3': 'fast'}")
    )
    with pytest.raises(ValueError, match="latency/pixel3 of 'row 8' is 'fast', expected a number from 0 to"):
        read(bad)
    bad = write_records(tmp_path / "infinite.parquet", record(identifier="row 9", val_accuracy=float("inf")))
    with pytest.raises(ValueError, match="accuracy of 'row 9' is inf, expected a percentage"):
        read(bad)
    bad = write_records(tmp_path / "number.parquet", record(identifier="row 10", arch_str=17))
    with pytest.raises(ValueError, match="arch_str of 'row 10' is 17, expected text"):
        read(bad)


@pytest.mark.parametrize(
    ("name", "header", "command"),
    [
        ("m.csv", "arch,accuracy", "csv m.csv --space SPACE --out m.parquet"),
        ("m.csv", "Space;arch;accuracy", "csv m.csv --out m.parquet"),
        ("my table.txt", "arch\tms", "csv 'my table.txt' --space SPACE --out 'my table.parquet'"),
        ("m", "file,accuracy\r", "onnx m --out m.parquet"),
        ("m.csv", "", "csv m.csv --space SPACE --out m.parquet"),
    ],
)
@pytest.mark.parametrize("read_file", [read, check_readable])
def test_a_csv_file_is_named_with_the_command_that_converts_it(
    tmp_path, monkeypatch, name, header, command, read_file
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(f"{header}\n1,2\n")
    with pytest.raises(ValueError, match="is a CSV file, and no parquet table") as error:
        read_file(name)
    assert str(error.value).endswith(f"make one of it with nas-rlm data import {command}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_accuracy": 1e300}, r"accuracy of .* is 1e\+300, expected a percentage"),
        ({"val_accuracy": -50.0}, "is -50.0, expected a percentage"),
        ({"metadata": "{'lat_pixel3': -5}"}, "latency/pixel3 of .* is -5, expected a number from 0 to 1e"),
        ({"metadata": "{'lat_pixel3': True}"}, "is True, expected a number"),
        ({"metadata": "{[]: 1}"}, "expected a dict"),
        ({"metadata": "-" * 100_000}, "expected a dict"),
        ({"space": 7}, "space of .* is 7, expected text"),
    ],
)
def test_invalid_values_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read(write_records(tmp_path / "t.parquet", record(**changes)))


@pytest.mark.parametrize(
    "targets",
    [
        {"energy": -3.0},
        {"perplexity": -0.5},
        {"loss value": 3.0},
        {"loss/": 3.0},
        {"loss": float("-inf")},
        {"latency/mine": float("inf")},
        {"latency/mine": float("nan")},
        {"latency/mine,yours": 2.0},
        {"accuracy": 101.0},
    ],
)
def test_targets_without_a_column_are_not_written(tmp_path, targets):
    with pytest.raises(ValueError, match=f"{next(iter(targets))} of .* cannot be stored in a table"):
        write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, targets)])
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize("column", ["arch_str", "input"])
def test_either_notation_or_input_is_enough(tmp_path, column):
    table = pa.table(
        {"identifier": ["a"], "space": ["NB201"], "metadata": ["{'lat_a': 2.0}"], column: ["text"]}
    )
    pq.write_table(table, tmp_path / "small.parquet")
    assert read(tmp_path / "small.parquet").rows[0].targets == {"latency/a": 2.0}
    pq.write_table(table.drop_columns([column]), tmp_path / "none.parquet")
    with pytest.raises(
        ValueError, match=r"lacks the columns arch_str and input; expected .* arch_str or input"
    ):
        read(tmp_path / "none.parquet")


def test_networks_of_another_scale_of_hw_gpt_bench_are_left_out(tmp_path):
    small, medium = (search_spaces.get(name).sample(np.random.default_rng(0)) for name in ("gpt_s", "gpt_m"))
    records = [
        {
            "identifier": f"HWGPT-M_{i}",
            "space": "HWGPT-M",
            "arch_str": str(a),
            "metadata": "{'lat_a_gpu': 3.0}",
        }
        for i, a in enumerate((medium, small, medium))
    ]
    path = tmp_path / "hwgpt.parquet"
    pq.write_table(pa.Table.from_pylist(records), path)
    with pytest.warns(UserWarning, match=r"^1 entry is not valid and was left out: HWGPT-M_1: n_layer of"):
        table = read(path)
    assert [(row.space, row.identifier) for row in table.rows] == [
        ("gpt_m", "HWGPT-M_0"),
        ("gpt_m", "HWGPT-M_2"),
    ]
    omissions = Omissions()
    assert len(read(path, omissions)) == 2
    assert omissions.counts == {"": 1}
