from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.graph.executed_layers import ALL, Layer, layers_of
from nas_rlm.metrics import coverage, spearman
from nas_rlm.surrogates.latency import layer_network
from nas_rlm.surrogates.latency.features import CLASSES
from nas_rlm.surrogates.latency.layer_calibration import MAX_LOG_STD, MIN_STD, FamilyEvidence
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts, fit_uncalibrated
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.registry import from_saved
from nas_rlm.text import from_architectures
from nas_rlm.text.parser import parse_network

FAMILIES = ("ofa_mbv3", "fbnet", "nasbench201", "nds_darts", "nasbench101")
LEFT_OUT, FOREIGN = "nats_size", "gpt_s"
NUM_NETWORKS = 25  # of a family
GPU, CPU, PHONE = OBJECTIVES = "latency/gpu", "latency/cpu", "latency/phone"
CONSTANT, NOISE = 0.1, 0.02


def texts_of(name, count=NUM_NETWORKS, seed=0):
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    return from_architectures(space, [space.sample(rng) for _ in range(count)])


def on_gpu(layer):
    """Return a latency that is mainly the start of the layer."""
    return 0.01 + 1e-9 * (layer.inputs + layer.outputs) + 1e-9 * layer.macs


def on_cpu(layer):
    """Return a latency that is twice as long where channels do not fill vector units."""
    macs = layer.macs * (6e-9 if layer.type.endswith("d") else 2e-9)
    return (0.001 + 2e-9 * (layer.inputs + layer.outputs) + macs) * (2 if layer.in_channels % 8 else 1)


DEVICES = {GPU: on_gpu, CPU: on_cpu, PHONE: on_cpu}


def latencies_of(texts, objective, seed=0, noise=NOISE):
    counts = LayerCounts.of_texts(texts)
    sums = counts.sums(np.array([[DEVICES[objective](layer)] for layer in counts.layers]))[:, 0]
    return (CONSTANT + sums) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(texts)))


def macs_of(texts):
    counts = LayerCounts.of_texts(texts)
    return counts.sums(np.array([[float(layer.macs)] for layer in counts.layers]))[:, 0]


@pytest.fixture(scope="module")
def labelled():
    """Return texts, their families and latencies: a third of one device's are missing, most of another's."""
    texts = [text for name in FAMILIES for text in texts_of(name)]
    groups = [name for name in FAMILIES for _ in range(NUM_NETWORKS)]
    values = {name: latencies_of(texts, name, seed) for seed, name in enumerate(OBJECTIVES)}
    values[CPU][np.random.default_rng(0).random(len(texts)) < 1 / 3] = np.nan
    values[PHONE][[name != "fbnet" for name in groups]] = np.nan
    return texts, values, groups


@pytest.fixture(scope="module")
def surrogate(labelled):
    texts, values, groups = labelled
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 100)
        state = torch.get_rng_state()
        fitted = fit_layers_of_texts(texts, values, groups)
        assert torch.equal(torch.get_rng_state(), state)
    return fitted


def predicted(surrogate, texts, objective):
    return surrogate.predict(surrogate.transform(texts), objective)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("objective", [GPU, CPU])
def test_other_networks_of_known_families_are_predicted(surrogate, name, objective):
    texts = texts_of(name, seed=1)
    true = latencies_of(texts, objective, seed=5)
    found = predicted(surrogate, texts, objective)
    assert np.abs(found.median / true - 1).mean() < 0.12
    assert spearman(found.median, true) > 0.8


@pytest.mark.parametrize("objective", [GPU, CPU])
def test_a_family_that_was_left_out_is_predicted_better_than_by_its_macs(surrogate, labelled, objective):
    texts, values, _ = labelled
    others = texts_of(LEFT_OUT, 40)
    true = latencies_of(others, objective, seed=5)
    found = predicted(surrogate, others, objective)
    used = np.isfinite(values[objective])
    relative = np.column_stack([np.ones(len(texts)), macs_of(texts)])[used] / values[objective][used, None]
    line = np.linalg.lstsq(relative, np.ones(used.sum()), rcond=None)[0]
    by_macs = line[0] + line[1] * macs_of(others)
    error, error_of_line = (np.abs(p / true - 1).mean() for p in (found.median, by_macs))
    assert error < min(0.2, error_of_line / 2)
    assert 0.5 < coverage(*found.quantiles((0.1, 0.9)).T, true) <= 1
    assert np.median(np.divide(*found.quantiles((0.9, 0.1)).T)) < 2.5


@pytest.mark.parametrize("objective", [GPU, CPU])
def test_unlike_networks_have_wide_intervals(surrogate, labelled, objective):
    known = predicted(surrogate, labelled[0], objective)
    foreign = predicted(surrogate, texts_of(FOREIGN, 5), objective)
    assert foreign.std.min() > 2 * np.median(known.std)
    assert known.std.min() >= MIN_STD and foreign.std.max() <= MAX_LOG_STD


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_layers_of_types_without_labels_take_time(surrogate, objective):
    texts = texts_of(FOREIGN, 3)
    assert "MatMul" not in surrogate.types
    for text, median in zip(texts, predicted(surrogate, texts, objective).median, strict=True):
        layers = surrogate.layer_latencies(text, objective)
        products = [latency for layer, _, latency in layers if layer.type == "MatMul"]
        assert products and min(products) > 0
        assert np.isfinite(median) and median > 0


@pytest.mark.parametrize("unlike", [0.0, 0.5])
def test_factors_count_less_for_networks_unlike_the_labelled_ones(surrogate, unlike):
    surrogate = surrogate.with_strengths(np.array([0.5, 1.0, 1.0]), unlike)
    counts = LayerCounts.of_texts(texts_of(FOREIGN, 3))
    by_costs, by_factors, _ = surrogate.sums(counts)
    mean, novelties = surrogate.log_latencies(counts)
    is_new = novelties > 2
    assert is_new.any()
    expected = by_costs + unlike * surrogate.calibration[:, 1] * (by_factors - by_costs)
    assert mean[is_new] == pytest.approx(expected[is_new])
    known = LayerCounts.of_texts(texts_of("ofa_mbv3", 5))
    by_costs, by_factors, _ = surrogate.sums(known)
    mean, novelties = surrogate.log_latencies(known)
    is_known = (novelties <= 1)[:, 1]
    assert is_known.any()
    expected = by_costs + surrogate.calibration[:, 1] * (by_factors - by_costs)
    assert mean[is_known, 1] == pytest.approx(expected[is_known, 1])
    assert np.abs(by_factors - by_costs)[:, 1].max() > 0.01


def test_evidence_is_that_of_families_left_out(surrogate, labelled):
    _, values, _ = labelled
    for objective in (GPU, CPU):
        evidence = surrogate.evidence[objective]
        assert evidence.networks == np.isfinite(values[objective]).sum()
        assert evidence.families == len(FAMILIES)
        assert 0 < evidence.relative_error < 0.4
        assert 0.1 < evidence.within_10_percent < 1


def test_a_device_with_one_family_is_predicted_without_evidence(surrogate):
    assert surrogate.evidence[PHONE] == FamilyEvidence(NUM_NETWORKS, 1)
    texts = texts_of("fbnet", seed=1)
    true = latencies_of(texts, PHONE, seed=5)
    found = predicted(surrogate, texts, PHONE)
    assert np.abs(found.median / true - 1).mean() < 0.12
    assert (found.std == 1).all()


def test_missing_labels_of_one_device_do_not_change_the_costs_of_another(labelled, monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 1)
    texts, values, _ = labelled
    counts = LayerCounts.of_texts(texts)
    networks, latencies = np.arange(len(texts)), np.stack([*values.values()], 1)
    together = fit_uncalibrated(OBJECTIVES, counts, latencies, networks, 1, np.array([0.5, 0, 0]))
    alone = fit_uncalibrated((GPU,), counts, latencies[:, :1], networks, 1, np.array([0.5]))
    assert alone.types == together.types
    assert alone.coefficients[0] == pytest.approx(together.coefficients[0])
    assert alone.constants[0] == pytest.approx(together.constants[0])


@pytest.mark.parametrize("name", ["ofa_mbv3", "nasbench201", LEFT_OUT, FOREIGN])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_latencies_of_layers_sum_to_the_prediction(surrogate, name, objective):
    for text in texts_of(name, 3, seed=2):
        *layers, constant = surrogate.layer_latencies(text, objective)
        assert {layer: n for layer, n, _ in layers} == dict(layers_of(parse_network(text), ALL))
        assert constant[:2] == (Layer("constant", 0), 1)
        assert min(latency for _, _, latency in [*layers, constant]) >= 0
        total = sum(n * latency for _, n, latency in [*layers, constant])
        assert total == pytest.approx(predicted(surrogate, [text], objective).median[0])


def test_a_network_is_predicted_without_the_others(surrogate):
    texts = [text for name in (*FAMILIES, FOREIGN) for text in texts_of(name, 2, seed=3)]
    whole, alone = surrogate.transform(texts), torch.cat([surrogate.transform([text]) for text in texts])
    assert whole.shape == (len(texts), 3, 3)
    assert alone.numpy() == pytest.approx(whole.numpy(), rel=1e-4, abs=1e-6)


def test_single_networks_are_families_by_default(labelled, monkeypatch):
    monkeypatch.setattr(layer_network, "MIN_STEPS", 20)
    texts, values, _ = labelled
    fitted = fit_layers_of_texts(texts[:20], {GPU: values[GPU][:20]})
    assert (fitted.evidence[GPU].networks, fitted.evidence[GPU].families) == (20, 20)
    assert fitted.evidence[GPU].relative_error < 0.2
    one_family = fit_layers_of_texts(texts[:12], {GPU: values[GPU][:12]}, ["a"] * 12)
    assert one_family.evidence[GPU] == FamilyEvidence(12, 1)
    again = fit_layers_of_texts(texts[:12], {GPU: values[GPU][:12]}, ["a"] * 12)
    tensors = again.tensors()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in one_family.tensors().items())


@pytest.fixture(scope="module")
def some_texts():
    return [text for name in (*FAMILIES, LEFT_OUT, FOREIGN) for text in texts_of(name, 2, seed=4)]


def assert_equal_predictions(found, expected, texts):
    assert type(found) is LayerSurrogate
    assert found.transform(texts).numpy() == pytest.approx(
        expected.transform(texts).numpy(), rel=1e-4, abs=1e-4
    )


def test_a_saved_surrogate_predicts_the_same(surrogate, some_texts):
    tuned = replace(surrogate, temperatures={GPU: 1.25}, network_temperatures={CPU: 7.0})
    restored = from_saved(tuned.tensors(), tuned.description())
    assert_equal_predictions(restored, surrogate, some_texts)
    names = "objectives", "types", "evidence", "temperatures", "network_temperatures"
    assert all(getattr(restored, name) == getattr(tuned, name) for name in names)
    assert restored.predict(restored.transform(some_texts), GPU).temperature == 1.25


def test_a_surrogate_of_an_older_checkpoint_has_one_width_and_no_factors_for_unlike_networks(
    surrogate, some_texts
):
    older = {**surrogate.tensors(), "calibration": surrogate.tensors()["calibration"][:, :4]}
    restored = from_saved(older, surrogate.description())
    mean, std, _ = restored.transform(some_texts).unbind(2)
    counts = LayerCounts.of_texts(some_texts)
    by_costs, novelties = restored.sums(counts)[0], restored.log_latencies(counts)[1]
    is_new = novelties > 2
    assert mean.numpy()[is_new] == pytest.approx(by_costs[is_new])
    is_known = novelties[:, 0] <= 1
    assert std.numpy()[is_known, 0] == pytest.approx(restored.calibration[0, 2])


@pytest.mark.parametrize("space", ["", "mine"])
def test_a_checkpoint_has_the_surrogate(surrogate, some_texts, tiny_checkpoint, tmp_path, space):
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {space: [surrogate.without([PHONE]), surrogate.without([GPU, CPU])]}
    rlm.save(tmp_path)
    loaded = RLM.load(tmp_path)
    first, second = loaded.surrogates[space]
    assert_equal_predictions(first, surrogate.without([PHONE]), some_texts)
    assert second.evidence == {PHONE: surrogate.evidence[PHONE]}
    assert loaded.fingerprint == RLM.load(tmp_path).fingerprint != RLM.load(tiny_checkpoint).fingerprint


def test_objectives_can_be_removed(surrogate, some_texts):
    assert surrogate.without(["accuracy"]) is surrogate and surrogate.without([]) is surrogate
    assert surrogate.without(OBJECTIVES) is None
    for removed in ([GPU], [CPU, "latency/x"], [GPU, PHONE]):
        rest = surrogate.without(removed)
        kept = [name for name in OBJECTIVES if name not in removed]
        assert rest.objectives == tuple(kept) and rest.evidence.keys() == {*kept}
        for name in kept:
            found, expected = (predicted(s, some_texts, name) for s in (rest, surrogate))
            assert found.mean == pytest.approx(expected.mean, abs=1e-5)
            assert found.std == pytest.approx(expected.std, rel=1e-4)
        assert_equal_predictions(from_saved(rest.tensors(), rest.description()), rest, some_texts)


TENSORS = ("coefficients", "constants", "hidden_mean", "hidden_std", "precision", "calibration")
WEIGHTS = (
    "network.mean",
    "network.std",
    "network.body.0.weight",
    "network.body.2.bias",
    "network.head.weight",
)


def test_the_saved_tensors_are_those_of_the_next_tests(surrogate):
    assert {*TENSORS, *WEIGHTS} <= surrogate.tensors().keys()


@pytest.mark.parametrize("name", [*TENSORS, *WEIGHTS])
def test_missing_tensors_and_other_shapes_are_refused(surrogate, name):
    tensors, description = surrogate.tensors(), surrogate.description()
    with pytest.raises(ValueError, match=f"{name} missing"):
        from_saved({k: v for k, v in tensors.items() if k != name}, description)
    for other in (tensors[name][:-1], tensors[name][..., None], torch.empty(0)):
        with pytest.raises(ValueError, match=f"{name} is .*, expected"):
            from_saved({**tensors, name: other}, description)
    with pytest.raises(ValueError, match="expected floating point"):
        from_saved({**tensors, name: tensors[name].int()}, description)


def changed(tensors, name, index, value):
    copies = {k: v.clone() for k, v in tensors.items()}
    copies[name][index] = value
    return copies


@pytest.mark.parametrize("name", [*TENSORS, *WEIGHTS])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused(surrogate, name, value):
    with pytest.raises(ValueError, match="not finite"):
        from_saved(changed(surrogate.tensors(), name, (-1, ...), value), surrogate.description())


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("coefficients", (0, 0, 0), -1e-9, "below 0"),
        ("constants", 1, -1.0, "below 0"),
        ("hidden_std", (0, 3), 0.0, "not above 0"),
        ("hidden_std", (2, 3), -1.0, "not above 0"),
        ("network.std", 0, 0.0, "not above 0"),
        ("calibration", (0, 0), 0.0, "not above 0"),
        ("calibration", (1, 2), -0.1, "not above 0"),
        ("calibration", (0, 1), -0.5, "below 0"),
        ("calibration", (2, 3), -0.25, "below 0"),
    ],
)
def test_values_out_of_range_are_refused(surrogate, name, index, value, message):
    with pytest.raises(ValueError, match=message):
        from_saved(changed(surrogate.tensors(), name, index, value), surrogate.description())


@pytest.mark.parametrize(
    "changes",
    [
        {"objectives": []},
        {"objectives": ["latency/gpu", "latency/cpu", 3]},
        {"objectives": ["latency/gpu"]},
        {"types": [f"[{name}]" for name in CLASSES[1:]]},
        {"types": [f"[{name}]" for name in CLASSES]},
        {"temperatures": {GPU: 0.0}},
        {"network_temperatures": {GPU: float("inf")}},
    ],
)
def test_descriptions_that_do_not_fit_are_refused(surrogate, changes):
    with pytest.raises(ValueError):
        from_saved(surrogate.tensors(), {**surrogate.description(), **changes})
