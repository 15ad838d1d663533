import math

import numpy as np
import pytest
from onnx.numpy_helper import from_array
from onnx.parser import parse_model

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.synthetic import graph_features, random_table
from nas_rlm.graph.costs import OPERATOR_KINDS
from nas_rlm.graph.paths import PATH_COUNTS
from nas_rlm.text import from_onnx
from tests.nas_rlm.data.graph_features import SIZES, features_of_architecture
from tests.search_spaces.plain_space import PlainSpace


def test_constant_features_are_left_out_of_a_table():
    table = random_table("nats_size", 50)
    assert len(table) == len({row.arch_str for row in table.rows}) == 50
    names = {name for row in table.rows for name in row.targets}
    assert {"flops", "params", "convs/macs", "convs/roots"} <= names
    assert not names & {"depthwise/macs", "paths", "convs", "convs/sides"}
    assert all(row.targets["flops"] == SIZES.flops(SIZES.parse(row.arch_str)) for row in table.rows)
    assert random_table("nats_size", 50).rows == table.rows
    assert random_table("nats_size", 50, seed=1).rows != table.rows
    with pytest.raises(ValueError, match="20,000 networks of nats_size: expected at most half of 32,768"):
        random_table("nats_size", 20000)


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_has_graph_features(name):
    space = search_spaces.get(name)
    features = features_of_architecture(space, space.sample(np.random.default_rng(0)))
    assert all(math.isfinite(v) and v >= 0 for v in features.values())
    assert sum(features[k] for k in OPERATOR_KINDS) == features["layers"]
    for k in PATH_COUNTS:
        assert features[f"{k}/least"] <= features[f"{k}/mean"] + 1e-9 <= features[f"{k}/most"] + 2e-9


def test_graph_features_of_a_network_outside_the_spaces():
    """A linear layer, two heads of one input and a sum of both, by hand."""
    model = parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        main (float[1,4,8] x) => (float[1,4,16] y) <float[8,16] w, float[8,16] u>
        {
          a = MatMul(x, w)
          b = MatMul(x, u)
          r = Relu(b)
          y = Add(a, r)
        }"""
    )
    for name in "wu":
        model.graph.initializer.append(from_array(np.ones((8, 16), np.float32), name))
    features = graph_features(from_onnx(model), max_chain_length=2)
    costs = [features[name] for name in ("flops", "params", "activations")]
    assert costs == [2 * 4 * 8 * 16, 2 * 8 * 16, 4 * 4 * 16]
    assert (features["paths"], features["layers"], features["sums"]) == (1, 0, 1)


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match=r"'def f\(\): pass' is not canonical ONNX text"):
        graph_features("def f(): pass")


@pytest.mark.parametrize("name", search_spaces.names())
def test_functions_and_inlined_operators_have_the_same_features(name):
    space, rng = search_spaces.get(name), np.random.default_rng(11)
    for _ in range(2):
        model = space.to_onnx(space.sample(rng))
        with_functions, inlined = (
            graph_features(from_onnx(model, outlined=o), max_chain_length=4) for o in (True, False)
        )
        assert with_functions == pytest.approx(inlined)


class SmallSpace(PlainSpace):
    name, size = "small", None
    genes = (1, 3, 1, 1, 1, 2)


def test_a_space_of_unknown_size_that_has_few_networks_gives_them_all():
    space = search_spaces.register(SmallSpace())
    drawn = synthetic.distinct_architectures(space, 1000)
    assert len(drawn) == 6 == len({*drawn})
    assert synthetic.random_graph_features(space, 1000).keys() == drawn.keys()
    assert [row.arch_str for row in random_table("small", 1000).rows] == [*drawn]
    assert len(synthetic.distinct_architectures(space, 4)) == 4


def test_random_networks_are_the_same_from_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NAS_RLM_CACHE", str(tmp_path))
    monkeypatch.setattr(synthetic, "MIN_CACHED_NETWORKS", 3)
    space = search_spaces.get("nasbench201")
    by_layers = [synthetic.random_graph_features(space, 3, with_layers=layers) for layers in (True, False)]
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(synthetic, "graph_features_of_texts", lambda *_: pytest.fail("computed again"))
    again = [synthetic.random_graph_features(space, 3, with_layers=layers) for layers in (True, False)]
    assert again == by_layers
    assert by_layers[0].keys() == by_layers[1].keys() == synthetic.distinct_architectures(space, 3).keys()
    assert all(len(by_layers[0][name]) > len(by_layers[1][name]) for name in by_layers[0])
