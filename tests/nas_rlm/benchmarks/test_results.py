import json
from dataclasses import dataclass

import pytest

from nas_rlm.benchmarks.results import Results, over_seeds


@dataclass
class Score:
    rank: float
    count: int


def results(path, space="a"):
    return Results(path, Score, {"space": space, "spaces": ["x"]}, ("method", "seed"))


def test_results_continue_after_an_interruption(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    for seed in range(2):
        results(path).add(("trees", seed), Score(0.123456, seed))
        path.write_text(path.read_text() + '{"space": "b"')
    assert results(path).records == {("trees", 0): Score(0.1235, 0), ("trees", 1): Score(0.1235, 1)}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    both = {"space": "a", "spaces": ["x"], "method": "trees"}
    assert records == [{**both, "seed": seed, "rank": 0.1235, "count": seed} for seed in (0, 1)]


def test_a_file_can_hold_several_settings(tmp_path):
    path = tmp_path / "results.jsonl"
    for space, rank in (("a", 0.1), ("b", 0.2), ("a", 0.3)):
        results(path, space).add(("trees", 0), Score(rank, 1))
    assert results(path, "a").records == {("trees", 0): Score(0.3, 1)}
    assert results(path, "b").records == {("trees", 0): Score(0.2, 1)}
    assert results(path, "c").records == {}


def test_without_a_file_results_are_kept_in_memory():
    kept = results(None)
    kept.add(("trees", 0), Score(0.123456, 1))
    assert kept.records == {("trees", 0): Score(0.123456, 1)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]\n", "line 1 is not a result"),
        ('{"space": "a", "spaces": [], "method": "m", "seed": 0, "rank": "high", "count": 1}\n', "line 1 is"),
        ('{"space": "a", "spaces": [], "method": "m", "seed": [0], "rank": 1, "count": 1}\n', "line 1 is"),
        ('{"space": "a", "method": "m", "seed": 0, "rank": 1, "count": 1}\n', "line 1 is not a result"),
        ('{"space": "a", "spaces": [], "method": "m", "seed": 0, "rank": 1}\n', "line 1 is not a result"),
        ("a letter", "is not a file of results"),
        ('{"a": [1, 2]}', "is not a file of results"),
    ],
)
def test_other_files_are_refused_and_not_changed(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        results(path)
    assert path.read_text() == content
    with pytest.raises(ValueError, match="is a directory"):
        results(tmp_path)


def test_each_result_is_on_disk_before_the_next_one_is_computed(tmp_path):
    path = tmp_path / "results.jsonl"

    def found():
        for seed in range(2):
            yield ("trees", seed), Score(0.5, seed)
            assert len(path.read_text().splitlines()) == seed + 1

    all_results = results(path)
    all_results.add_all(found())
    assert all_results.records == results(path).records == {("trees", s): Score(0.5, s) for s in range(2)}


def test_numbers_of_all_seeds_are_grouped_by_the_rest_of_the_key():
    found = {("a", 0, 5): Score(0.1, 1), ("a", 1, 5): Score(0.3, 1), ("a", 1, 9): Score(0.2, 1)}
    assert over_seeds(found, "rank") == {("a", 5): [0.1, 0.3], ("a", 9): [0.2]}
