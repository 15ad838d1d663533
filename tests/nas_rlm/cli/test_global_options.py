"""The options that every verb has: --quiet and --progress."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nas_rlm
from nas_rlm.cli import VERBS, main
from nas_rlm.cli.app import app
from nas_rlm.data import Row, write
from nas_rlm.training import finetune, trainer
from nas_rlm.utils import progress
from tests.nas_rlm.cli.commands import SPACE, refused

EXPORT = ("export", "--space", "nasbench201", "--sample", "20", "--out")


@pytest.fixture
def without_delay(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)


@pytest.fixture
def tuning(tmp_path, model, monkeypatch):
    """A short fine-tuning that holds out a fifth of the rows."""
    monkeypatch.setattr(finetune, "MAX_EPOCHS", 3)
    monkeypatch.setattr(trainer, "MIN_PROGRESS_STEPS", 1)
    cells = [SPACE.decode([i % 5, i // 5 % 5, 3, 2, 1, i // 25]) for i in range(60)]
    rows = [Row("nasbench201", str(c), {"accuracy": 50 + SPACE.params(c) / 1e5}) for c in cells]
    write(tmp_path / "rows.parquet", rows)
    command = ("finetune", *model, "--data", tmp_path / "rows.parquet", "--objectives", "accuracy")
    return [*map(str, command), "--out", str(tmp_path / "tuned")]


def stages(text):
    """The number of lines of each progress log in a text."""
    counts = {}
    for line in text.splitlines():
        if "%, " in line:
            counts[line.split(":")[0]] = counts.get(line.split(":")[0], 0) + 1
    return counts


def test_a_fine_tuning_writes_a_line_for_each_tenth_of_a_stage(tuning, without_delay, capsys):
    assert main(tuning) == 0
    shown = capsys.readouterr().err
    counts = stages(shown)
    assert 0 < counts["train"] <= 20  # two trainings
    assert sum(counts.values()) <= 80 and "validate" not in counts


def test_a_quiet_fine_tuning_writes_only_its_result(tuning, without_delay, capsys):
    assert main(["--quiet", *tuning]) == 0
    captured = capsys.readouterr()
    assert stages(captured.err) == {} and "|" not in captured.err
    assert all(line.startswith("nas-rlm: warning: ") for line in captured.err.splitlines())
    evidence, result = captured.out.splitlines()
    assert "5-fold cross-validation on" in evidence and result.startswith("model: ")


def test_bars_are_drawn_on_request(tuning, capsys):
    assert main([*tuning, "--progress"]) == 0
    assert re.search(r"train: +\d+%\|", capsys.readouterr().err)


@pytest.mark.parametrize("place", [0, 1, 3, 8])
def test_global_options_are_accepted_everywhere(place, tmp_path, without_delay, capsys):
    command = [*EXPORT, str(tmp_path / "nets")]
    assert main([*command[:place], "--quiet", *command[place:]]) == 0
    assert capsys.readouterr().err == ""
    assert main([*EXPORT, str(tmp_path / "more")]) == 0
    assert stages(capsys.readouterr().err) == {"export": 10}


def test_global_options_exclude_each_other(capsys, tmp_path):
    line = refused(capsys, "--quiet", *EXPORT, tmp_path, "--progress")
    assert "--quiet and --progress exclude each other" in line


def test_help_of_every_verb_shows_the_global_options(capsys):
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "--quiet" in shown and "--progress" in shown


def test_verbs_are_listed_in_order_with_one_line_each(capsys):
    assert main(["--help"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│ ")]
    assert [line.split()[1] for line in lines][: len(VERBS)] == list(VERBS)
    assert set(VERBS) == {name for name in app if not name.startswith("-")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["predict", "--help"],
        ["bench", "few-shot", "--help"],
        ["finetune", "--no-experts"],
        ["rnak"],
    ],
)
def test_help_and_bad_options_import_no_torch(arguments):
    program = (
        "import sys\nsys.modules['torch'] = None\nfrom nas_rlm.cli import main\n"
        f"code = main({arguments!r})\n"
        "slow = [name for name in ('matplotlib', 'pymoo', 'sklearn') if name in sys.modules]\n"
        "sys.exit(f'imported {slow}' if slow else code)\n"
    )
    root = Path(nas_rlm.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert done.returncode == (0 if "--help" in arguments else 2), done.stderr[-1500:]


def test_an_old_option_gets_a_suggestion(capsys):
    line = refused(capsys, "finetune", "--data", "x", "--out", "y", "--no-experts")
    assert "Unknown option: --no-experts" in line
