import gc

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import search_spaces
from nas_rlm.graph import cache
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text import from_architecture, from_architectures, from_onnx
from nas_rlm.text.architecture_graph import architecture_graph
from nas_rlm.text.parser import parse_network
from search_spaces.graph import Constant
from tests.nas_rlm.onnx_models import RandomBlocks, Recipe
from tests.search_spaces.plain_space import PlainSpace

NETWORKS = {
    "nasbench201": 25,
    "nasbench101": 25,
    "nats_size": 10,
    "fbnet": 6,
    "hiaml": 6,
    "snas": 6,
    "two_path": 6,
}


@pytest.mark.parametrize("name", search_spaces.names())
def test_the_direct_path_equals_the_text_of_the_flat_network(name):
    space = search_spaces.get(name)
    rng = np.random.default_rng(5)
    for _ in range(NETWORKS.get(name, 2)):
        architecture = space.sample(rng)
        flat = onnx.inliner.inline_local_functions(space.to_onnx(architecture))
        assert from_architecture(space, architecture) == from_onnx(flat), str(architecture)


@pytest.mark.parametrize("name", ["nasbench201", "fbnet", "nds_resnet"])
def test_initialised_weights_do_not_change_the_text(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(6))
    assert from_onnx(space.to_onnx(architecture, weights=True)) == from_architecture(space, architecture)


@given(st.integers(0, 10**6))
def test_any_blocks_within_blocks_give_the_text_of_the_flat_network(seed):
    space, architecture = RandomBlocks(), Recipe(seed)
    flat = onnx.inliner.inline_local_functions(space.to_onnx(architecture))
    assert from_architecture(space, architecture) == from_onnx(flat)


def test_text_does_not_depend_on_earlier_texts():
    space, rng = search_spaces.get("inception"), np.random.default_rng(7)
    architectures = [space.sample(rng) for _ in range(6)]
    texts = from_architectures(space, architectures)
    cache.clear()
    assert [from_architecture(space, a) for a in reversed(architectures)] == texts[::-1]


def test_blocks_with_unhashable_arguments_are_written_each_time():
    class Listed(RandomBlocks):
        def write(self, graph, architecture):
            def body(g, x, kernels):
                for k in kernels:
                    x = g.op("Relu", g.conv(x, 8, k))
                return x

            return graph.classifier(graph.block(body, graph.input, [3, architecture.seed]), 10)

    texts = {from_architecture(Listed(), Recipe(k)) for k in (1, 3, 5)}
    assert len(texts) == 3
    assert from_architecture(Listed(), Recipe(3)) == from_onnx(Listed().to_onnx(Recipe(3)))


def test_many_texts_leave_the_garbage_collector_enabled():
    space = search_spaces.get("nasbench201")
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no architecture"):
        from_architectures(space, ["no architecture"])
    assert gc.isenabled()


def test_texts_create_no_reference_cycles():
    space, rng = search_spaces.get("nasbench101"), np.random.default_rng(9)
    architectures = [space.sample(rng) for _ in range(20)]
    from_architectures(space, architectures[:10])
    gc.disable()
    gc.freeze()  # earlier objects, which are many, are not collected
    try:
        from_architectures(space, architectures[10:])
        assert gc.collect() < 50
    finally:
        gc.unfreeze()
        gc.enable()


def own(space):
    """The space as a user's own one, whose networks are checked."""
    return type(f"Own{type(space).__name__}", (type(space),), {"__module__": __name__})()


@pytest.mark.parametrize("name", search_spaces.names())
def test_texts_do_not_depend_on_checks(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(6))
    assert not own(space).is_built_in
    assert from_architecture(own(space), architecture) == from_architecture(space, architecture)


class Random(PlainSpace):
    """Random networks, by their seed, of operators that no rewrite rule changes, or also of others."""

    name, size, genes, is_plain = "random", 10**6, (10**6,), True

    def decode(self, genome):
        return int(genome[0])

    def write(self, graph, architecture):
        rng = np.random.default_rng(architecture)
        values = [graph.conv(graph.input, 8, 3, stride=2)]
        shared = graph.weight(8, 8, 1, 1)
        for _ in range(12):
            x, y = (values[int(k)] for k in rng.integers(len(values), size=2))
            layers = [
                lambda g, x: g.op("Relu", g.batch_norm(g.conv(x, 8, 3, bias=True))),
                lambda g, x: g.op("Mul", x, g.op("HardSigmoid", g.conv(g.op("GlobalAveragePool", x), 8, 1))),
                lambda g, x: g.op("Clip", g.pool("MaxPool", x, 3, padded=True), Constant(0.0), Constant(6.0)),
                lambda g, x: g.op("HardSwish", g.conv(g.op("Concat", x, x, axis=1), 8, 1)),
                lambda g, x: g.block(lambda g, z: g.op("Add", z, g.op("Sigmoid", z)), g.op("Relu", x)),
            ]
            others = [
                lambda g, x: g.op("Mul", x, g.op("HardSigmoid", x, alpha=1 / 6)),
                lambda g, x: g.op("Conv", x, shared),
                lambda g, x: g.op("Add", g.op("Mul", x, Constant(1.0)), Constant(0.0)),
            ]
            options = layers if self.is_plain else layers + others
            layer = options[rng.integers(len(options))]
            values.append(graph.block(layer, x) if rng.integers(2) else layer(graph, x))
            if x is not y:
                values.append(graph.op("Add", x, y))
        return graph.classifier(values[-1], 10)


@pytest.mark.parametrize("is_plain", [True, False])
def test_texts_of_own_spaces_equal_those_of_their_models(is_plain):
    space = Random()
    space.is_plain = is_plain
    for seed in range(25):
        text = from_architecture(space, seed)
        assert text == from_onnx(space.to_onnx(seed)) == from_onnx(space.to_onnx(seed, weights=True))
        costs = compute_costs(parse_network(text)).totals()
        assert (space.flops(seed), space.params(seed)) == (costs["flops"], costs["params"])
        assert (architecture_graph(space, seed) is not None) >= is_plain
