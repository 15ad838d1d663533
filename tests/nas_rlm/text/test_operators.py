from collections import Counter

import numpy as np
import pytest

import search_spaces
from nas_rlm.text import from_architecture
from nas_rlm.text.operators import operators
from search_spaces.graph import Graph


@pytest.mark.parametrize("name", search_spaces.names())
def test_operators_are_those_that_the_builder_wrote(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(1))
    graph = Graph((1, *space.shape(architecture)))
    space.write(graph, architecture)
    written = Counter(
        (o.kind, o.output.channels * max(1, o.output.side * o.output.width)) for o in graph.ops()
    )
    flat = operators(from_architecture(space, architecture))
    found = Counter((o.kind, int(np.prod(o.shape))) for o in flat.operators)
    assert len(flat.inputs) == len(flat.outputs) == 1
    assert found <= written if name.startswith("nds") else found == written  # what nothing reads is left out


def test_operands_are_values_weights_and_zeros():
    space = search_spaces.get("nasbench201")
    cell = space.parse("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    flat = operators(from_architecture(space, cell))
    first, second = flat.operators[:2]
    assert (first.kind, first.values, first.weights, first.shape) == (
        "Conv",
        flat.inputs,
        ((16, 3, 3, 3),),
        (1, 16, 32, 32),
    )
    assert (second.values, second.weights) == (first.outputs, ((16,),) * 4)
    zeros = [o for o in flat.operators if o.is_zero]
    assert {o.kind for o in zeros} == {"Mul"}
    assert all(len(o.values) == 1 and not o.weights for o in zeros)
    assert len(zeros) == 15 * 5


def test_groups_of_convolutions():
    space = search_spaces.get("fbnet")
    flat = operators(from_architecture(space, space.sample(np.random.default_rng(0))))
    depthwise = [o for o in flat.operators if o.kind == "Conv" and o.group > 1]
    assert depthwise
    assert all(o.group * o.weights[0][1] == o.shape[1] or o.weights[0][1] > 1 for o in depthwise)


def test_a_text_that_is_none():
    with pytest.raises(ValueError, match="'int main' is not the text of a network"):
        operators("int main")
