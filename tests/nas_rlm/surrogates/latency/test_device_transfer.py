from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import coverage
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.surrogates.latency import layer_network
from nas_rlm.surrogates.latency.device_transfer import MAX_DEVICES, DeviceTransfer
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.registry import from_saved, predictive_distributions
from nas_rlm.text import from_architectures

FAMILIES = ("ofa_mbv3", "fbnet", "nasbench201", "nds_darts")
NEW, SIMILAR, OTHER = "latency/new", "latency/similar", "latency/other"
NUM_LABELS = 12


def on_device(layer):
    """Return a latency that no sum over types of layers has: channels that do not fill vector units."""
    return (0.003 + 2e-9 * layer.macs) * (2.5 if layer.in_channels % 16 else 1)


def by_memory(layer):
    return 0.001 + 4e-8 * (layer.inputs + layer.outputs)


def latencies_of(counts, of_layer, seed):
    sums = counts.sums(np.array([[of_layer(layer)] for layer in counts.layers]))[:, 0]
    return sums * np.exp(0.03 * np.random.default_rng(seed).standard_normal(len(sums)))


@pytest.fixture(scope="module")
def networks():
    """Return texts and layers of networks of all families, in random order, and the family of each."""
    texts, families = [], []
    for name in FAMILIES:
        space, rng = search_spaces.get(name), np.random.default_rng(0)
        texts += from_architectures(space, [space.sample(rng) for _ in range(25)])
        families += [name] * 25
    order = np.random.default_rng(0).permutation(len(texts))
    texts, families = ([items[i] for i in order] for items in (texts, families))
    return texts, LayerCounts.of_texts(texts), families


@pytest.fixture(scope="module")
def known(networks):
    """Return a surrogate of one device that is like the new one, and of one that is not."""
    texts, counts, families = networks
    values = {SIMILAR: latencies_of(counts, on_device, 1), OTHER: latencies_of(counts, by_memory, 2)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 120)
        return fit_layers_of_texts(texts, values, families)


@pytest.fixture(scope="module")
def latencies(networks):
    """Return the latencies of the new device, which is three times as slow as the similar one."""
    return 3 * latencies_of(networks[1], on_device, 3)


@pytest.fixture(scope="module")
def own(networks, latencies):
    raw = graph_features_of_texts(networks[0][:NUM_LABELS], MAX_CHAIN_LENGTH, True)
    definition = LatencyFeatures.fit(raw)
    return LatencySurrogate.fit(definition, definition.transform(raw), latencies[:NUM_LABELS], NEW)


@pytest.fixture(scope="module")
def surrogate(own, networks, known):
    return DeviceTransfer.fit(own, networks[1].select(np.arange(NUM_LABELS)), [known])


def predicted(surrogate, texts):
    return predictive_distributions([surrogate], texts, [NEW])[0]


def test_a_similar_device_helps_and_has_most_weight(surrogate, own, networks, latencies):
    texts, true = networks[0][NUM_LABELS:], latencies[NUM_LABELS:]
    found = predicted(surrogate, texts)
    error, own_error = (np.abs(p.median / true - 1).mean() for p in (found, predicted(own, texts)))
    assert error < 0.6 * own_error
    assert surrogate.most_similar[0] == SIMILAR
    assert surrogate.most_similar[1] > 0.9
    assert 0.6 < coverage(*found.quantiles((0.1, 0.9)).T, true) <= 1
    assert surrogate.evidence.relative_error < own.evidence.relative_error
    assert surrogate.evidence.labels == NUM_LABELS


def test_devices_that_are_unlike_the_new_one_do_not_count(networks, known):
    texts, counts, _ = networks
    own_counts = counts.select(np.arange(60))
    raw = graph_features_of_texts(texts[:60], MAX_CHAIN_LENGTH, True)
    definition = LatencyFeatures.fit(raw)
    # Proportional to the number of layers, of which no known device says anything.
    values = latencies_of(own_counts, lambda layer: 0.1, 4)
    own = LatencySurrogate.fit(definition, definition.transform(raw), values, NEW)
    fitted = DeviceTransfer.fit(own, own_counts, [known])
    assert fitted is None or fitted.weights[0] > 0.9


def test_without_known_devices_there_is_no_transfer(own, networks):
    assert DeviceTransfer.fit(own, networks[1].select(np.arange(NUM_LABELS)), []) is None


def test_the_most_similar_devices_are_selected(own, networks, known):
    many = replace(known, objectives=(OTHER, SIMILAR))  # the names are exchanged
    copies = [
        replace(many, objectives=(f"{OTHER} {k}", f"{SIMILAR} {k}"), evidence=_named(known, k))
        for k in range(MAX_DEVICES)
    ]
    fitted = DeviceTransfer.fit(own, networks[1].select(np.arange(NUM_LABELS)), copies)
    assert fitted.device_names == [f"{OTHER} {k}" for k in range(MAX_DEVICES)]


def _named(known, k):
    return {f"{OTHER} {k}": known.evidence[SIMILAR], f"{SIMILAR} {k}": known.evidence[OTHER]}


def test_intervals_are_wider_where_known_devices_are_less_certain(surrogate, own, networks):
    texts = networks[0][NUM_LABELS : NUM_LABELS + 20]
    raw = graph_features_of_texts(texts, MAX_CHAIN_LENGTH, True)
    own_features = own.graph_features.transform(raw)
    features = surrogate.with_devices(
        own_features, networks[1].select(np.arange(NUM_LABELS, NUM_LABELS + 20))
    )
    uncertain = features.clone()
    uncertain[:, -len(surrogate.lines) :] = 3.0
    assert (surrogate.predict(uncertain, NEW).std > surrogate.predict(features, NEW).std).mean() > 0.8
    assert torch.equal(surrogate.own_features(features), own_features)


def test_a_saved_surrogate_predicts_the_same(surrogate, networks):
    saved = {name: tensor.clone() for name, tensor in surrogate.tensors().items()}
    again = from_saved(saved, surrogate.description())
    found, expected = (predicted(s, networks[0][-20:]) for s in (again, surrogate))
    assert np.allclose(found.median, expected.median, rtol=1e-4)
    assert np.allclose(found.std, expected.std, rtol=1e-3)
    assert again.without([OTHER]) is again
    assert again.without([NEW]) is None
    assert again.objectives == (NEW,)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("lines", lambda t: t[:, :1], "lines"),
        ("left_out", lambda t: t[:, :-1], "left_out"),
        ("usual_stds", lambda t: t * np.nan, "not finite"),
        ("devices0.constants", lambda t: t[:1], "constants"),
        ("own.values", lambda t: -t, "values"),
    ],
)
def test_damaged_tensors_are_rejected(surrogate, name, change, message):
    tensors = surrogate.tensors()
    tensors[name] = change(tensors[name])
    with pytest.raises(ValueError, match=message):
        from_saved(tensors, surrogate.description())
