from dataclasses import dataclass, replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, synthetic
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import (
    MAX_CHAIN_LENGTH,
    GraphFeatures,
    graph_features_of_space,
    random_raw_features,
)
from nas_rlm.surrogates.zero_label import (
    ACCURACY_WEIGHTS,
    WIDTH_WEIGHTS,
    ZeroLabelFeatures,
    cost_values,
    zero_label_messages,
    zero_label_surrogate,
    zero_label_surrogates,
)
from tests.search_spaces.plain_space import PlainSpace


def rows(name, n, seed=0, objective="accuracy"):
    """Return networks whose value increases with FLOPs and with the convolutions on their paths."""
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [Row(name, str(space.sample(rng)), {}) for _ in range(n)]
    raw_features = synthetic.graph_features_of_texts(texts_of_rows(drawn))
    return [
        replace(r, targets={objective: 50 + c.get("convs/mean", 0) + np.log(c["flops"])})
        for r, c in zip(drawn, raw_features, strict=True)
    ]


@pytest.fixture(scope="module")
def existing():
    features = graph_features_of_space("nasbench101")
    labelled = [
        replace(r, targets={**r.targets, "latency/a": r.targets["accuracy"] / 10})
        for r in rows("nasbench101", 80)
    ]
    return {"nasbench101": [fit_graph_surrogate(features, labelled, ["accuracy", "latency/a"])]}


@pytest.fixture(scope="module")
def target():
    found = rows("nasbench201", 60, seed=1)
    raw = synthetic.graph_features_of_texts(texts_of_rows(found), MAX_CHAIN_LENGTH, with_layers=True)
    return raw, np.array([r.targets["accuracy"] for r in found])


@pytest.mark.parametrize("objective", ["accuracy", "accuracy/mydata"])
def test_a_space_without_labels_is_ranked(existing, target, objective):
    raw, true = target
    random = random_raw_features(search_spaces.get("nasbench201"))
    surrogate = zero_label_surrogate("nasbench201", random, existing, objective)
    features = surrogate.graph_features.transform(raw)
    found = surrogate.predict(features, objective)
    flops = spearman(np.array([f["flops"] for f in raw]), true)
    assert spearman(found.median, true) > flops
    alone = surrogate.predict(surrogate.graph_features.transform(raw[3:4]), objective)
    assert alone.mean == pytest.approx(found.mean[3:4], abs=1e-9)


def test_other_accuracies_of_the_space_come_before_other_spaces(existing, target):
    own = fit_graph_surrogate(
        graph_features_of_space("nasbench201"), rows("nasbench201", 60, seed=2), ["accuracy"]
    )
    random = random_raw_features(search_spaces.get("nasbench201"))
    surrogates = {**existing, "nasbench201": [own]}
    surrogate = zero_label_surrogate("nasbench201", random, surrogates, "accuracy/mydata")
    assert surrogate.spaces == ("nasbench201",) and surrogate.basis == "surrogates of nasbench201"
    found = surrogate.predict(surrogate.graph_features.transform(target[0]), "accuracy/mydata")
    assert spearman(found.median, target[1]) > 0.8


def test_what_does_not_transfer(existing):
    raw = [{"flops": 1.0}, {"flops": 2.0}]
    assert zero_label_surrogate("nasbench101", raw, existing) is None  # its only labels are its own
    assert zero_label_surrogate("nasbench201", raw, existing, "latency/unknown") is None
    assert zero_label_surrogate("nasbench201", raw, existing, "energy/a") is None
    assert zero_label_surrogate("nasbench201", raw, {}) is None


def test_networks_without_a_space_are_compared_by_costs_on_a_fixed_scale(existing):
    (surrogate,) = zero_label_surrogates(None, ["accuracy", "energy/a"], existing)
    raw = [{"flops": f, "params": f / 100, "activations": f / 10} for f in (1e6, 1e8, 1e10)]
    found = surrogate.predict(surrogate.graph_features.transform(raw), "accuracy")
    assert (np.diff(found.median) > 0).all()
    one = surrogate.predict(surrogate.graph_features.transform(raw[1:2]), "accuracy")
    assert one.median == pytest.approx(found.median[1:2])


@pytest.mark.parametrize(
    ("layer", "kinds"), [("Conv3x3@1", {"convs": 2.0}), ("Gemm", {}), ("MatMul@0", {}), ("Conv5", {})]
)
def test_size_is_width_times_depth(layer, kinds):
    small = {f"{layer}:activations": 200.0, f"{layer}:number": 2.0, **kinds}
    wide = {**small, f"{layer}:activations": 400.0}
    costs, of_wide = cost_values(small), cost_values(wide)
    assert costs["size"] == pytest.approx(np.log(100 * 2))
    assert costs["width"] == pytest.approx(np.log(100)) and costs["depth"] == pytest.approx(np.log(2))
    assert of_wide["size"] - costs["size"] == pytest.approx(np.log(2))
    pool = {"MaxPool@1:activations": 9.0, "MaxPool@1:number": 1.0, "layers": 1.0}
    assert set(cost_values({}).values()) == set(cost_values(pool).values()) == {0}


def test_the_width_is_a_mean_over_layers_and_the_size_one_over_resolutions():
    layers = {"Conv3x3@0": (300.0, 3.0), "Conv1x1@0": (100.0, 1.0), "Conv3x3@1": (25.0, 1.0)}
    raw = {f"{layer}:activations": activations for layer, (activations, _) in layers.items()}
    raw |= {f"{layer}:number": number for layer, (_, number) in layers.items()}
    raw |= {"convs": 4.0, "pointwise": 1.0, "layers": 10.0}
    costs = cost_values(raw)
    assert costs["width"] == pytest.approx((4 * np.log(100) + np.log(25)) / 5)
    assert costs["size"] == pytest.approx(np.log(5) + (np.log(100) + np.log(25)) / 2)
    assert costs["convolutions"] == 0.5


@pytest.mark.parametrize(
    ("space", "weights"), [("nats_size", WIDTH_WEIGHTS), ("nasbench201", ACCURACY_WEIGHTS)]
)
def test_flops_do_not_count_where_only_widths_differ(space, weights):
    raw = random_raw_features(search_spaces.get(space))[:40]
    features = ZeroLabelFeatures.of_accuracy(raw, ())
    assert features.weights == weights
    values = features.transform(raw).numpy()
    expected = np.array([sum(w * cost_values(r)[name] for name, w in weights.items()) for r in raw])
    assert values[:, 0] == pytest.approx(expected - expected.mean()) and not values[:, 1].any()


@dataclass(frozen=True)
class Source:
    """A source surrogate that predicts a multiple of the standardised number of parameters."""

    graph_features: GraphFeatures
    sign: float

    def predict(self, features):
        return self.sign * features[:, 0]


def test_sources_count_as_much_as_they_agree_with_the_costs():
    raw = random_raw_features(search_spaces.get("nats_size"))[:60]
    shared = GraphFeatures.shared_with(raw, ["params"])
    agreeing, contrary = Source(shared, 1.0), Source(shared, -1.0)
    features = ZeroLabelFeatures.of_accuracy(raw, [agreeing, contrary])
    assert 0.7 < features.agreements[0] < 1 and features.agreements[1] == 0
    expected = features.agreements[0] * agreeing.predict(shared.transform(raw)) / 2
    assert features.transform(raw)[:, 1].numpy() == pytest.approx(expected.numpy())


class EqualCosts(PlainSpace):
    """A space whose architectures are one network."""

    name = "equal_costs"

    def write(self, graph, architecture):
        return super().write(graph, self.decode(np.zeros(6, int)))


def test_a_space_of_equal_costs_is_said_to_have_no_ranking(rlm):
    space = EqualCosts()
    archs = [space.sample(np.random.default_rng(k)) for k in range(3)]
    with pytest.warns(UserWarning, match="are equal for its architectures: all predictions are equal, and"):
        predicted = rlm.predict(space, archs, ["accuracy"])
    assert np.ptp(predicted) == 0 and np.isfinite(predicted).all()


def test_messages(existing):
    space = search_spaces.get("nasbench201")
    found = zero_label_surrogates(space, ["accuracy", "latency/a", "accuracy/b"], existing)
    first, second = zero_label_messages("nasbench201", found)
    assert first.startswith(
        "no labels of accuracy,accuracy/b for nasbench201: the ranking rests on surrogates of nasbench101,"
        " FLOPs, parameters, width and depth and the share of convolutions; values are unreliable."
    )
    assert "propose --space nasbench201 --objectives accuracy,accuracy/b --count 20, then" in first
    assert "rests on operators, FLOPs and memory traffic, as for the device on nasbench101;" in second
    (own,) = zero_label_messages("mine", found[:1], "/x/mine.py:Mine")
    assert "for mine: " in own and "propose --space /x/mine.py:Mine --objectives" in own
    assert "--objectives accuracy --learn none --space /x/mine.py:Mine --out" in own
    (files,) = zero_label_messages("", zero_label_surrogates(None, ["accuracy"], existing))
    assert "for networks without a space" in files and "propose" not in files


@pytest.fixture
def rlm(tiny_checkpoint, existing):
    model = RLM.load(tiny_checkpoint)
    model.surrogates, model.trained_on = existing, {"nasbench101": TrainedOn(120, ("accuracy",))}
    return model


def test_a_model_predicts_a_space_without_labels_by_transfer(rlm, existing, target):
    found = rows("nasbench201", 30, seed=1)
    archs = [r.arch_str for r in found]
    with pytest.warns(UserWarning, match="no labels of accuracy for nasbench201: the ranking rests on"):
        predicted = rlm.predict("nasbench201", archs, ["accuracy"], (0.1, 0.5, 0.9))[:, 0]
    random = random_raw_features(search_spaces.get("nasbench201"))
    surrogate = zero_label_surrogate("nasbench201", random, existing)
    expected = surrogate.predict(surrogate.graph_features.transform(target[0][:30]), "accuracy")
    assert predicted == pytest.approx(expected.quantiles((0.1, 0.5, 0.9)))
    with pytest.warns(UserWarning, match="no labels of accuracy"):
        draws = rlm.sample("nasbench201", archs[:2], ["accuracy"], 300)
    assert np.median(draws, 1)[:, 0] == pytest.approx(expected.median[:2], rel=0.05)
    assert not rlm.zero_label and rlm.with_zero_label_surrogates(None, ["params"]) is rlm


def test_own_spaces_and_files_are_predicted_by_transfer(rlm):
    space = PlainSpace()
    archs = [space.sample(np.random.default_rng(k)) for k in range(6)]
    with pytest.warns(UserWarning, match=f"no labels of accuracy for {space.name}"):
        predicted = rlm.predict(space, archs, ["accuracy"])[:, 0]
    assert len(np.unique(predicted)) > 1
    with pytest.warns(UserWarning, match="no labels of accuracy for networks without a space"):
        by_file = rlm.predict_onnx([space.to_onnx(a) for a in archs], ["accuracy"])[:, 0]
    flops = np.array([space.flops(a) for a in archs])
    assert spearman(by_file, flops) > 0.5


def test_labels_of_the_space_are_preferred(rlm, recwarn):
    archs = [r.arch_str for r in rows("nasbench101", 3)]
    rlm.predict("nasbench101", archs, ["accuracy"])
    assert not [w for w in recwarn.list if "no labels" in str(w.message)]
