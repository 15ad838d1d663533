import json
import warnings
from dataclasses import replace

import numpy as np
import onnx
import onnx.inliner
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

import search_spaces
from nas_rlm import RLM, check_space, from_torch
from nas_rlm.devices.example_inputs import example_inputs
from nas_rlm.devices.measurements import SpaceNetwork
from nas_rlm.devices.runtimes import set_batch_size
from nas_rlm.graph.costs import compute_costs
from nas_rlm.search.table_space import TableSpace
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.parser import parse_network
from search_spaces.gpt import _GPT, HEAD_WIDTH, MLP_RATIOS, GPTLarge, GPTMedium, GPTSmall, LanguageModel
from search_spaces.graph import Graph

SPACES = {"S": GPTSmall(), "M": GPTMedium(), "L": GPTLarge()}
SMALL = GPTSmall()


class TinyGPT(_GPT):
    """Language models that run in milliseconds."""

    name = "tiny_gpt"
    batch_size = 2
    widths, depths, head_counts = (24, 32), (1, 2, 3), (2, 3)
    vocabulary = 37
    input_shape = (16,)


TINY = TinyGPT()
MODELS = [
    LanguageModel(32, (2, 3), (2, 3), False),
    LanguageModel(24, (3, 2, 3), (4, 2, 4), True),
    LanguageModel(32, (3,), (3,), True),
]


def setting(space=SMALL, **values):
    content = json.loads(str(space.decode(np.zeros(len(space.genes)))))
    return space.parse(json.dumps({**content, **values}))


class Block(nn.Module):
    """The same block in PyTorch."""

    def __init__(self, width, heads, ratio, bias):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        inner, hidden = heads * HEAD_WIDTH, ratio * width
        self.query, self.key, self.value = (nn.Linear(width, inner, bias) for _ in range(3))
        self.output = nn.Linear(inner, width, bias)
        self.gate, self.up = nn.Linear(width, hidden, bias), nn.Linear(width, hidden, bias)
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x, cosines, sines):
        def split(y):
            return y.view(*x.shape[:2], self.heads, HEAD_WIDTH).transpose(1, 2)

        def rotate(y):
            turned = torch.cat([-y[..., HEAD_WIDTH // 2 :], y[..., : HEAD_WIDTH // 2]], -1)
            return y * cosines + turned * sines

        y = self.first(x)
        queries, keys, values = (split(layer(y)) for layer in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(rotate(queries), rotate(keys), values, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(*x.shape[:2], self.heads * HEAD_WIDTH))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Module(nn.Module):
    """The same network in PyTorch, with its layers in the order in which the space writes them."""

    def __init__(self, architecture, vocabulary, num_tokens):
        super().__init__()
        width = architecture.embed_dim
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            Block(width, h, r, architecture.bias)
            for h, r in zip(architecture.heads, architecture.mlp_ratios, strict=True)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        pairs = HEAD_WIDTH // 2
        frequencies = 10_000.0 ** (-torch.arange(pairs) / pairs)
        angles = torch.outer(torch.arange(num_tokens), frequencies).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return self.head(self.norm(x))


def with_random_weights(model):
    """Random values for all weights, also those of norms and biases."""
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        shape = tuple(tensor.dims)
        values = (rng.standard_normal(shape) / np.sqrt(shape[0] if len(shape) > 1 else 4)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def run(model, ids):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": ids})[0]


def random_ids(batch=TINY.batch_size):
    return np.random.default_rng(1).integers(0, TINY.vocabulary, (batch, *TINY.input_shape))


@pytest.mark.parametrize("architecture", MODELS, ids=str)
def test_networks_compute_the_same_as_pytorch(architecture):
    model = with_random_weights(TINY.to_onnx(architecture, weights=True))
    module = Module(architecture, TINY.vocabulary, *TINY.input_shape)
    weights = sorted(model.graph.initializer, key=lambda t: int(t.name.partition("_use")[2]))
    with torch.no_grad():
        for parameter, tensor in zip(_in_order(module), weights, strict=True):
            value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            is_matrix = value.ndim == 2 and parameter is not module.embedding.weight
            parameter.copy_(value.T if is_matrix else value)
        expected = module(torch.from_numpy(random_ids())).numpy()
    found = run(model, random_ids())
    assert found.shape == (2, *TINY.input_shape, TINY.vocabulary)
    assert np.abs(expected).max() > 0.1
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def _in_order(module):
    yield module.embedding.weight
    for b in module.blocks:
        layers = (b.first, b.query, b.key, b.value, b.output, b.second, b.gate, b.up, b.down)
        for layer in layers:
            yield from layer.parameters()
    yield from module.norm.parameters()
    yield module.head.weight


@pytest.mark.parametrize("architecture", MODELS, ids=str)
def test_texts_are_those_of_pytorch(architecture):
    module = Module(architecture, TINY.vocabulary, *TINY.input_shape)
    assert from_torch(module, torch.from_numpy(random_ids())) == from_architecture(TINY, architecture)
    assert sum(p.numel() for p in module.parameters()) == TINY.params(architecture)


@pytest.mark.parametrize("position", [1, 7, 15])
def test_later_tokens_do_not_change_earlier_logits(position):
    model = with_random_weights(TINY.to_onnx(MODELS[1], weights=True))
    ids = random_ids()
    changed = ids.copy()
    changed[0, position] = (ids[0, position] + 1) % TINY.vocabulary
    before, after = run(model, ids), run(model, changed)
    assert np.array_equal(before[:, :position], after[:, :position])
    assert all(np.abs(before[0, t] - after[0, t]).max() > 1e-3 for t in range(position, 16))
    np.testing.assert_array_equal(before[1], after[1])


def test_positions_matter():
    model = with_random_weights(TINY.to_onnx(MODELS[1], weights=True))
    logits = run(model, np.array([[3, 5, 3, 5] * 4] * 2))
    assert np.abs(logits[0, 2] - logits[0, 0]).max() > 1e-3
    assert np.abs(logits[0, 14] - logits[0, 2]).max() > 1e-3


@pytest.mark.parametrize("batch", [1, 3])
def test_networks_run_with_any_batch_size(batch):
    ids = random_ids(4)
    model = with_random_weights(TINY.to_onnx(MODELS[0], weights=True, batch=batch))
    default = with_random_weights(TINY.to_onnx(MODELS[0], weights=True))
    found = run(model, ids[:batch])
    assert found.shape == (batch, *TINY.input_shape, TINY.vocabulary)
    np.testing.assert_allclose(found[:1], run(default, ids[:2])[:1], atol=1e-4)
    np.testing.assert_allclose(found[-1:], run(default, ids[batch - 1 : batch + 1])[:1], atol=1e-4)


def test_a_network_of_one_sequence_has_the_costs_of_its_share():
    for architecture in MODELS:
        single = from_onnx(TINY.to_onnx(architecture, batch=1))
        costs, whole = (
            compute_costs(parse_network(text)).totals()
            for text in (single, from_architecture(TINY, architecture))
        )
        assert 2 * costs["flops"] == whole["flops"]
        assert costs["params"] == whole["params"]
        assert costs["activations"] < whole["activations"] <= 2 * costs["activations"]


def test_networks_are_profiled_with_all_sequences():
    network = SpaceNetwork(TINY, MODELS[0])
    assert network.row.targets["flops"] == TINY.flops(MODELS[0])
    for batch_size, expected in ((1, 2), (2, 2), (3, 3)):
        model = onnx.load_model_from_string(network.onnx_bytes(batch_size))
        flat = set_batch_size(onnx.inliner.inline_local_functions(model), batch_size)
        ids = example_inputs(flat)["x"]
        assert (ids.shape, ids.dtype) == ((expected, 16), np.int64)
        assert 0 <= ids.min() < ids.max() < TINY.vocabulary
        assert run(flat, ids).shape == (expected, 16, TINY.vocabulary)


def test_the_space_of_a_table_has_the_batch_size():
    table_space = TableSpace(TINY, [str(MODELS[0])])
    assert from_architecture(table_space, MODELS[0]) == from_architecture(TINY, MODELS[0])
    assert table_space.flops(MODELS[0]) == TINY.flops(MODELS[0])


def test_networks_are_predicted(tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checkpoint does not know the space
        found = rlm.predict(TINY, MODELS, ["accuracy", "latency/pixel3"])
        by_file = rlm.predict_onnx([TINY.to_onnx(a) for a in MODELS], ["accuracy", "latency/pixel3"])
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, by_file)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_published_networks_have_valid_models(space):
    model = space.to_onnx(space.sample(np.random.default_rng(0)))
    onnx.checker.check_model(model, full_check=True)
    ids, logits = model.graph.input[0], model.graph.output[0]
    assert ids.type.tensor_type.elem_type == onnx.TensorProto.INT64
    batch = {"gpt_s": 8, "gpt_m": 4, "gpt_l": 1}[space.name]
    assert [d.dim_value for d in ids.type.tensor_type.shape.dim] == [batch, 1024]
    assert [d.dim_value for d in logits.type.tensor_type.shape.dim] == [batch, 1024, 50254]
    assert {len(i.type.tensor_type.shape.dim) for i in model.graph.input[1:]} == {1, 2}
    assert max(t.ByteSize() for t in model.graph.node) < 1000


def test_networks_that_do_not_fit_into_a_file_are_refused():
    largest = setting(SPACES["L"], embed_dim=1280, n_layer=36, n_head=[20] * 36, mlp_ratio=[4] * 36)
    with pytest.raises(ValueError, match=r"has 1,0\d\d,\d{3},\d{3} weights: expected at most 536,\d{3},\d"):
        SPACES["L"].to_onnx(largest, weights=True)


@pytest.mark.parametrize("architecture", MODELS, ids=str)
def test_checked_and_unchecked_graphs_are_the_same(architecture):
    checked, plain = (Graph((2, 16), checked=is_checked, input_type="int64") for is_checked in (True, False))
    outputs = [TINY.write(graph, architecture) for graph in (checked, plain)]
    assert (checked.macs, checked.params) == (plain.macs, plain.params)
    models = [graph.build(out) for graph, out in zip((checked, plain), outputs, strict=True)]
    assert from_onnx(models[0]) == from_onnx(models[1])


def test_the_contract_of_spaces():
    assert str(check_space(TINY, count=10)).startswith("tiny_gpt: 10 architectures without problems")


def linear(inputs, outputs, bias):
    return inputs * outputs + bias * outputs


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("scale", "width", "heads"),
    [("S", 192, [4] * 4 + [8] * 3 + [12] * 3), ("M", 1024, [16] * 24), ("L", 640, [8] * 34 + [20])],
)
def test_golden_costs(scale, width, heads, bias):
    space, ratios = SPACES[scale], [2 + i % 3 for i in range(len(heads))]
    architecture = setting(
        space, embed_dim=width, n_layer=len(heads), n_head=heads, mlp_ratio=ratios, bias=bias
    )
    params, macs, products = 2 * 50254 * width + 2 * width, 50254 * width, 0
    for h, r in zip(heads, ratios, strict=True):
        params += 3 * linear(width, 64 * h, bias) + linear(64 * h, width, bias)
        params += 2 * linear(width, r * width, bias) + linear(r * width, width, bias) + 4 * width
        macs += 4 * width * 64 * h + 3 * r * width**2
        products += 2 * h * 64 * 1024
    tokens = {"S": 8, "M": 4, "L": 1}[scale] * 1024
    assert space.params(architecture) == params
    assert space.attention_flops(architecture) == tokens * products
    assert space.flops(architecture) == tokens * (macs + products)
    assert space.published_flops(architecture) == tokens * macs
    costs = compute_costs(parse_network(from_architecture(space, architecture))).totals()
    assert (costs["params"], costs["flops"]) == (params, tokens * (macs + products))


def test_golden_numbers_of_a_published_network():
    text = (
        '{"embed_dim": 384, "n_layer": 10, "n_head": [12, 4, 12, 12, 4, 4, 4, 8, 12, 4],'
        ' "mlp_ratio": [2, 3, 4, 2, 3, 3, 2, 3, 2, 4], "bias": false}'
    )
    architecture = SMALL.parse(text)
    assert str(architecture) == text
    assert SMALL.params(architecture) == 58_468_608
    assert SMALL.published_flops(architecture) == 320_757_301_248
    assert SMALL.flops(architecture) == 320_757_301_248 + 8 * 2 * 1024**2 * 64 * 76


def test_counts_equal_the_table(shared_data):
    from nas_rlm.data import read

    with pytest.warns(UserWarning, match="13 entries are not valid"):
        table = read(shared_data / "architectures" / "hwgpt.parquet")
    assert {row.space for row in table.rows} == {"gpt_s", "gpt_m", "gpt_l"}
    rng = np.random.default_rng(0)
    for row in (table.rows[i] for i in rng.permutation(len(table))[:150]):
        space = search_spaces.get(row.space)
        architecture = space.parse(row.arch_str)
        assert str(architecture) == row.arch_str
        assert space.params(architecture) == row.targets["params"]
        published = space.published_flops(architecture)
        assert float(f"{published:.12g}") == row.targets["flops"]  # the table has 12 digits


def test_sizes_are_those_of_the_sets():
    assert SMALL.size == 3 * 2 * (9**10 + 9**11 + 9**12)
    assert len({str(TINY.decode(g)) for g in np.ndindex(*TINY.genes)}) == TINY.size == 2 * 2 * (6 + 36 + 216)


@given(st.data())
def test_any_genome_has_an_architecture_and_genes_beyond_the_depth_do_not_matter(data):
    space = SPACES[data.draw(st.sampled_from("SML"))]
    genome = np.array([data.draw(st.integers(0, n - 1)) for n in space.genes])
    architecture = space.decode(genome)
    canonical = space.encode(architecture)
    assert space.decode(canonical) == architecture
    assert np.array_equal(space.encode(space.decode(canonical)), canonical)
    depth, max_depth = len(architecture.heads), space.depths[-1]
    used = np.r_[np.arange(3), 3 : 3 + depth, 3 + max_depth : 3 + max_depth + depth]
    assert np.array_equal(canonical[used], genome[used])
    assert not np.delete(canonical, used).any()


@given(st.data())
def test_values_beyond_the_depth_do_not_matter(data):
    space = SPACES[data.draw(st.sampled_from("SML"))]
    architecture = space.sample(np.random.default_rng(data.draw(st.integers(0, 999))))
    content = json.loads(str(architecture))
    for key, choices in (("n_head", space.head_counts), ("mlp_ratio", MLP_RATIOS)):
        number = data.draw(st.integers(0, space.depths[-1] - content["n_layer"]))
        content[key] += [data.draw(st.sampled_from(choices)) for _ in range(number)]
    assert space.parse(json.dumps(content)) == architecture


@given(st.integers(0, 10**6))
def test_texts_are_read_back_with_exact_costs(seed):
    architecture = TINY.sample(np.random.default_rng(seed))
    text = from_architecture(TINY, architecture)
    assert from_onnx(onnx.parser.parse_model(text)) == text
    costs = compute_costs(parse_network(text)).totals()
    assert (costs["params"], costs["flops"]) == (TINY.params(architecture), TINY.flops(architecture))


def test_each_choice_changes_the_text():
    base = LanguageModel(192, (8,) * 10, (3,) * 10, False)
    others = [
        replace(base, embed_dim=384),
        replace(base, heads=(8,) * 9 + (4,)),
        replace(base, heads=(4,) + (8,) * 9),
        replace(base, mlp_ratios=(3,) * 9 + (4,)),
        replace(base, bias=True),
        LanguageModel(192, (8,) * 11, (3,) * 11, False),
    ]
    assert len({from_architecture(SMALL, a) for a in (base, *others)}) == 7


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"embed_dim": 256}, "embed_dim of .* is 256, expected one of 192, 384, 768"),
        ({"embed_dim": True}, "embed_dim of .* is True"),
        ({"embed_dim": [192]}, r"embed_dim of .* is \[192\]"),
        ({"n_layer": 9}, "n_layer of .* is 9, expected one of 10, 11, 12"),
        ({"n_layer": None}, "n_layer of .* is None"),
        ({"n_head": [4] * 9}, "n_head of .* is 9 values, expected a list of 10 to 12 values, the first 10"),
        ({"n_head": [4] * 13}, "n_head of .* is 13 values"),
        ({"n_head": 4}, "n_head of .* is 4, expected a list"),
        ({"n_head": [4] * 9 + [16]}, r"n_head\[9\] of .* is 16, expected one of 4, 8, 12"),
        ({"mlp_ratio": [2] * 9 + [2.5]}, r"mlp_ratio\[9\] of .* is 2.5, expected one of 2, 3, 4"),
        ({"mlp_ratio": [True] * 10}, r"mlp_ratio\[0\] of .* is True"),
        ({"mlp_ratio": "2" * 10}, "mlp_ratio of .* is '2222222222', expected a list"),
        ({"bias": 1}, "bias of .* is 1, expected true or false"),
        ({"bias": "False"}, "bias of .* is 'False'"),
        ({"depth": 3}, "the unknown key 'depth', not one of embed_dim"),
    ],
)
def test_malformed_text_names_the_bad_part(values, part):
    with pytest.raises(ValueError, match=part):
        setting(**values)


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"embed_dim": 192}', "gpt-s-12-768"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="is not JSON with embed_dim, n_layer, n_head, mlp_ratio, bias such"):
        SMALL.parse(text)


def test_architectures_of_other_scales_are_refused():
    for space in SPACES.values():
        for other in SPACES.values():
            if other is not space:
                with pytest.raises(ValueError, match="expected one of"):
                    space.validate(other.sample(np.random.default_rng(0)))
