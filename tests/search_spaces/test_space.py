"""What holds for every space."""

import itertools

import numpy as np
import onnx
import onnx.inliner
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, shape_inference
from scipy import stats

import search_spaces
from tests.search_spaces.plain_space import PlainSpace

NAMES = search_spaces.names()
# The language models have gigabytes of weights: test_gpt.py runs small ones.
IMAGE_NAMES = [name for name in NAMES if search_spaces.get(name).input_type == "float"]
SEEDS = st.integers(0, 10**6)
CLASSES = {"fbnet": 100, "ofa_mbv3": 1000, "ofa_proxyless": 1000, "ofa_resnet50": 1000}
TABLES = {
    **{name: name for name in ("fbnet", "nasbench101", "nasbench201", "nats_size", "ofa_mbv3")},
    "nds_darts": "darts",
}
EXACT = ("nasbench201", "ofa_mbv3")  # tables whose flops are multiply-accumulates as we count them


def counted(model: onnx.ModelProto) -> tuple[int, int]:
    """Parameters and multiply-accumulates, from the flat graph and its inferred shapes."""
    flat = shape_inference.infer_shapes(onnx.inliner.inline_local_functions(model), strict_mode=True)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in [*flat.graph.value_info, *flat.graph.input, *flat.graph.output]
    }
    weights = {t.name: numpy_helper.to_array(t) for t in flat.graph.initializer}
    statistics = {i for n in flat.graph.node if n.op_type == "BatchNormalization" for i in n.input[3:]}
    params = sum(w.size for name, w in weights.items() if name not in statistics)
    macs = 0
    for n in flat.graph.node:
        if n.op_type == "Conv":
            macs += weights[n.input[1]].size * int(np.prod(shapes[n.output[0]][2:]))
        elif n.op_type == "Gemm":
            macs += weights[n.input[1]].size
    return params, macs


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_notation_and_genome_round_trip(name, seed):
    space = search_spaces.get(name)
    a = space.sample(np.random.default_rng(seed))
    assert space.parse(str(a)) == a
    assert space.decode(space.encode(a)) == a
    space.validate(a)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_variation_stays_in_the_space(name, seed):
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    mutant = space.mutate(a, rng)
    assert mutant != a
    space.validate(mutant)
    space.validate(space.crossover(a, b, rng))


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_networks_are_valid_and_counted_right(name):
    space, rng = search_spaces.get(name), np.random.default_rng(1)
    for _ in range(2):
        a = space.sample(rng)
        model = space.to_onnx(a, weights=True)
        onnx.checker.check_model(model)
        assert counted(model) == (space.params(a), space.flops(a))


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_networks_run(name):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    space, rng = search_spaces.get(name), np.random.default_rng(2)
    for batch in (1, 2):
        a = space.sample(rng)
        model = space.to_onnx(a, weights=True, batch=batch)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        image = rng.standard_normal((batch, *space.shape(a))).astype(np.float32)
        (out,) = session.run(None, {"x": image})
        assert out.shape == (batch, CLASSES.get(name, 10))
        assert np.isfinite(out).all()


@pytest.mark.parametrize("name", TABLES)
def test_counts_equal_the_table(name, shared_data):
    from nas_rlm.data import read

    space = search_spaces.get(name)
    table = read(shared_data / "architectures" / f"{TABLES[name]}.parquet")
    rows = [r for r in table.rows if "params" in r.targets]
    found = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:200]]
    counts = [space.parse(r.arch_str) for r in found]
    assert [space.params(a) for a in counts] == [r.targets["params"] for r in found]
    if "flops" in found[0].targets:
        macs, flops = [space.flops(a) for a in counts], [r.targets["flops"] for r in found]
        assert stats.spearmanr(macs, flops).statistic > 0.999
        assert macs == flops or name not in EXACT


@pytest.mark.parametrize("name", NAMES)
def test_a_genome_out_of_range(name):
    space = search_spaces.get(name)
    genome = np.zeros(len(space.genes), dtype=int)
    genome[1] = space.genes[1]
    with pytest.raises(ValueError, match=f"gene 1 of {name} is {space.genes[1]}"):
        space.decode(genome)


def test_an_unknown_space():
    with pytest.raises(ValueError, match="did you mean 'nasbench201'"):
        search_spaces.get("nasbench202")


class OneOfMany(PlainSpace):
    """Only genomes of `valid` have architectures."""

    name, size = "one_of_many", None
    valid: tuple[tuple[int, ...], ...] = ()

    def decode(self, genome):
        if tuple(genome) not in self.valid:
            raise ValueError("too wide")
        return super().decode(genome)


def test_a_space_without_architectures_says_what_decode_raised(monkeypatch):
    monkeypatch.setattr("search_spaces.space.MAX_GENOMES", 20)
    with pytest.raises(
        ValueError, match=r"none of 20 random genomes of one_of_many .* raised for \[.*too wide"
    ):
        OneOfMany().sample(np.random.default_rng(0))


class WithInvalid(PlainSpace):
    """Networks of which those with a convolution of one of `invalid` kernels cannot be built."""

    name, invalid, error = "with_invalid", (5,), RuntimeError

    def write(self, graph, architecture):
        if {kernel for kernel, _ in architecture.stages} & {*self.invalid}:
            raise self.error("no such kernel")
        return super().write(graph, architecture)


def test_architectures_without_a_valid_network_are_not_drawn():
    space, rng = WithInvalid(), np.random.default_rng(0)
    with pytest.warns(
        UserWarning, match="of with_invalid is not valid: RuntimeError: no such kernel"
    ) as record:
        drawn = [space.sample(rng) for _ in range(30)]
        drawn += [space.mutate(a, rng) for a in drawn]
        drawn += [space.crossover(a, b, rng) for a, b in itertools.pairwise(drawn)]
    assert len(record) == 1
    assert not [a for a in drawn if "5x" in str(a)]
    assert "no such kernel" in space.network_error(space.parse("1x16 5x16 1x16"))
    assert space.network_error(space.parse("1x16 3x16 1x16")) == ""


class Counting(PlainSpace):
    """Counts how many networks are written."""

    name, num_written, num_classes = "counting", 0, 10

    def write(self, graph, architecture):
        type(self).num_written += 1
        x = super().write(graph, architecture)
        return graph.op("Relu", graph.linear(x, self.num_classes))


def test_a_network_of_an_own_space_is_built_once_for_its_check_and_its_costs():
    space = Counting()
    architecture = space.sample(np.random.default_rng(0))
    params = space.params(architecture)
    assert space.network_error(architecture) == ""
    assert space.flops(architecture) > 0
    assert Counting.num_written == 1
    space.num_classes = 20
    assert space.params(architecture) > params


@pytest.mark.filterwarnings("ignore:the network of")
def test_a_space_without_valid_networks_says_what_is_wrong_with_the_last_one():
    space = WithInvalid()
    space.invalid = (1, 3, 5)
    space.error = SystemExit
    with pytest.raises(ValueError, match=r"none of 200 .* valid network; .*SystemExit: no such kernel"):
        space.sample(np.random.default_rng(0))


def test_a_mutation_finds_architectures_that_differ_in_more_genes_or_none():
    space, rng = OneOfMany(), np.random.default_rng(0)
    space.valid = (0, 0, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0)
    first, second = map(space.decode, space.valid)
    assert space.mutate(first, rng) == second
    space.valid = space.valid[:1]
    assert space.mutate(first, rng) == first


def test_a_space_of_one_architecture_mutates_to_it():
    class One(PlainSpace):
        genes = (1,) * 6

    only = One().sample(np.random.default_rng(0))
    assert One().mutate(only, np.random.default_rng(0)) == only
