import numpy as np
import pytest

from nas_rlm import Study
from nas_rlm.data import Row
from nas_rlm.search.acquisition import candidate_pool
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.suggestion import PoolSuggester
from nas_rlm.study.trial import COMPLETE
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


@pytest.mark.parametrize("budgets", [(), (1, 4)])
def test_candidates_are_evaluated_until_none_is_left(tiny_rlm, tmp_path, budgets):
    candidates = NAMES[:4]
    study = Study(
        CELLS, OBJECTIVES, tmp_path / "study", model=tiny_rlm, budgets=budgets, candidates=candidates
    )
    study.optimize(lambda trial, *_: accuracy(trial), trials=9)
    assert sorted(t.architecture for t in study.trials) == sorted(candidates)
    assert {t.state for t in study.trials} == {COMPLETE} and study.is_exhausted
    with pytest.raises(ValueError, match="each of 4 candidates has a trial: there are no others"):
        study.ask()
    again = Study.load(tmp_path / "study")
    assert again.settings.candidates == tuple(candidates)
    with pytest.raises(ValueError, match=r"candidates 4 \(.*, …\) instead of none: open it with its own"):
        Study(CELLS, OBJECTIVES, tmp_path / "study", model=tiny_rlm, budgets=budgets)
    assert f'"candidates": {len(candidates)}' in study.report().read_text()


def test_candidates_that_are_wrong_are_refused(tiny_rlm, tmp_path):
    for candidates, reason in [
        ([], "there are no candidates"),
        ([NAMES[0], "no cell"], "candidate 2: "),
        ([NAMES[0], NAMES[1], NAMES[0]], "candidates 1 and 3 are the same"),
        (NAMES[0], "candidates is .*: expected a list"),
    ]:
        with pytest.raises(ValueError, match=reason):
            Study(CELLS, OBJECTIVES, tmp_path / "study", model=tiny_rlm, candidates=candidates)
    assert not (tmp_path / "study").exists()


def test_trials_are_asked_for_among_candidates(tiny_rlm, tmp_path):
    study = Study(CELLS, OBJECTIVES, tmp_path / "study", model=tiny_rlm, candidates=NAMES[:6])
    cell = CELLS.parse(NAMES[3])
    assert study.ask(candidates=[cell]).architecture == NAMES[3]
    with pytest.warns(
        UserWarning, match="2 trials were asked for, and there are only 1: none of 2 candidates"
    ):
        (other,) = study.ask(2, candidates=NAMES[3:5])
    assert other.architecture == NAMES[4] and not study.is_exhausted
    with pytest.raises(ValueError, match="none of 2 candidates is without a trial or can be continued"):
        study.ask(candidates=NAMES[3:5])
    with pytest.raises(ValueError, match="is not among the 6 candidates of the study"):
        study.ask(candidates=NAMES[7:9])
    assert len(study.ask(4)) == 4


def test_no_architecture_breaks_an_exact_constraint(tiny_rlm, tmp_path):
    settings = {"model": tiny_rlm, "constraints": ["flops<=2e7", "params>=8e4"]}
    study = Study(CELLS, OBJECTIVES, tmp_path / "study", **settings)
    study.optimize(accuracy, trials=14)
    for trial in study.trials:
        assert trial.values["flops"] <= 2e7 and CELLS.params(trial.parsed) >= 8e4
    assert len({t.architecture for t in study.trials}) == 14
    again = Study(CELLS, OBJECTIVES, tmp_path / "study", **settings)
    assert CELLS.flops(again.ask().parsed) <= 2e7


def test_an_exact_constraint_that_no_architecture_meets_is_refused(tiny_rlm, tmp_path, monkeypatch):
    monkeypatch.setattr(candidate_pool, "MAX_CHECKED", 30)
    for options in ({}, {"candidates": NAMES[:5]}, {"budgets": (1, 4)}):
        with pytest.raises(
            ValueError, match=r"none of \d+ architectures .* meets flops<=10: the smallest flops"
        ):
            Study(CELLS, OBJECTIVES, tmp_path / "study", model=tiny_rlm, constraints=["flops<=10"], **options)
    assert not (tmp_path / "study").exists()


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
