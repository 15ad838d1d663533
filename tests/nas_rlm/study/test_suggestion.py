import numpy as np
import pytest

from nas_rlm import Study
from nas_rlm.data import Row
from nas_rlm.search import candidate_pool
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.suggestion import PoolSuggester
from nas_rlm.surrogates.predictive import MIN_LABELS
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import accuracy

OBJECTIVES = ("accuracy", "flops")
RNG = np.random.default_rng(0)
NAMES = list(dict.fromkeys(str(CELLS.sample(RNG)) for _ in range(30)))
ROWS = [Row("nasbench201", name, accuracy(name)) for name in NAMES[:16]]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 60)


def suggester(rlm, objectives=OBJECTIVES):
    return PoolSuggester(CELLS, rlm, StudySettings("nasbench201", objectives))


def architectures(suggested):
    return [suggestion.architecture for suggestion in suggested.trials]


def test_suggestions_depend_on_rows_and_earlier_candidates_alone(tiny_rlm):
    here, candidates = suggester(tiny_rlm), []
    for count in (10, 12, 14):
        suggested = here.suggest(ROWS[:count], NAMES[20:22], 2, candidates)
        other = suggester(tiny_rlm).suggest(ROWS[:count], NAMES[20:22], 2, candidates)
        assert suggested == other
        candidates += suggested.candidates


def test_candidates_of_another_process_are_used(tiny_rlm):
    here, there = suggester(tiny_rlm), suggester(tiny_rlm)
    first = there.suggest(ROWS[:12], [], 1).candidates
    second = there.suggest(ROWS[:13], [], 1, first)
    here.suggest(ROWS[:12], [], 1)
    assert here.suggest(ROWS[:13], [], 1, first) == second
    assert here.suggest(ROWS[:13], [], 1, first) == second  # it could not be recorded


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
