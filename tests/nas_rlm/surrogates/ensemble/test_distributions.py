import numpy as np
import pytest

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.surrogates.conditional import conditional_surrogate
from nas_rlm.surrogates.ensemble import distributions
from nas_rlm.surrogates.ensemble.distributions import ConditionalSurrogates, TextDistributions, with_novelties
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.registry import predictive_distributions
from tests.nas_rlm.stubs import counted_cells
from tests.nas_rlm.surrogates.ensemble.layer_networks import LEVELS, NAME, networks

EARLY = "accuracy/cifar10_4ep"


@pytest.fixture(scope="module")
def of_cells():
    rows = counted_cells(30)
    for row in rows:
        row.targets[EARLY] = 0.8 * row.targets["accuracy"]
    return fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, ["accuracy", EARLY])


def test_given_numbers_are_those_of_the_texts_in_any_order(of_cells):
    texts = texts_of_rows(counted_cells(4, seed=3))
    query = TextQuery(texts, ["accuracy"], "nasbench201", {EARLY: np.array([40.0, 50.0, 60.0, 70.0])})
    found = TextDistributions(query, [of_cells], ConditionalSurrogates().of_query(query, [of_cells]))
    some = [texts[2], texts[0]]
    assert found.given(some)[EARLY].tolist() == [60.0, 40.0]
    (of_some,), (of_all,) = found.predict(some, ["accuracy"]), found.predict(texts, ["accuracy"])
    assert of_some.median == pytest.approx(of_all.median[[2, 0]], rel=1e-3)
    (without,) = predictive_distributions([of_cells], some, ["accuracy"])
    assert np.abs(of_some.median - without.median).min() > 1e-3


def test_a_surrogate_is_conditioned_on_the_same_numbers_once(of_cells, monkeypatch):
    fitted = []

    def fit(surrogate, objective, given):
        fitted.append((objective, given))
        return conditional_surrogate(surrogate, objective, given)

    monkeypatch.setattr(distributions, "conditional_surrogate", fit)
    conditional, numbers = ConditionalSurrogates(), {EARLY: np.array([50.0])}
    for _ in range(2):
        found = conditional.of_query(TextQuery(["a"], ["accuracy", "loss"], given=numbers), [of_cells])
        assert [*found] == ["accuracy"]
    assert fitted == [("accuracy", (EARLY,))]
    assert not conditional.of_query(TextQuery(["a"], ["accuracy"]), [of_cells])


def test_layer_surrogates_are_not_conditioned_on_given_numbers(surrogate):
    query = TextQuery(["a"], [NAME], given={"accuracy": np.array([50.0])})
    message = f"{NAME} of networks without a space cannot be predicted from accuracy: fine-tune the model"
    with pytest.raises(ValueError, match=message):
        ConditionalSurrogates().of_query(query, [surrogate])


def test_novelties_are_the_last_column(surrogate):
    found = surrogate.predict(surrogate.transform(networks("nasbench201", 2)[1]), NAME)
    quantiles = np.stack([found.quantiles(LEVELS)] * 2, 1)
    values = with_novelties(quantiles, [None, found])
    assert np.array_equal(values[:, :, :3], quantiles)
    assert np.isnan(values[:, 0, 3]).all() and np.array_equal(values[:, 1, 3], found.novelty)
