import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm.graph.executed_layers import ALL, Layer, layers_of
from nas_rlm.surrogates.latency import layer_network
from nas_rlm.surrogates.latency.features import CLASSES
from nas_rlm.surrogates.latency.layer_network import (
    CLIPPED_DESCRIPTION,
    MAX_LOG_FACTOR,
    VECTOR_SIZES,
    WIDTH,
    LayerCounts,
    LayerNetwork,
    describe,
    fit_layer_network,
)
from nas_rlm.text import from_architectures, from_onnx
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.graph.small_models import small_model

SIZES = ("side", "in_channels", "out_channels", "kernel", "groups", "inputs", "outputs", "macs", "params")
STRIDE = len(SIZES)
ROUNDING = slice(STRIDE + 1, STRIDE + 1 + 2 * len(VECTOR_SIZES))
CLASS = slice(ROUNDING.stop, None)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 300)


def texts_of(name, count, seed=0):
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    return from_architectures(space, [space.sample(rng) for _ in range(count)])


@pytest.fixture(scope="module")
def texts():
    return [text for name in ("nasbench201", "ofa_mbv3", "gpt_s") for text in texts_of(name, 4)]


def layers_of_text(text):
    return layers_of(parse_network(text), ALL)


def test_sums_are_those_of_a_loop_over_networks_and_layers(texts):
    counts = LayerCounts.of_texts(texts)
    assert len(counts.layers) == len(set(counts.layers)) and len(counts.ends) == len(texts)
    values = np.random.default_rng(0).random((len(counts.layers), 3))
    of_layer = dict(zip(counts.layers, values, strict=True))
    expected = [sum(n * of_layer[layer] for layer, n in layers_of_text(text).items()) for text in texts]
    assert counts.sums(values) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("networks", [[0], [5, 2], [3, 3, 0, 3], list(range(11, -1, -1)), []])
def test_rows_of_networks_in_any_order_and_repeated(texts, networks):
    counts = LayerCounts.of_texts(texts)
    position, index, count = (t.tolist() for t in counts.rows_of(np.array(networks, int)))
    found = [{} for _ in networks]
    for p, i, n in zip(position, index, count, strict=True):
        assert counts.layers[i] not in found[p]
        found[p][counts.layers[i]] = n
    assert found == [dict(layers_of_text(texts[k])) for k in networks]


def test_no_networks_have_no_sums():
    counts = LayerCounts.of_texts([])
    assert counts.sums(np.empty((0, 2))).shape == (0, 2)


def description_of(body, inputs, weights=None):
    (layer,) = layers_of_text(from_onnx(small_model(body, inputs, weights)))
    (row,) = describe([layer])
    return layer, row


@pytest.mark.parametrize(
    ("attributes", "inputs", "weight", "stride"),
    [
        ("pads=[1,1,1,1]", "float[1,8,16,16] x", (6, 8, 3, 3), 1),
        ("pads=[1,1,1,1],strides=[2,2]", "float[1,8,16,16] x", (6, 8, 3, 3), 2),
        ("pads=[1,1,1,1],strides=[2,2]", "float[4,8,16,16] x", (6, 8, 3, 3), 2),
        ("pads=[1,1,1,1],strides=[4,4]", "float[1,8,16,32] x", (6, 8, 3, 3), 4),
        ("strides=[2,2],group=8", "float[1,8,16,16] x", (8, 1, 1, 1), 2),
        ("strides=[16,16]", "float[1,3,224,224] x", (6, 3, 16, 16), 16),
        ("strides=[4]", "float[1,8,16] x", (6, 8, 1), 2),
    ],
)
def test_the_stride_of_a_convolution(attributes, inputs, weight, stride):
    _, row = description_of(f"y = Conv<{attributes}>(x, w)", inputs, {"w": weight})
    assert row[STRIDE] == pytest.approx(np.log2(stride))


def test_sizes_rounding_and_class():
    conv = Layer("Conv3x3g", 7, 3, 2, 9, 33, 441, 1617, 5000, 600)
    (row,) = describe([conv])
    values = [getattr(conv, name) - (name == "groups") for name in SIZES]
    assert row[:STRIDE] == pytest.approx(np.log1p(values))
    assert row[ROUNDING] == pytest.approx(
        [12 / 9, 16 / 9, 16 / 9, 32 / 9, 36 / 33, 40 / 33, 48 / 33, 64 / 33]
    )
    assert dict(zip(CLASSES, row[CLASS], strict=True)) == {n: float(n == "convolution") for n in CLASSES}
    aligned = describe([conv._replace(in_channels=64, out_channels=32)])
    assert (aligned[0, ROUNDING] == 1).all()


@pytest.mark.parametrize(
    ("body", "inputs", "weights", "own_class"),
    [
        ("y = MatMul(x, w)", "float[2,3,4] x", {"w": (4, 5)}, "product"),
        ("y = MatMul(x, z)", "float[2,3,4] x, float[2,4,6] z", {}, "product"),
        ("y = Gemm(x, w)", "float[2,4] x", {"w": (4, 5)}, "product"),
        ("y = Reshape(x, s)", "float[2,4] x", {"s": np.array([8])}, "movement"),
        ("y = Conv(x, w)", "float[1,8,4,4] x", {"w": (8, 1, 3, 3)}, "depthwise"),
        ("y = ConvTranspose(x, w)", "float[1,8,4,4] x", {"w": (8, 6, 3, 3)}, "convolution"),
        ("y = GlobalAveragePool(x)", "float[1,8,4,4] x", {}, "pooling"),
        ("y = Relu(x)", "float[1] x", {}, "function"),
        ("y = ReduceSum<keepdims=0>(x)", "float[3] x", {}, "movement"),
        ("y = Gather(w, x)", "int64[1,7] x", {"w": (50, 4)}, "movement"),
        ("y = Expand(x, s)", "float[1] x", {"s": np.array([0, 4])}, "movement"),
    ],
)
def test_every_operator_has_a_description_of_finite_numbers(body, inputs, weights, own_class):
    if own_class == "depthwise":
        body = body.replace("Conv(", "Conv<group=8>(")
    _, row = description_of(body, inputs, weights)
    assert np.isfinite(row).all()
    assert row[CLASS].tolist() == [float(name == own_class) for name in CLASSES]


def test_layers_of_all_spaces_have_finite_descriptions():
    for name in search_spaces.names():
        layers = LayerCounts.of_texts(texts_of(name, 2)).layers
        assert np.isfinite(describe(layers)).all(), name


@pytest.fixture(scope="module")
def networks():
    """Return chains of 1x1 convolutions and the latency of each layer, doubled for uneven channels."""
    rng, texts = np.random.default_rng(0), []
    for _ in range(120):
        channels = rng.integers(1, 9, 5) * 8 - rng.integers(0, 2, 5) * rng.integers(1, 5, 5)
        body = " ".join(f"v{i + 1} = Conv(v{i}, w{i})" for i in range(4))
        weights = {f"w{i}": (*channels[[i + 1, i]].tolist(), 1, 1) for i in range(4)}
        texts.append(from_onnx(small_model(body, f"float[1,{channels[0]},8,8] v0", weights, "float v4")))
    counts = LayerCounts.of_texts(texts)
    linear = np.array([[1e-6 * layer.macs] for layer in counts.layers])
    is_slow = np.array([[layer.in_channels % 8 > 0] for layer in counts.layers])
    return counts, linear, linear * (1.0 + is_slow)


def total_latencies(counts, network, linear, constants):
    with torch.inference_mode():
        factors, hidden = network(torch.from_numpy(describe(counts.layers)).float())
    assert hidden.shape == (len(counts.layers), WIDTH)
    assert factors.abs().max() <= MAX_LOG_FACTOR
    return constants + counts.sums(linear * np.exp(factors.double().numpy()))


def test_it_learns_a_factor_that_costs_do_not_have(networks):
    counts, linear, true = networks
    constants = np.array([0.01])
    latencies = constants + counts.sums(true)
    labelled, others = np.arange(90), np.arange(90, 120)
    state = torch.get_rng_state()
    network = fit_layer_network(counts, labelled, linear, constants, latencies)
    assert torch.equal(torch.get_rng_state(), state)
    assert not network.training
    found = total_latencies(counts, network, linear, constants)[others]
    before = np.abs((constants + counts.sums(linear))[others] / latencies[others] - 1).mean()
    after = np.abs(found / latencies[others] - 1).mean()
    assert after < 0.08 and after < before / 3


def test_the_result_depends_on_its_arguments_alone(networks, monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 5)
    counts, linear, true = networks
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        arguments = np.arange(40), linear, np.zeros(1), counts.sums(true), 1
        with torch.set_grad_enabled(seed == 1):
            states.append(fit_layer_network(counts, *arguments).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_labels_that_are_missing_do_not_count(networks, monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 200)
    counts, linear, true = networks
    latencies = np.column_stack([counts.sums(true), counts.sums(linear)])
    latencies[:20, 1] = np.nan  # measured on one device
    latencies[20:40, 0] = np.nan
    latencies[60:] = np.nan  # measured on none
    both = np.column_stack([linear, linear])
    network = fit_layer_network(counts, np.arange(120), both, np.zeros(2), latencies)
    assert all(t.isfinite().all() for t in network.state_dict().values())
    found = total_latencies(counts, network, both, np.zeros(2))[60:]
    expected = np.column_stack([counts.sums(true), counts.sums(linear)])[60:]
    errors = np.abs(found / expected - 1).mean(0)
    by_costs = np.abs(counts.sums(linear) / counts.sums(true) - 1)[60:].mean()
    assert errors[0] < by_costs / 2 and errors[1] < 0.05


def test_a_batch_without_labels_changes_nothing(networks, monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 3)
    counts, linear, true = networks
    nothing = np.full_like(counts.sums(true), np.nan)
    network = fit_layer_network(counts, np.arange(10), linear, np.zeros(1), nothing, 1)
    with torch.inference_mode():
        factors, _ = network(torch.from_numpy(describe(counts.layers)).float())
    assert (factors == 0).all()


def test_descriptions_far_from_the_known_ones_are_clipped():
    network = LayerNetwork(torch.zeros(24), torch.ones(24), 1)
    torch.nn.init.normal_(network.head.weight)
    far, farther = (network(torch.full((1, 24), s * CLIPPED_DESCRIPTION)) for s in (1.0, 1e6))
    assert torch.equal(far[0], farther[0]) and torch.equal(far[1], farther[1])
