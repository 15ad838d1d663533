import pytest

from nas_rlm.utils import progress
from nas_rlm.utils.progress import print_status, progress_bar, set_mode


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


def test_nested_work_shows_nothing_in_a_file(capsys):
    for _ in progress_bar(range(10), "outer"):
        list(progress_bar(range(10), "inner"))
        with progress_bar(total=10, desc="inner") as bar:
            bar.update(10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10 and all(line.startswith("outer") for line in lines)
    list(progress_bar(range(10), "next"))
    assert len(capsys.readouterr().err.splitlines()) == 10


@pytest.mark.parametrize("mode", ["auto", "bar"])
def test_interrupted_work_does_not_hide_later_work(mode, capsys):
    set_mode(mode)
    with pytest.raises(KeyboardInterrupt), progress_bar(total=10, desc="interrupted"):
        raise KeyboardInterrupt
    for _ in progress_bar(range(10), "left"):
        break
    capsys.readouterr()
    list(progress_bar(range(10), "next"))
    assert "next: 100%" in capsys.readouterr().err


def test_nested_bars_are_hidden_where_bars_are_drawn_without_a_terminal(capsys):
    set_mode("bar")
    for _ in progress_bar(range(3), "outer"):
        list(progress_bar(range(3), "inner"))
    shown = capsys.readouterr().err
    assert "outer: 100%" in shown and "inner" not in shown


def test_nested_bars_are_delayed_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "DELAY", 100.0)
    for _ in progress_bar(range(3), "outer"):
        list(progress_bar(range(3), "inner"))
    shown = capsys.readouterr().err
    assert "outer: 100%" in shown and "inner" not in shown


def test_status_lines_are_written_unless_quiet(capsys):
    print_status("connecting")
    assert capsys.readouterr().err == "nas-rlm: connecting\n"
    set_mode("quiet")
    print_status("connecting")
    assert capsys.readouterr().err == ""
