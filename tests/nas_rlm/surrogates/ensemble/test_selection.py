from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.ensemble.selection import SurrogateSelection
from nas_rlm.surrogates.fitting import fit_graph_surrogates
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import surrogate_by_objective
from tests.nas_rlm.surrogates.ensemble.layer_networks import LEVELS, NAME, latencies_of, networks


def test_a_space_with_labels_of_its_own_keeps_its_surrogate(rlm, surrogate):
    architectures, texts = networks("nasbench201", 25)
    rows = [
        Row("nasbench201", str(a), {NAME: 1000 * value})
        for a, value in zip(architectures, latencies_of(texts), strict=True)
    ]
    own = fit_latency_surrogate("nasbench201", rows, NAME)
    own = replace(own, network_temperatures={NAME: WITHOUT_NETWORK})
    for order in (1, -1):
        rlm.surrogates = dict([*rlm.surrogates.items(), ("nasbench201", [own])][::order])
        assert surrogate_by_objective(rlm.surrogates_of("nasbench201"))[NAME] is own
        for space in ("", "mine", "fbnet"):
            assert surrogate_by_objective(rlm.surrogates_of(space))[NAME] is surrogate
        assert rlm.predict("nasbench201", architectures[:3], [NAME]).min() > 50
        assert rlm.predict("fbnet", networks("fbnet", 3)[0], [NAME]).max() < 50


def test_files_without_a_space_are_predicted_by_the_surrogate_of_a_table_of_files(rlm, no_warnings):
    texts = networks("nasbench201", 24)[1]
    rows = [
        Row("files", "", {"accuracy/data": 50 + 10 * np.log10(value)}, text)
        for text, value in zip(texts, latencies_of(texts), strict=True)
    ]
    own = fit_graph_surrogates(rows, ["accuracy/data"])["files"]
    alone = [replace(s, network_temperatures={"accuracy/data": WITHOUT_NETWORK}) for s in own]
    tuned = rlm.with_objectives(["accuracy/data"])
    tuned.surrogates = {**rlm.surrogates, "files": alone}
    expected = tuned.predict_text(texts[:3], ["accuracy/data"], LEVELS, space="files")
    tuned.check_space("", ["accuracy/data"])
    assert np.array_equal(tuned.predict_text(texts[:3], ["accuracy/data"], LEVELS), expected)
    assert "accuracy/data" not in surrogate_by_objective(tuned.surrogates_of("fbnet"))


def test_surrogates_of_a_space_that_this_process_has_not_loaded_are_not_those_of_files():
    texts = networks("nasbench201", 24)[1]
    rows = [
        Row("elsewhere", "", {"accuracy/data": 50 + 10 * np.log10(value)}, text)
        for text, value in zip(texts, latencies_of(texts), strict=True)
    ]
    (own,) = fit_graph_surrogates(rows, ["accuracy/data"])["elsewhere"]
    learnt = {"elsewhere": TrainedOn(24, ("accuracy/data",), task="tasks on vectors")}
    selection = SurrogateSelection({"elsewhere": [own]}, learnt, {})
    assert selection.by_objective("elsewhere") == {"accuracy/data": own}
    assert not selection.of_space("")
    assert not selection.sources("nasbench201")["elsewhere"]


def test_a_network_that_was_trained_on_a_latency_keeps_it_from_sums_of_costs_of_other_spaces():
    architectures, texts = networks("nasbench201", 25)
    pairs = zip(architectures, latencies_of(texts), strict=True)
    rows = [Row("nasbench201", str(a), {NAME: value}) for a, value in pairs]
    sums = fit_latency_surrogate("nasbench201", rows, NAME)
    selection = SurrogateSelection({"nasbench201": [sums]}, {"fbnet": TrainedOn(9, (NAME,))}, {})
    assert selection.by_objective("nasbench201") == {NAME: sums}
    assert not selection.of_space("fbnet")
    (for_others,) = selection.of_space("ofa_mbv3")
    assert for_others.objectives == (NAME,) and for_others is not sums
    assert selection.labels("nasbench201", [NAME, "accuracy"])[NAME] == pytest.approx(latencies_of(texts))
    assert not selection.labels("fbnet", [NAME])
