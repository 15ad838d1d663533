from dataclasses import replace

import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.ensemble.zero_label_models import ZeroLabelModels
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.stubs import counted_cells


@pytest.fixture
def rlm(tiny_checkpoint):
    """Return a model with labels of NAS-Bench-201 alone."""
    labelled = fit_graph_surrogate(graph_features_of_space("nasbench201"), counted_cells(20), ["accuracy"])
    trained_on = {"nasbench201": TrainedOn(20, ("accuracy",))}
    return replace(RLM.load(tiny_checkpoint), surrogates={"nasbench201": [labelled]}, trained_on=trained_on)


def test_a_model_is_made_once_and_warns_each_time(rlm):
    models, fbnet = ZeroLabelModels(), search_spaces.get("fbnet")
    for _ in range(2):
        with pytest.warns(UserWarning, match="no labels of accuracy for fbnet") as caught:
            found = models.for_space(rlm, fbnet, ["accuracy", "params"])
        assert len(caught) == 1
    assert found is models.for_space(rlm, fbnet, ["accuracy"])
    assert [*found.zero_label] == ["fbnet"] and found.network is rlm.network and not rlm.zero_label
    assert found.selection.by_objective("fbnet")["accuracy"] is found.zero_label["fbnet"][0]
    with pytest.warns(UserWarning, match="no labels of accuracy for networks without a space"):
        assert [*models.for_space(rlm, None, ["accuracy"]).zero_label] == [""]


def test_other_labels_make_another_model(rlm):
    models, fbnet = ZeroLabelModels(), search_spaces.get("fbnet")
    first = models.for_space(rlm, fbnet, ["accuracy"])
    rlm.surrogates = {**rlm.surrogates, "mine": rlm.surrogates["nasbench201"]}
    assert models.for_space(rlm, fbnet, ["accuracy"]) is not first


def test_a_space_with_labels_keeps_the_model(rlm, recwarn):
    space = search_spaces.get("nasbench201")
    assert ZeroLabelModels().for_space(rlm, space, ["accuracy", "params"]) is rlm
    assert not recwarn.list
