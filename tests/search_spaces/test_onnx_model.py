import numpy as np
import pytest
from onnx import numpy_helper

from search_spaces.graph import Graph
from search_spaces.nodes import Weight, ops_in
from search_spaces.onnx_model import share_weights


def initial_values(seed):
    g = Graph((1, 64, 8, 8), weights=True, seed=seed)
    model = g.build(g.batch_norm(g.conv(g.input, 256, 3)))
    return [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]


def test_initial_values_follow_the_seed_and_he():
    kernel, scale, bias, mean, variance = initial_values(0)
    assert kernel.std() == pytest.approx(np.sqrt(2 / (64 * 9)), rel=0.02)
    assert (scale == 1).all() and (bias == 0).all() and (mean == 0).all() and (variance == 1).all()
    assert (initial_values(0)[0] == kernel).all()
    assert (initial_values(1)[0] != kernel).any()


def test_weights_that_no_file_holds_are_refused_before_they_are_drawn():
    g = Graph((1, 30_000), weights=True)
    with pytest.raises(ValueError, match=r"900,030,000 weights: expected at most 536,608,768"):
        g.build(g.linear(g.input, 30_000))


def test_weights_of_a_shape_are_shared_except_those_that_several_operators_read():
    g = Graph((1, 8, 8, 8))
    twice = g.weight(8, 8, 1, 1)
    x = g.op("Conv", g.op("Conv", g.conv(g.input, 8, 1), twice), twice)
    g.block(lambda g, y: g.conv(y, 8, 1), x)  # nothing reads it
    share_weights(g.body, x)
    plain, tied = Weight((8, 8, 1, 1)), Weight((8, 8, 1, 1), tie=1)
    assert [op.leaves for op in ops_in(g.body)] == [[plain], [tied], [tied], [plain]]
