import numpy as np
import onnx
import pytest

from nas_rlm import RLM, compare_networks, from_onnx
from nas_rlm.graph.costs import compute_costs
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.reports.comparison import BLOCK_CLASSES, LEVELS, default_objectives
from nas_rlm.surrogates.latency.layer_surrogate import CONSTANT
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.conftest import LAYER_OBJECTIVES
from tests.nas_rlm.onnx_models import residual_network


@pytest.fixture
def compared(layer_rlm, cell_files):
    return compare_networks(cell_files, (), layer_rlm)


def test_costs_are_those_of_the_files(compared, cell_files):
    for network, file in zip(compared.networks, cell_files, strict=True):
        assert network.name == str(file)
        costs = compute_costs(parse_network(from_onnx(file))).sums()
        assert (network.macs, network.params, network.activations) == costs


def test_predictions_are_those_of_the_model(compared, layer_rlm, cell_files):
    expected = layer_rlm.predict_onnx(cell_files, LAYER_OBJECTIVES, LEVELS)
    assert compared.objectives == LAYER_OBJECTIVES
    for network, values in zip(compared.networks, expected, strict=True):
        found = [network.predictions[name] for name in LAYER_OBJECTIVES]
        assert [[p.low, p.median, p.high] for p in found] == values.tolist()
        assert all(0 < p.low < p.median < p.high for p in found)


def test_blocks_sum_to_the_median_and_go_from_large_images_to_small_ones(compared):
    assert compared.block_objective == LAYER_OBJECTIVES[0]
    for network in compared.networks:
        median = network.predictions[LAYER_OBJECTIVES[0]].median
        assert sum(block.latency for block in network.blocks) == pytest.approx(median)
        sides = [block.side for block in network.blocks]
        assert sides == sorted(sides, reverse=True)
        assert {32, 16, 8} <= set(sides)
        assert all(block.layer_class in BLOCK_CLASSES and block.latency > 0 for block in network.blocks)
        (constant,) = [block for block in network.blocks if block.layer_class == CONSTANT]
        assert (constant.side, constant.layers) == (0, 0)
        keys = [(block.side, block.layer_class) for block in network.blocks]
        assert len(set(keys)) == len(keys)


def test_the_first_latency_that_is_known_by_layers_has_blocks(layer_rlm, cell_files):
    with pytest.warns(UserWarning, match="no space is named"):
        found = compare_networks(cell_files, ["latency/pixel3", LAYER_OBJECTIVES[1]], layer_rlm)
    assert found.block_objective == LAYER_OBJECTIVES[1]
    assert found.networks[0].predictions["latency/pixel3"].novelty is None


@pytest.mark.filterwarnings("ignore:no space is named")
def test_without_a_layer_surrogate_there_are_no_blocks(layer_rlm, cell_files):
    found = compare_networks(cell_files, ["latency/pixel3", "flops"], layer_rlm)
    assert (found.objectives, found.block_objective) == (("latency/pixel3",), "")
    assert [network.blocks for network in found.networks] == [(), ()]


def test_costs_alone(layer_rlm, cell_files):
    found = compare_networks(cell_files, ["flops", "params"], layer_rlm)
    assert found.objectives == ()
    assert [network.predictions for network in found.networks] == [{}, {}]
    assert found.networks[0].macs > 0


def test_a_novel_network_is_reported_with_its_devices(layer_rlm, cell_files, tmp_path):
    novel = tmp_path / "novel.onnx"
    onnx.save(residual_network(2, initialisers=True), novel)
    with pytest.warns(UserWarning, match=r"latency/cortexA76cpu, latency/mybox is like .*novel\.onnx"):
        found = compare_networks([cell_files[0], novel], (), layer_rlm)
    known, unlike = (network.predictions[LAYER_OBJECTIVES[0]].novelty for network in found.networks)
    assert known < 2 < unlike


def test_latencies_of_unlike_networks_are_left_out_by_default(layer_rlm, cell_files, monkeypatch):
    predict = RLM.predict_with_novelties

    def predict_with_unlike(*arguments, **options):
        values = predict(*arguments, **options)
        values[:, -1, -1] = 9.0
        return values

    monkeypatch.setattr(RLM, "predict_with_novelties", predict_with_unlike)
    like, unlike = LAYER_OBJECTIVES[0], LAYER_OBJECTIVES[-1]
    with pytest.warns(UserWarning, match=f"1 of the latencies are left out.*: {unlike}$"):
        found = compare_networks(cell_files, (), layer_rlm)
    assert unlike not in found.objectives and like in found.objectives
    assert [set(network.predictions) for network in found.networks] == [set(found.objectives)] * 2
    with pytest.warns(UserWarning, match="is like"):
        assert compare_networks(cell_files, [unlike], layer_rlm).objectives == (unlike,)


def test_accuracies_are_predicted_by_default_where_they_are_known(layer_rlm):
    assert default_objectives(layer_rlm) == LAYER_OBJECTIVES
    layer_rlm.trained_on = {"nasbench201": TrainedOn(9, ("accuracy", "latency/pixel3"))}
    assert default_objectives(layer_rlm) == LAYER_OBJECTIVES
    assert default_objectives(layer_rlm, "nasbench201") == ("accuracy", *LAYER_OBJECTIVES)
    layer_rlm.surrogates = {}
    assert default_objectives(layer_rlm, "nasbench201") == ("accuracy", "latency/pixel3")
    assert default_objectives(layer_rlm) == ()


def test_bad_input_is_refused(layer_rlm, cell_files):
    with pytest.raises(ValueError, match="did you mean latency/mybox"):
        compare_networks(cell_files, ["latency/mybix"], layer_rlm)
    with pytest.raises(ValueError, match="no space 'nope'"):
        compare_networks(cell_files, [LAYER_OBJECTIVES[0]], layer_rlm, space="nope")
    with pytest.raises(ValueError, match="expected a list of paths"):
        compare_networks(str(cell_files[0]), (), layer_rlm)
    with pytest.raises(FileNotFoundError):
        compare_networks(["missing.onnx"], (), layer_rlm)


def test_data_has_only_numbers_and_names(compared):
    found = compared.to_dict()
    assert list(found) == ["objectives", "block_objective", "networks"]
    assert list(found["networks"][0]) == [*("name", "macs", "params", "activations", "predictions", "blocks")]
    novelty = found["networks"][0]["predictions"][LAYER_OBJECTIVES[0]]["novelty"]
    assert np.isfinite(novelty)
