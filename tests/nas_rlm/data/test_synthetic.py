import math

import numpy as np
import pytest
from onnx.numpy_helper import from_array
from onnx.parser import parse_model

import search_spaces
from nas_rlm.data.synthetic import metrics, table
from nas_rlm.graph.costs import KINDS
from nas_rlm.graph.paths import LAYERS
from nas_rlm.text import from_onnx
from tests.nas_rlm.data.counts import SIZES, counted


def test_a_table_leaves_out_what_never_varies():
    found = table("nats_size", 50)
    assert len(found) == len({row.arch_str for row in found.rows}) == 50
    names = {name for row in found.rows for name in row.targets}
    assert {"flops", "params", "convs/macs", "convs/roots"} <= names
    assert not names & {"depthwise/macs", "paths", "convs", "convs/sides"}
    assert all(row.targets["flops"] == SIZES.flops(SIZES.parse(row.arch_str)) for row in found.rows)
    assert table("nats_size", 50).rows == found.rows
    assert table("nats_size", 50, seed=1).rows != found.rows
    with pytest.raises(ValueError, match="20,000 networks of nats_size: expected at most half of 32,768"):
        table("nats_size", 20000)


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_can_be_counted(name):
    space = search_spaces.get(name)
    found = counted(space, space.sample(np.random.default_rng(0)))
    assert all(math.isfinite(v) and v >= 0 for v in found.values())
    assert sum(found[k] for k in KINDS) == found["layers"]
    for k in LAYERS:
        assert found[f"{k}/least"] <= found[f"{k}/mean"] + 1e-9 <= found[f"{k}/most"] + 2e-9


def test_any_network_can_be_counted():
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
    found = metrics(from_onnx(model), chains=2)
    assert (found["flops"], found["params"], found["activations"]) == (2 * 4 * 8 * 16, 2 * 8 * 16, 4 * 4 * 16)
    assert (found["paths"], found["layers"], found["sums"]) == (1, 0, 1)


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match=r"'def f\(\): pass' is not the text of a network"):
        metrics("def f(): pass")


@pytest.mark.parametrize("name", search_spaces.names())
def test_functions_and_the_operators_in_their_place_count_the_same(name):
    space, rng = search_spaces.get(name), np.random.default_rng(11)
    for _ in range(2):
        model = space.to_onnx(space.sample(rng))
        whole, flat = (metrics(from_onnx(model, outlined=o), chains=4) for o in (True, False))
        assert whole == pytest.approx(flat)
