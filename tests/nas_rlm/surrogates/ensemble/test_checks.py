import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.ensemble.checks import (
    check_name_of_space,
    check_surrogates,
    check_task,
    reliability_warnings,
)
from nas_rlm.surrogates.ensemble.selection import SurrogateSelection
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import NoveltyWarning
from tests.nas_rlm.surrogates.ensemble.layer_networks import NAME, latencies_of, networks
from tests.search_spaces.plain_space import PlainSpace


def test_a_space_that_is_not_registered_has_its_own_task(rlm):
    class Signals(PlainSpace):
        name, input_shape = "unknown_signals", (6, 128)

    rlm.trained_on = {"nasbench201": TrainedOn(9, ("accuracy",))}
    with pytest.raises(ValueError, match="accuracy cannot be predicted for tasks on signals: "):
        rlm.predict(Signals(), ["3x16 5x32 1x64"], ["accuracy"])


def test_accuracies_of_another_task_are_not_transferred(rlm, tmp_path):
    rlm.trained_on = {"nasbench201": TrainedOn(9, ("accuracy",))}
    message = "accuracy cannot be predicted for language modelling: .* for image classification alone"
    drawn, texts = networks("gpt_s", 1)
    with pytest.raises(ValueError, match=message):
        rlm.predict("gpt_s", drawn, ["accuracy"])
    onnx.save(search_spaces.get("gpt_s").to_onnx(drawn[0]), tmp_path / "gpt.onnx")
    for space in ("", "nasbench201"):
        with pytest.raises(ValueError, match=message):
            rlm.predict_onnx([tmp_path / "gpt.onnx"], ["accuracy"], space=space)
    rlm.predict_onnx([tmp_path / "gpt.onnx"], [NAME, "flops"])
    rlm.predict("fbnet", networks("fbnet", 1)[0], ["accuracy"])
    rlm.trained_on = {**rlm.trained_on, "gpt_m": TrainedOn(9, ("accuracy",))}
    rlm.check_task("gpt_s", ["accuracy"], texts)
    with pytest.raises(ValueError, match=message):
        rlm.check_task("nasbench201", ["accuracy"], texts)


def test_sums_of_costs_of_another_space_say_where_they_were_learnt(tiny_checkpoint):
    architectures, texts = networks("nasbench201", 25)
    pairs = zip(architectures, latencies_of(texts), strict=True)
    rows = [Row("nasbench201", str(a), {NAME: value}) for a, value in pairs]
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {"nasbench201": [fit_latency_surrogate("nasbench201", rows, NAME)]}
    rlm.trained_on = {"nasbench201": TrainedOn(25, (NAME,))}
    message = f"{NAME} was learnt from networks of nasbench201 alone: for fbnet it is a sum of the costs"
    with pytest.warns(NoveltyWarning, match=message) as caught:
        rlm.predict("fbnet", networks("fbnet", 2)[0], [NAME])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlm.predict("nasbench201", architectures[:2], [NAME])


def test_other_objectives_still_give_a_warning(rlm):
    with pytest.warns(UserWarning, match="no space is named"):
        rlm.check_space("", [NAME, "accuracy"])
    with pytest.warns(UserWarning, match="not trained on latency/eyeriss of fbnet"):
        rlm.check_space("fbnet", [NAME, "latency/eyeriss"])


def test_the_shipped_model_refuses_what_it_cannot_know_of_a_file(shipped_rlm, tmp_path):
    gpt, cell = tmp_path / "gpt.onnx", tmp_path / "cell.onnx"
    for path, name in ((gpt, "gpt_s"), (cell, "nasbench201")):
        space = search_spaces.get(name)
        onnx.save(space.to_onnx(space.sample(np.random.default_rng(0))), path)
    for objective in ("accuracy", "accuracy/imagenet"):
        with pytest.raises(
            ValueError, match=f"{objective} cannot be predicted for a network of no space that reads"
        ):
            shipped_rlm.predict_onnx([gpt], [objective])
    for path in (gpt, cell):
        with pytest.raises(ValueError, match=r"learnt it for gpt_l, gpt_m, gpt_s alone|network of no space"):
            shipped_rlm.predict_onnx([path], ["perplexity"])
        with pytest.raises(ValueError, match="learnt it for gpt_l, gpt_m, gpt_s alone"):
            shipped_rlm.predict_onnx([path], ["memory/a100"])


def test_accuracies_of_a_space_that_this_process_has_not_loaded_keep_their_task():
    learnt = TrainedOn(9, ("accuracy/mine",), task="tasks on vectors")
    selection = SurrogateSelection({}, {"mlps_elsewhere": learnt}, {})
    check_task(selection, "mlps_elsewhere", ["accuracy/mine"])
    for other in ("nasbench201", "gpt_s"):
        with pytest.raises(ValueError, match="the model learnt it for tasks on vectors alone"):
            check_task(selection, other, ["accuracy/mine"])


def test_unknown_spaces_get_a_suggestion():
    selection = SurrogateSelection({}, {"files": TrainedOn(3, ("accuracy",))}, {})
    for known in ("", "files", "nasbench201"):
        check_name_of_space(selection, known)
    with pytest.raises(ValueError, match="there is no space 'nasbench210'; did you mean nasbench201"):
        check_name_of_space(selection, "nasbench210")


@pytest.mark.parametrize(("temperature", "is_refused"), [(WITHOUT_NETWORK, True), (2.0, False)])
def test_what_surrogates_of_other_spaces_alone_learnt_is_refused(temperature, is_refused):
    memory = SimpleNamespace(objectives=("memory",), network_temperatures={"memory": temperature})
    selection = SurrogateSelection({"programs": [memory]}, {}, {})
    check_surrogates(selection, "programs", ["memory", "accuracy"])
    check_surrogates(selection, "fbnet", ["accuracy"])
    message = "memory cannot be predicted for fbnet: the model learnt it for programs alone"
    with pytest.raises(ValueError, match=message) if is_refused else nullcontext():
        check_surrogates(selection, "fbnet", ["accuracy", "memory"])


def test_objectives_of_the_network_or_of_surrogates_give_no_warning():
    own = SimpleNamespace(objectives=("memory",))
    selection = SurrogateSelection({"nasbench201": [own]}, {"nasbench201": TrainedOn(3, ("loss",))}, {})
    assert not reliability_warnings(selection, "nasbench201", ["memory", "loss"])
    (warning,) = reliability_warnings(selection, "nasbench201", ["memory", "loss", "energy/a"])
    assert str(warning).startswith("the model was not trained on energy/a of nasbench201")
    (warning,) = reliability_warnings(selection, "", ["loss"])
    assert str(warning).startswith("no space is named")
