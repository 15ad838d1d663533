import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import search_spaces
from nas_rlm.data import Row, Table, read, write
from nas_rlm.data.tables import COLUMNS, keys, split, split_in_three, texts
from nas_rlm.text import from_architecture

SPACE = search_spaces.get("nasbench201")
CHAIN = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"
SAME = "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|"


def record(**changes):
    known = dict.fromkeys(COLUMNS, "")
    return {**known, "space": "NB201", "arch_str": CHAIN, "val_accuracy": 90.0, "flops": None} | changes


def written(path, *records):
    pq.write_table(pa.Table.from_pylist([{**r, "params": 5.0} for r in records]), path)
    return path


def test_the_public_schema(tmp_path):
    path = written(
        tmp_path / "nb.parquet",
        record(metadata="{'lat_pixel3': 3.5, 'acc_cifar100': 70, 'zcp_snip': 1.0, 'lat_fpga': None}"),
    )
    table = read(path)
    assert table.name == "nb"
    assert table.rows[0].space == "nasbench201"
    expected = {"accuracy": 90.0, "params": 5.0, "latency/pixel3": 3.5, "accuracy/cifar100": 70.0}
    assert table.rows[0].targets == expected
    assert table.objectives == ["accuracy", "accuracy/cifar100", "latency/pixel3", "params"]


def test_what_is_written_is_read(tmp_path):
    rows = [
        Row("nasbench201", CHAIN, {"accuracy": 90.5, "latency/mine": 2.25, "accuracy/cifar100": 60.0}),
        Row("theirs", "", {"params": 7.0}, "some text", "id", "u"),
    ]
    write(tmp_path / "t.parquet", rows)
    assert read(tmp_path / "t.parquet").rows == rows


@pytest.mark.parametrize(("objective", "value"), [("memory", 4096.0), ("latency", 0.0073)])
def test_tables_of_programs_are_written_as_they_are_read(tmp_path, objective, value):
    rows = [Row("Triton", "", {objective: value}, "def kernel(): pass", "t0")]
    write(tmp_path / "programs.parquet", rows)
    assert read(tmp_path / "programs.parquet").rows == rows
    both = [Row("Triton", "", {"memory": 1.0, "latency": 1.0}, "def kernel(): pass", "t0")]
    with pytest.raises(ValueError, match="a table has no place for it"):
        write(tmp_path / "programs.parquet", both)


def test_what_metadata_says_of_programs(tmp_path):
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
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "theirs.parquet")
    rows = read(tmp_path / "theirs.parquet").rows
    assert [(row.space, row.group, row.targets) for row in rows] == [
        ("CDSS/C++", "p1", {"memory": 4096.0}),
        ("CDSS", "add", {"memory": 4096.0}),
        ("CDSS", "p1", {"memory/small-inputs": 4096.0}),
        ("CDSS", "p00007", {"memory": 4096.0}),
        ("CDSS", "0", {"memory": 4096.0}),
    ]
    for some in (rows[:2], rows[2:3]):
        write(tmp_path / "ours.parquet", some)
        assert read(tmp_path / "ours.parquet").rows == some


def test_programs_for_one_problem_stay_on_one_side():
    rows = [Row("CDSS", "", {"memory": 1.0}, f"program {i}", group=f"p{i % 40}") for i in range(400)]
    parts = split_in_three(Table("some", rows), 0.4, 0, by_group=True)
    groups = [{row.group for row in part.rows} for part in parts]
    assert all(groups) and sum(map(len, groups)) == 40
    apart = split_in_three(Table("some", rows), 0.4, 0)
    assert {row.group for row in apart[0].rows} & {row.group for row in apart[2].rows}
    with pytest.raises(ValueError, match="some has programs without problem or kernel"):
        split(Table("some", [Row("CDSS", "", {"memory": 1.0}, "program")]), by_group=True)


def test_a_program_that_is_filed_under_two_problems_is_on_one_side():
    rows = [
        Row("CDSS", "", {"memory": 1.0}, f"program {i}", group=f"p{(i * step) % 40}")
        for step in (1, 3)
        for i in range(200)
    ]
    parts = split_in_three(Table("some", rows), 0.4, 0, by_group=True)
    texts = [{row.input for row in part.rows} for part in parts]
    assert all(texts) and sum(map(len, texts)) == 200


def test_networks_are_split_by_what_they_compute_beside_programs():
    space = search_spaces.get("nasbench201")
    rng = np.random.default_rng(0)
    rows = [Row("nasbench201", str(space.sample(rng)), {"accuracy": 1.0}) for _ in range(60)]
    table = Table("cells", rows)
    for plain, grouped in zip(split(table, 0.3), split(table, 0.3, by_group=True), strict=True):
        assert plain.rows == grouped.rows


def test_a_kernel_may_be_quick():
    assert Row("triton", "", {"latency/h200": 0.004}, "import triton").measured("latency/h200")
    assert not Row("nasbench201", CHAIN, {"latency/h200": 0.004}).measured("latency/h200")


def test_numbers_of_numpy_are_numbers(tmp_path):
    targets = {"accuracy": np.float64(90.5), "latency/pixel3": np.float64(3.25)}
    write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, targets)])
    assert read(tmp_path / "t.parquet").rows[0].targets == targets


def test_a_row_without_anything_to_read(tmp_path):
    write(tmp_path / "t.parquet", [Row("nasbench201", "", {"accuracy": 90.0}, "", "x0")])
    with pytest.raises(ValueError, match="'x0' has neither arch_str nor input"):
        read(tmp_path / "t.parquet")
    write(tmp_path / "t.parquet", [Row("nasbench201", name, {"accuracy": 90.0}) for name in (CHAIN, "")])
    with pytest.raises(ValueError, match="'row 2' has neither arch_str nor input"):
        read(tmp_path / "t.parquet")


def test_a_row_of_a_space_that_nobody_knows():
    with pytest.raises(
        ValueError, match=r"a row of 'nasbench301' has no input.*'abc'; did you mean nasbench"
    ):
        texts([Row("nasbench301", "abc", {"accuracy": 90.0})])


def test_missing_values_are_left_out(tmp_path):
    path = written(tmp_path / "t.parquet", record(val_accuracy=float("nan"), metadata=""))
    assert read(path).rows[0].targets == {"params": 5.0}


def test_a_latency_near_zero_was_not_measured():
    row = Row("nasbench201", CHAIN, {"latency/pixel3": 0.0033, "latency/fpga": 1.1, "accuracy": 0.0})
    assert [name for name in [*row.targets, "params"] if row.measured(name)] == ["latency/fpga", "accuracy"]
    assert len(Table("t", [row]).having("latency/pixel3")) == 0


def test_the_split_keeps_equal_computations_together():
    rng = np.random.default_rng(0)
    names = [CHAIN, SAME, *(str(SPACE.sample(rng)) for _ in range(400))]
    rows = [Row("nasbench201", name, {"accuracy": 1.0}) for name in names]
    training, held = split(Table("t", rows), 0.2)
    assert len(training) + len(held) == len(rows)
    assert 0.1 < len(held) / len(rows) < 0.3
    key = {name: SPACE.key(SPACE.parse(name)) for name in names}
    assert key[CHAIN] == key[SAME]
    assert not {key[r.arch_str] for r in training.rows} & {key[r.arch_str] for r in held.rows}


def test_the_split_does_not_depend_on_the_other_rows():
    rows = [Row("theirs", str(i), {}) for i in range(300)]
    _, held = split(Table("t", rows), 0.3, seed=3)
    _, fewer = split(Table("t", rows[::2]), 0.3, seed=3)
    assert fewer.rows == [r for r in held.rows if int(r.arch_str) % 2 == 0]
    assert held.rows != split(Table("t", rows), 0.3, seed=4)[1].rows


def test_what_is_held_out_is_split_in_two():
    rng = np.random.default_rng(0)
    table = Table("t", [Row("nasbench201", str(SPACE.sample(rng)), {"accuracy": 1.0}) for _ in range(400)])
    training, validation, test = split_in_three(table, 0.4, seed=1)
    plain, held = split(table, 0.4, seed=1)
    assert training.rows == plain.rows
    assert sorted(map(id, [*validation.rows, *test.rows])) == sorted(map(id, held.rows))
    assert 0.35 < len(test) / len(held) < 0.65
    assert not set(keys(validation.rows)) & set(keys(test.rows))


def test_texts_come_from_the_row_or_its_space():
    rows = [Row("theirs", "", {}, "first"), Row("nasbench201", CHAIN, {}), Row("theirs", "", {}, "third")]
    assert texts(rows) == ["first", from_architecture(SPACE, SPACE.parse(CHAIN)), "third"]


def test_long_lists_of_texts_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("NAS_RLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "nas_rlm.data.tables.from_architectures", lambda space, found: [f"text of {a}" for a in found]
    )
    space, rng = search_spaces.get("nats_size"), np.random.default_rng(0)
    rows = [Row("nats_size", str(space.sample(rng)), {}) for _ in range(1200)]
    made = texts(rows)
    monkeypatch.setattr(
        "nas_rlm.data.tables.from_architectures", lambda space, found: ["made again" for _ in found]
    )
    assert texts(rows) == made == [f"text of {r.arch_str}" for r in rows]
    assert texts(rows[:1100]) != made[:1100]


def test_bad_tables(tmp_path):
    with pytest.raises(FileNotFoundError, match="no table at"):
        read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("arch,accuracy\n")
    with pytest.raises(ValueError, match="is no parquet file"):
        read(tmp_path / "text.parquet")
    pq.write_table(pa.table({"space": ["NB201"]}), tmp_path / "few.parquet")
    with pytest.raises(ValueError, match="lacks the columns identifier"):
        read(tmp_path / "few.parquet")
    bad = written(tmp_path / "bad.parquet", record(identifier="row 7", metadata="__import__('os')"))
    with pytest.raises(ValueError, match=r"metadata of 'row 7' is .* expected a dict"):
        read(bad)
    bad = written(tmp_path / "word.parquet", record(identifier="row 8", metadata="{'lat_pixel3': 'fast'}"))
    with pytest.raises(ValueError, match="latency/pixel3 of 'row 8' is 'fast', expected a number, 0 or more"):
        read(bad)
    bad = written(tmp_path / "infinite.parquet", record(identifier="row 9", val_accuracy=float("inf")))
    with pytest.raises(ValueError, match="accuracy of 'row 9' is 'inf', expected a percentage"):
        read(bad)
    bad = written(tmp_path / "number.parquet", record(identifier="row 10", arch_str=17))
    with pytest.raises(ValueError, match="arch_str of 'row 10' is 17, expected text"):
        read(bad)
    with pytest.raises(ValueError, match=r"a row of nasbench201: .*conv_9x9"):
        texts([Row("nasbench201", CHAIN.replace("nor_conv_3x3", "conv_9x9"), {})])


def test_an_unknown_space_without_text_is_refused():
    with pytest.raises(ValueError, match="'theirs'"):
        texts([Row("theirs", "x", {})])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_accuracy": 1e300}, r"accuracy of .* is '1e\+300', expected a percentage"),
        ({"val_accuracy": -50.0}, "is '-50.0', expected a percentage"),
        ({"metadata": "{'lat_pixel3': -5}"}, "latency/pixel3 of .* is '-5', expected a number, 0 or more"),
        ({"metadata": "{'lat_pixel3': True}"}, "is 'True', expected a number"),
        ({"metadata": "{[]: 1}"}, "expected a dict"),
        ({"metadata": "-" * 100_000}, "expected a dict"),
        ({"space": 7}, "space of .* is 7, expected text"),
    ],
)
def test_impossible_rows(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path / "t.parquet", record(**changes)))


@pytest.mark.parametrize(
    "targets",
    [
        {"energy": 3.0},
        {"latency/mine": float("inf")},
        {"latency/mine": float("nan")},
        {"latency/mine,yours": 2.0},
        {"accuracy": 101.0},
    ],
)
def test_what_no_table_can_hold_is_not_written(tmp_path, targets):
    with pytest.raises(ValueError, match=f"{next(iter(targets))} of .* has no place for it"):
        write(tmp_path / "t.parquet", [Row("nasbench201", CHAIN, targets)])
    assert not (tmp_path / "t.parquet").exists()


def test_onnx_text_of_any_kind_is_read_as_the_adapters():
    space = search_spaces.get("nasbench201")
    cell = space.sample(np.random.default_rng(0))
    theirs = onnx.printer.to_text(space.to_onnx(cell))
    ours = from_architecture(space, cell)
    program = "def f(x):\n    return x\n"
    rows = [Row("mine", "", {"accuracy": 50.0}, text) for text in (theirs, ours, program)]
    assert texts(rows) == [ours, ours, program]
    for cut in (theirs[: len(theirs) // 2], ours[: len(ours) // 2]):
        with pytest.raises(ValueError, match=r"the input '<.* is no ONNX text that can be read"):
            texts([Row("mine", "", {"accuracy": 50.0}, cut)])


@pytest.mark.parametrize("left", ["arch_str", "input"])
def test_one_of_two_columns_is_enough(tmp_path, left):
    table = pa.table(
        {"identifier": ["a"], "space": ["NB201"], "metadata": ["{'lat_a': 2.0}"], left: ["text"]}
    )
    pq.write_table(table, tmp_path / "small.parquet")
    assert read(tmp_path / "small.parquet").rows[0].targets == {"latency/a": 2.0}
    pq.write_table(table.drop_columns([left]), tmp_path / "none.parquet")
    with pytest.raises(
        ValueError, match=r"lacks the columns arch_str and input; expected .* arch_str or input"
    ):
        read(tmp_path / "none.parquet")
