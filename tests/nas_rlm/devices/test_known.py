import json
from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import known_devices
from nas_rlm.data import Row
from nas_rlm.data.device_names import DESCRIPTIONS
from nas_rlm.devices.known import FAMILIES_LEFT_OUT, LEAVE_ONE_OUT
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.latency.layer_calibration import FamilyEvidence
from tests.nas_rlm.conftest import LAYER_OBJECTIVES, NUM_NETWORKS


def by_objective(rlm):
    return {device.objective: device for device in known_devices(rlm)}


def test_a_layer_surrogate_has_the_error_of_families_that_were_left_out(layer_rlm):
    found = by_objective(layer_rlm)
    assert set(found) == {*LAYER_OBJECTIVES, "latency/pixel3", "latency/eyeriss"}
    device = found[LAYER_OBJECTIVES[0]]
    evidence = layer_rlm.surrogates["mynets"][0].evidence[device.objective]
    (source,) = device.sources
    assert device.any_network
    assert "Cortex-A76" in device.description
    assert (source.space, source.networks, source.labels, source.families) == ("mynets", 40, 40, 3)
    assert source.labels == NUM_NETWORKS
    assert source.relative_error == evidence.relative_error
    assert source.within_10_percent == evidence.within_10_percent
    assert source.protocol == FAMILIES_LEFT_OUT


def test_a_users_device_has_no_description_and_an_unknown_one_no_sources(layer_rlm):
    found = by_objective(layer_rlm)
    assert found["latency/mybox"].description == ""
    assert found["latency/pixel3"].sources == ()
    assert not found["latency/pixel3"].any_network


def test_no_error_is_invented_for_a_single_family(layer_rlm):
    (surrogate,) = layer_rlm.surrogates["mynets"]
    single = {name: FamilyEvidence(40, 1) for name in surrogate.objectives}
    layer_rlm.surrogates = {"mynets": [replace(surrogate, evidence=single)]}
    (source,) = by_objective(layer_rlm)[LAYER_OBJECTIVES[0]].sources
    assert (source.labels, source.families) == (40, 1)
    assert (source.relative_error, source.within_10_percent, source.protocol) == (None, None, "")


def test_few_labels_have_the_leave_one_out_error(layer_rlm):
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(0)
    architectures = [str(space.sample(rng)) for _ in range(12)]
    rows = [Row("nasbench201", a, {"latency/pixel3": 3.0 + i}) for i, a in enumerate(architectures)]
    surrogates = fit_surrogates(rows, ["latency/pixel3"])
    layer_rlm.surrogates = {**layer_rlm.surrogates, **surrogates}
    (source,) = by_objective(layer_rlm)["latency/pixel3"].sources
    evidence = surrogates["nasbench201"][0].evidence
    assert (source.space, source.networks, source.labels) == ("nasbench201", None, 12)
    assert (source.relative_error, source.protocol) == (evidence.relative_error, LEAVE_ONE_OUT)


def test_a_network_alone_has_the_number_of_its_networks(layer_rlm):
    layer_rlm.trained_on = {
        "fbnet": TrainedOn(50, ("latency/eyeriss",)),
        "other": TrainedOn(9, ("accuracy",)),
    }
    (source,) = by_objective(layer_rlm)["latency/eyeriss"].sources
    assert (source.space, source.networks, source.labels) == ("fbnet", 50, None)
    assert source.relative_error is None


@pytest.mark.parametrize("name", ["energy/a100_gpu", "memory/a100", "throughput/mybox"])
def test_other_kinds_of_objectives_of_a_device(layer_rlm, name):
    rlm = layer_rlm.with_objectives([name, "accuracy/cifar100"])
    assert name in by_objective(rlm)
    assert "accuracy/cifar100" not in by_objective(rlm)


def test_the_shipped_model(shipped_rlm):
    found = by_objective(shipped_rlm)
    assert [d.name for d in found.values() if not d.description] == []
    surrogate = shipped_rlm.surrogates["fbnet"][0]
    labels = np.isfinite(surrogate.values[:, surrogate.objectives.index("latency/pixel3")]).sum()
    fbnet = found["latency/pixel3"].sources[0]
    assert (fbnet.space, fbnet.labels, fbnet.relative_error) == ("fbnet", labels, None)
    assert [source.space for source in found["latency/v100_64"].sources] == ["ofa_mbv3"]


def test_objectives_of_programs_are_no_devices():
    assert known_devices("programs") == []


def test_descriptions_are_sorted_and_short():
    descriptions = json.loads(DESCRIPTIONS.read_text(encoding="utf-8"))
    assert list(descriptions) == sorted(descriptions, key=str.lower)
    assert all(0 < len(text) < 140 for text in descriptions.values())


def test_tables_have_descriptions(shared_data):
    import pyarrow.parquet as pq

    from nas_rlm.data.network_files import latency_names

    for file in ("nnmeter", "timm"):
        names = latency_names(pq.read_schema(shared_data / "networks" / f"{file}.parquet").names)
        devices = {name.removeprefix("latency/") for name in names.values()}
        assert devices <= json.loads(DESCRIPTIONS.read_text(encoding="utf-8")).keys()


def test_a_bad_model_is_refused():
    with pytest.raises(FileNotFoundError, match="nope"):
        known_devices("nope")
    with pytest.raises(ValueError, match="expected an RLM"):
        known_devices(3)
