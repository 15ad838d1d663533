import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nas_rlm.search.pareto import hypervolume
from nas_rlm.study.report.page import StudyPage
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import PAIR, accuracy


@pytest.fixture
def study(open_study):
    study = open_study(constraints=["accuracy>=60"])
    for trial in study.ask(8):
        trial.report(0, 10.0)
        trial.report(5, 30.0)
        if trial.number == 3:
            study.tell(trial, failure="<b>no memory</b>", cost=2)
        elif trial.number < 7:
            study.tell(trial, accuracy(trial), cost=1 + trial.number)
    return study


def page_data(page):
    return json.loads(re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_shows_all_trials(study):
    data = page_data(study.report().read_text())
    assert "6 trials complete, 1 failed, 1 running" in data["subtitle"]
    trials = data["trials"]
    assert [t["state"] for t in trials] == ["complete"] * 3 + ["failed"] + ["complete"] * 3 + ["running"]
    for entry, trial in zip(trials, study.trials, strict=True):
        assert entry["genes"] == CELLS.encode(trial.parsed).tolist()
        assert entry["steps"] == [[0, {"accuracy": 10}], [5, {"accuracy": 30}]]
        assert entry["graph"][""]["nodes"]
        assert entry["on_front"] == (trial in study.front)
    assert [t["total_cost"] for t in trials] == [1, 3, 6, 8, 13, 19, 26, None]
    assert trials[2]["values"] == [study.trials[2].values[name] for name in PAIR]


def test_paused_trials_are_shown_over_the_cost(open_study):
    study = open_study(budgets=(1, 4))
    for value in (40.0, 50.0, 60.0):
        study.tell(study.ask(), value)
    data = page_data(study.report().read_text())
    assert "1 trial complete, 0 failed, 1 paused, 0 running" in data["subtitle"]
    assert data["cost_unit"].startswith("epochs")
    first, second = data["trials"]
    assert (first["state"], first["budget"], first["total_cost"]) == ("complete", 4, 5)
    assert first["values"][0] == 60
    assert (second["state"], second["budget"], second["total_cost"]) == ("paused", 1, 2)
    assert second["values"][0] == 50 and not second["on_front"]
    assert [step[0] for step in first["steps"]] == [1, 4]
    assert data["hypervolume"][0][0] == 5 and data["settings"]["budgets"] == "1, 4"


def test_results_without_costs_are_shown_by_their_number(open_study):
    study = open_study()
    for trial in study.ask(3):
        study.tell(trial, accuracy(trial))
    data = page_data(study.report().read_text())
    assert [t["total_cost"] for t in data["trials"]] == [1, 2, 3] and data["cost_unit"] == "number"


def test_the_hypervolume_grows_over_the_cost(study):
    data = page_data(study.report().read_text())
    costs, volumes = zip(*data["hypervolume"], strict=True)
    assert costs == (1, 3, 6, 13, 19, 26)
    assert sorted(volumes) == list(volumes) and volumes[-1] > 0
    reference = [o["reference"] for o in data["objectives"]]
    values = [[t.values[name] for name in PAIR] for t in study.front]
    assert volumes[-1] == pytest.approx(hypervolume(values, PAIR, reference))


def test_the_page_reloads_while_the_study_runs(study):
    page = StudyPage(study.space, study.settings)
    running, finished = (page.render(study.trials, study._store.results, flag) for flag in (True, False))
    assert '<meta http-equiv="refresh"' in running and "refresh" not in finished
    pages = []
    study.optimize(
        accuracy,
        trials=8,
        callbacks=[lambda s, t: pages.append((s.directory / "report.html").read_text())],
    )
    assert '<meta http-equiv="refresh"' in pages[0]
    assert "refresh" not in (study.directory / "report.html").read_text()


def test_the_page_shows_the_first_trial_while_it_runs(open_study):
    study, pages = open_study(), []

    def training(trial):
        pages.append((study.directory / "report.html").read_text())
        return accuracy(trial)

    study.optimize(training, trials=1)
    assert "0 trials complete, 0 failed, 1 running" in page_data(pages[0])["subtitle"]


@pytest.mark.filterwarnings("ignore:.* gave more than accuracy")
def test_the_page_shows_curves_while_a_trial_runs(open_study, monkeypatch):
    monkeypatch.setattr("nas_rlm.study.report.files.RELOAD_SECONDS", -1)
    study, shown = open_study(), []

    def training(trial):
        for step in (0, 1):
            trial.report(step, {"accuracy": 20.0 + step, "loss": 2.0})
            page = page_data((study.directory / "report.html").read_text())
            shown.append(page["trials"][trial.number])
        return accuracy(trial)

    study.optimize(training, trials=1)
    assert [entry["state"] for entry in shown] == ["running"] * 2
    assert shown[1]["steps"] == [[0, {"accuracy": 20, "loss": 2}], [1, {"accuracy": 21, "loss": 2}]]
    assert shown[1]["current"] == [21, CELLS.flops(study.trials[0].parsed)]
    written = (study.directory / "report.html").stat().st_mtime_ns
    study.ask().report(0, 10.0)  # a loop of one's own writes the page by `report`
    assert (study.directory / "report.html").stat().st_mtime_ns == written
    entry = page_data(study.report().read_text())["trials"][1]
    assert (entry["state"], entry["steps"]) == ("running", [[0, {"accuracy": 10}]])


WAITING = """
import time

def train(trial):
    trial.report(3, 30.0)
    while "30.0" not in (trial.directory.parents[1] / "report.html").read_text():
        time.sleep(0.05)
    return 60.0
"""


@pytest.mark.usefixtures("quick_processes")
def test_the_page_shows_curves_while_a_worker_runs(open_study, tmp_path, monkeypatch):
    """The training ends once the page has what it reported."""
    monkeypatch.setattr("nas_rlm.study.report.files.RELOAD_SECONDS", 0.2)
    monkeypatch.setattr("nas_rlm.study.workers.processes.WAIT_SECONDS", 0.2)
    (tmp_path / "mine.py").write_text(WAITING)
    study = open_study()
    study.optimize(f"{tmp_path / 'mine.py'}:train", trials=1, workers=1, time_limit=60)
    assert study.trials[0].values["accuracy"] == 60


def test_the_page_is_not_written_again_where_nothing_changed(study, monkeypatch):
    monkeypatch.setattr("nas_rlm.study.report.files.RELOAD_SECONDS", -1)
    path = study.report()
    path.unlink()
    study._files.write_page_if_due(study._store)
    assert not path.exists()
    study.pending[0].report(6, 31.0)
    study._files.write_page_if_due(study._store)
    assert path.exists()


def test_a_continued_trial_shows_its_budgets_and_its_steps(open_study):
    study = open_study(budgets=(1, 4))
    for value in (40.0, 50.0):
        study.tell(study.ask(), value)
    trial = study.ask()
    assert trial.budget_values and trial.budget == 4
    trial.report(3, 52.0)
    entry = page_data(study.report().read_text())["trials"][trial.number]
    assert [step for step, _ in entry["steps"]] == [1, 3]
    assert entry["current"][0] == 52


def test_errors_are_data_and_no_markup(study):
    page = study.report().read_text()
    assert "<b>no memory" not in page and "\\u003cb>no memory" in page


def test_a_study_without_complete_trials_has_a_page(open_study):
    study = open_study()
    study.ask()
    assert "0 trials complete" in study.report().read_text()
    assert not (study.directory / "front.csv").exists()


def draw(study):
    """Run the script of a page, and return what it draws."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    path, page = study.report(), study.directory / "report.html"
    assert path == page
    command = [node, str(Path(__file__).with_name("dom.js")), str(page)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_the_script_of_the_page_draws_all_charts(study):
    drawn = draw(study)
    assert drawn["title"] == "nasbench201: accuracy, flops"
    assert drawn["front"] == 7 and drawn["trials"] == 6 and drawn["selected"] == 1
    assert drawn["running"] == "Running: trial 7, step 5 "
    assert drawn["failed"] == "other failures: trial 3 "
    assert "trial 3, failed" in drawn["shown"] and "<b>no memory</b>" in drawn["shown"]
    assert drawn["volume"] == 1 and drawn["genes"] == 6
    assert drawn["curves"] == 0  # no trial reported steps of the selected objective, flops
    assert "value" in drawn["tip"] and "trial" in drawn["details"]
    assert not drawn["nan"]
    numbers = [text for text in drawn["ticks"] if re.fullmatch(r"[-\d.e+]+", text)]
    assert {"5e7", "1e8", "80"} <= set(numbers) and max(map(len, numbers)) <= 7


def test_huge_values_that_hardly_differ_are_drawn(open_study):
    study = open_study(objectives=("loss", "flops"))
    for trial, value in zip(study.ask(4), (1e17, 1e17 + 16, 1e17, 1e17 + 32), strict=True):
        study.tell(trial, value)
    drawn = draw(study)
    assert drawn["trials"] == 4 and not drawn["nan"]
