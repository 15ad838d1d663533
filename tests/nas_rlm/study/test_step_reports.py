import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from nas_rlm.study.trial import Trial


def train(trial: Trial) -> tuple[float, dict[int, dict[str, float]]]:
    """Train in a pool of the user's own."""
    trial.report(1, 40.0 + trial.number)
    return 50.0 + trial.number, trial.steps


def test_trials_report_from_processes_of_other_pools(open_study):
    study = open_study()
    trials = study.ask(2)
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        for trial, (value, steps) in zip(trials, pool.map(train, trials), strict=True):
            assert steps == {1: {"accuracy": 40 + trial.number}}
            study.tell(trial, value)
    for opened in (study, open_study()):
        assert [trial.steps for trial in opened.trials] == [{1: {"accuracy": 40}}, {1: {"accuracy": 41}}]
        assert [trial.values["accuracy"] for trial in opened.trials] == [50, 51]


def test_a_pickled_trial_that_is_finished_reports_no_more(open_study):
    study = open_study()
    copy = pickle.loads(pickle.dumps(study.ask()))
    with pytest.raises(ValueError, match=r"step is 0\.5, expected a whole number"):
        copy.report(0.5, 40.0)
    study.tell(copy, 50.0)
    with pytest.raises(ValueError, match="trial 0 is complete"):
        copy.report(1, 40.0)
    assert study.trials[0].steps == {}


def test_a_pickled_study_goes_on(open_study):
    study = open_study()
    study.tell(study.ask(), 50.0)
    copy = pickle.loads(pickle.dumps(study))
    study.tell(study.ask(), 60.0)
    trial = copy.ask()
    trial.report(1, 65.0)
    copy.tell(trial, 70.0)
    assert trial.number == 2
    assert copy.best.values["accuracy"] == study.best.values["accuracy"] == 70
    assert study.trials[2].steps == {1: {"accuracy": 65}}
