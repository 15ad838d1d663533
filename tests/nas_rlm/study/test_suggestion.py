import numpy as np
import pytest

from nas_rlm import Study
from nas_rlm.data import Row
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.study import suggestion
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.store import Ask
from nas_rlm.study.suggestion import Suggester
from nas_rlm.surrogates.predictive import MIN_LABELS
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import accuracy

OBJECTIVES = ("accuracy", "flops")
RNG = np.random.default_rng(0)
NAMES = list(dict.fromkeys(str(CELLS.sample(RNG)) for _ in range(30)))
ROWS = [Row("nasbench201", name, accuracy(name)) for name in NAMES[:16]]


@pytest.fixture
def calls(monkeypatch):
    """What was learned and proposed, in order, without surrogates."""
    calls = []

    def propose(surrogate, settings, count, pending=()):
        calls.append(("propose", count, tuple(pending)))
        return NAMES[len(calls) : len(calls) + count]

    monkeypatch.setattr(suggestion, "propose", propose)
    monkeypatch.setattr(
        OnlineSurrogate, "update", lambda self, rows: calls.append([row.arch_str for row in rows])
    )
    return calls


def suggester(rlm, objectives=OBJECTIVES):
    return Suggester(CELLS, rlm, StudySettings("nasbench201", objectives))


def test_earlier_suggestions_are_repeated_in_a_new_process(tiny_rlm, calls):
    running = suggester(tiny_rlm)
    running.suggest([], [], 3)
    past = [Ask(0, (), 3)]
    running.suggest(ROWS[:2], ["pending"], 1, past)
    past.append(Ask(2, ("pending",), 1))
    running.suggest(ROWS[:3], [], 2, past)
    expected = calls.copy()
    assert expected == [
        ("propose", 3, ()),
        [ROWS[0].arch_str],
        [ROWS[1].arch_str],
        ("propose", 1, ("pending",)),
        [ROWS[2].arch_str],
        ("propose", 2, ()),
    ]
    calls.clear()
    suggester(tiny_rlm).suggest(ROWS[:3], [], 2, past)
    assert calls == expected


def test_suggestions_of_another_process_are_repeated(tiny_rlm, calls):
    here = suggester(tiny_rlm)
    here.suggest([], [], 1)
    calls.clear()
    here.suggest(ROWS[:1], [], 1, [Ask(0, (), 1), Ask(1, ("other",), 4)])
    assert calls == [[ROWS[0].arch_str], ("propose", 4, ("other",)), ("propose", 1, ())]


def test_a_suggestion_that_was_not_recorded_is_forgotten(tiny_rlm, calls):
    here = suggester(tiny_rlm)
    here.suggest(ROWS[:1], [], 1)  # and the process could not write it
    calls.clear()
    here.suggest(ROWS[:1], [], 1, [Ask(0, (), 2)])
    assert calls == [("propose", 2, ()), [ROWS[0].arch_str], ("propose", 1, ())]


def test_predictions_without_enough_trials_are_those_of_the_model_or_refused(tiny_rlm):
    values = suggester(tiny_rlm).predict(ROWS[:3], NAMES[:4], ["accuracy", "flops"], (0.1, 0.5))
    expected = tiny_rlm.predict(CELLS, [CELLS.parse(n) for n in NAMES[:4]], ["accuracy"], (0.1, 0.5))
    assert values.shape == (4, 2, 2)
    assert np.allclose(values[:, :1], expected)
    with pytest.raises(ValueError, match=f"3 trials are complete, and predictions need {MIN_LABELS}"):
        suggester(tiny_rlm, ("loss",)).predict(ROWS[:3], NAMES[:4], ["loss"])


def test_surrogates_learn_from_trials(tiny_rlm):
    predicted = suggester(tiny_rlm).predict(ROWS, NAMES[:20], ["accuracy", "flops"])
    for i, row in enumerate(ROWS):
        assert (predicted[i, 0] == row.targets["accuracy"]).all()
        assert predicted[i, 1, 0] == CELLS.flops(CELLS.parse(NAMES[i]))
    low, _, high = predicted[16:, 0].T
    assert (low < high).all()


@pytest.mark.long
@pytest.mark.parametrize(("budgets", "count"), [((), 18), ((1, 2), 12)])
def test_a_study_that_is_opened_again_continues_identically(tiny_rlm, tmp_path, budgets, count):
    trials = []
    for name, reopen in (("once", False), ("again", True)):
        study = Study(CELLS, OBJECTIVES, tmp_path / name, model=tiny_rlm, budgets=budgets)
        while len(study.trials) < count:
            if reopen and len(study.trials) % 7 == 6:
                study = Study(CELLS, OBJECTIVES, tmp_path / name, model=tiny_rlm, budgets=budgets)
            for trial in study.ask(2):
                study.tell(trial, accuracy(trial))
        trials.append([(t.architecture, t.values, t.predicted, t.budget_values) for t in study.trials])
    assert trials[0] == trials[1]
    assert budgets or trials[0][-1][2]
