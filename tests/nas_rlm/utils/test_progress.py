import pytest

from nas_rlm.utils import progress
from nas_rlm.utils.progress import progress_bar, set_mode


@pytest.fixture(autouse=True)
def without_delay(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    yield
    set_mode("auto")


def test_a_file_gets_at_most_one_line_for_each_tenth(capsys):
    assert list(progress_bar(range(1000), "train", unit="step")) == list(range(1000))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"train: {p}%" for p in range(10, 101, 10)]
    assert lines[-1].startswith("train: 100%, 1000/1000 step, ")


def test_updates_of_several_items_count_and_resumed_work_starts_where_it_stopped(capsys):
    with progress_bar(total=100, initial=50, desc="train") as bar:
        bar.set_postfix(loss=0.5)
        bar.update(50)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train: 100%, 100/100 it") and line.endswith(", loss 0.5")


def test_short_work_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "DELAY", 100.0)
    list(progress_bar(range(10)))
    assert capsys.readouterr().err == ""


def test_items_without_a_length_are_passed_on(capsys):
    assert list(progress_bar(iter("ab"))) == ["a", "b"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", ["quiet", "auto"])
def test_nothing_is_shown_when_disabled_or_quiet(mode, capsys):
    set_mode(mode)
    list(progress_bar(range(10), disable=mode == "auto"))
    assert capsys.readouterr().err == ""


def test_a_bar_is_drawn_on_request_without_a_terminal(capsys):
    set_mode("bar")
    list(progress_bar(range(10), "count"))
    assert "count: 100%" in capsys.readouterr().err
