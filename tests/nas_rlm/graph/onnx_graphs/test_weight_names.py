"""Names of weights say what they share, and can be read again."""

import pytest

from nas_rlm.graph.onnx_graphs.weight_names import mark_of_name, weight_name


@pytest.mark.parametrize("tie", [0, 3])
@pytest.mark.parametrize("learnt", [0, 4096])
def test_the_name_of_a_weight_tells_what_it_shares(tie, learnt):
    for kind, shape in (("float", (8, 3, 3, 3)), ("int8", (5,)), ("float16", ())):
        assert mark_of_name(weight_name(kind, shape, tie, learnt)) == (tie, learnt)
