import importlib
import pickle
import sys

import numpy as np
import pytest
from sklearn import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from nas_rlm import TextRegressor

RNG = np.random.default_rng(0)
X = RNG.random(70).round(3)
TEXTS = [f"x={x}" for x in X]
# Checks of scikit-learn that need no numbers as input.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_valid_tag_types",
)


pytestmark = pytest.mark.filterwarnings("ignore:.*too few to hold any out")


@pytest.fixture(scope="module")
def fitted():
    return TextRegressor(source="surrogate").fit(TEXTS, 2 * X)


@pytest.mark.parametrize("check", CHECKS)
def test_it_passes_the_checks_of_scikit_learn_for_any_input(check):
    getattr(estimator_checks, check)("TextRegressor", TextRegressor(source="surrogate"))


def test_it_passes_what_check_estimator_runs_for_its_tags():
    results = estimator_checks.check_estimator(TextRegressor(), on_fail=None, on_skip=None)
    assert all(result["status"] in ("passed", "skipped") for result in results)


def test_it_predicts_scores_and_is_pickled(fitted):
    assert fitted.score(TEXTS, 2 * X) > 0.99
    np.testing.assert_allclose(fitted.predict(["x=0.5"]), [1], atol=0.1)
    assert fitted.predict(["x=0.5"], quantiles=(0.1, 0.9)).shape == (1, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(TEXTS), fitted.predict(TEXTS))


@pytest.mark.parametrize("texts", [TEXTS, np.array(TEXTS), np.array(TEXTS, dtype=object)[:, None]])
def test_inputs_of_any_shape_of_one_column_are_the_same(fitted, texts):
    np.testing.assert_array_equal(fitted.predict(texts), fitted.predict(TEXTS))


def test_several_targets_have_two_dimensions():
    model = TextRegressor(source="surrogate").fit(TEXTS, np.column_stack([X, -X]))
    assert model.predict(TEXTS[:3]).shape == (3, 2)
    assert model.n_outputs_ == 2


def test_it_works_in_pipelines_cross_validation_and_grid_search():
    pipeline = make_pipeline(
        FunctionTransformer(lambda x: [f"x={v}" for v in x]), TextRegressor(source="surrogate")
    )
    assert cross_val_score(pipeline, X, 2 * X, cv=2).min() > 0.98
    search = GridSearchCV(TextRegressor(source="surrogate"), {"random_state": [1]}, cv=2, refit=False)
    assert search.fit(np.array(TEXTS), 2 * X).best_score_ > 0.98
    assert clone(search.estimator).get_params()["source"] == "surrogate"


def test_bad_input_is_refused(fitted):
    with pytest.raises(NotFittedError):
        TextRegressor().predict(TEXTS)
    with pytest.raises(ValueError, match="expected a list of strings"):
        fitted.predict("x=1")
    with pytest.raises(ValueError, match="Reshape your data"):
        fitted.predict(np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="the target y is None"):
        TextRegressor().fit(TEXTS, None)
    with pytest.raises(ValueError, match="random_state is 'x'"):
        TextRegressor(random_state="x").fit(TEXTS, X)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "nas_rlm.integrations.scikit_learn")
    with pytest.raises(ModuleNotFoundError, match=r"needs scikit-learn, .*nas-rlm\[baselines\]"):
        importlib.import_module("nas_rlm.integrations.scikit_learn")
