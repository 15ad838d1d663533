from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows
from nas_rlm.data.splits import sample_by_space, split, split_by_source, train_validation_test_split

SPACE = search_spaces.get("nasbench201")
CHAIN = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"
EQUIVALENT = "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|"


def test_programs_for_one_problem_are_in_one_subset():
    rows = [Row("CDSS", "", {"memory": 1.0}, f"program {i}", group=f"p{i % 40}") for i in range(400)]
    subsets = train_validation_test_split(Table("programs", rows), 0.4, 0, by_group=True)
    groups = [{row.group for row in subset.rows} for subset in subsets]
    assert all(groups) and sum(map(len, groups)) == 40
    ungrouped = train_validation_test_split(Table("programs", rows), 0.4, 0)
    assert {row.group for row in ungrouped[0].rows} & {row.group for row in ungrouped[2].rows}
    with pytest.raises(ValueError, match="programs has programs without problem or kernel"):
        split(Table("programs", [Row("CDSS", "", {"memory": 1.0}, "program")]), by_group=True)


def test_a_program_for_two_problems_is_in_one_subset():
    rows = [
        Row("CDSS", "", {"memory": 1.0}, f"program {i}", group=f"p{(i * step) % 40}")
        for step in (1, 3)
        for i in range(200)
    ]
    subsets = train_validation_test_split(Table("programs", rows), 0.4, 0, by_group=True)
    texts = [{row.input for row in subset.rows} for subset in subsets]
    assert all(texts) and sum(map(len, texts)) == 200


def test_a_split_by_group_does_not_change_the_split_of_networks():
    space = search_spaces.get("nasbench201")
    rng = np.random.default_rng(0)
    rows = [Row("nasbench201", str(space.sample(rng)), {"accuracy": 1.0}) for _ in range(60)]
    table = Table("cells", rows)
    for ungrouped, grouped in zip(split(table, 0.3), split(table, 0.3, by_group=True), strict=True):
        assert ungrouped.rows == grouped.rows


def test_architectures_that_compute_the_same_function_are_in_one_subset():
    rng = np.random.default_rng(0)
    names = [CHAIN, EQUIVALENT, *(str(SPACE.sample(rng)) for _ in range(400))]
    rows = [Row("nasbench201", name, {"accuracy": 1.0}) for name in names]
    training, validation = split(Table("t", rows), 0.2)
    assert len(training) + len(validation) == len(rows)
    assert 0.1 < len(validation) / len(rows) < 0.3
    key = {name: SPACE.key(SPACE.parse(name)) for name in names}
    assert key[CHAIN] == key[EQUIVALENT]
    assert not {key[r.arch_str] for r in training.rows} & {key[r.arch_str] for r in validation.rows}


def test_the_split_does_not_depend_on_the_other_rows():
    rows = [Row("other", str(i), {}) for i in range(300)]
    _, validation = split(Table("t", rows), 0.3, seed=3)
    _, fewer = split(Table("t", rows[::2]), 0.3, seed=3)
    assert fewer.rows == [r for r in validation.rows if int(r.arch_str) % 2 == 0]
    assert validation.rows != split(Table("t", rows), 0.3, seed=4)[1].rows


def test_held_out_rows_are_divided_into_validation_and_test_rows():
    rng = np.random.default_rng(0)
    table = Table("t", [Row("nasbench201", str(SPACE.sample(rng)), {"accuracy": 1.0}) for _ in range(400)])
    training, validation, test = train_validation_test_split(table, 0.4, seed=1)
    training_only, held_out = split(table, 0.4, seed=1)
    assert training.rows == training_only.rows
    assert sorted(map(id, [*validation.rows, *test.rows])) == sorted(map(id, held_out.rows))
    assert 0.35 < len(test) / len(held_out) < 0.65
    assert not set(keys_of_rows(validation.rows)) & set(keys_of_rows(test.rows))


def test_rows_of_each_space_with_the_most_objectives_are_drawn():
    names = ["accuracy", "latency/a"]
    rows = [
        Row(space, str(i), dict.fromkeys(names[: 2 if i % 3 == 0 else 1], 1.0))
        for space in ("a", "b")
        for i in range(30)
    ]
    drawn = sample_by_space(Table("", rows), 12, names)
    assert [sum(row.space == space for row in drawn.rows) for space in ("a", "b")] == [12, 12]
    assert sum(len(row.targets) == 2 for row in drawn.rows) == 20
    assert len(sample_by_space(Table("", rows), 50, names)) == 60


def test_programs_by_all_but_the_main_sources_are_held_out():
    def programs(language, source, n):
        return [Row(language, "", {"time": 1.0}, f"{language} {source} {i}", source=source) for i in range(n)]

    rows = [*programs("A", "a", 6), *programs("A", "b", 3), *programs("A", "c", 3), *programs("B", "c", 5)]
    train, test = split_by_source(Table("own", [*rows, replace(rows[6], source="a")]))
    assert {row.source for row in train.rows} == {"a", "c"} and {row.source for row in test.rows} == {"b"}
    assert len(test) == 3 and len(train) == 14  # without the program that b wrote too
    with pytest.raises(ValueError, match="no source but the main ones"):
        split_by_source(Table("own", programs("A", "a", 2)))
    with pytest.raises(ValueError, match="own has rows without source"):
        split_by_source(Table("own", [*rows, Row("A", "", {"time": 1.0}, "x")]))
