import pytest

from nas_rlm.results import Results

NAMES = ("method", "seed")


def test_results_go_on_where_they_were_left(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    for seed in range(2):
        Results(path, NAMES).add({"method": "a", "seed": seed})
        path.write_text(path.read_text() + '{"method": "b"')
    again = Results(path, NAMES)
    assert again.records == [{"method": "a", "seed": 0}, {"method": "a", "seed": 1}]
    assert path.read_text() == '{"method": "a", "seed": 0}\n{"method": "a", "seed": 1}\n'


def test_without_a_file_results_are_kept_alone():
    results = Results(None, NAMES)
    results.add({"method": "a", "seed": 0})
    assert results.records == [{"method": "a", "seed": 0}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]\n", "line 1 is no result"),
        ('{"method": "a", "seed": 0}\n{"seed": 1}\n', "line 2 is no result"),
        ("a letter", "is no file of results"),
        ('{"a": [1, 2]}', "is no file of results"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        Results(path, NAMES)
    assert path.read_text() == content
    with pytest.raises(ValueError, match="is a folder"):
        Results(tmp_path, NAMES)
