import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.search import online_surrogate
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from tests.nas_rlm.search.acquisition.test_active_search import MINE, NAMES, SPACE, rows, surrogate_of
from tests.search_spaces.plain_space import PlainSpace

LABEL = "accuracy/mine"
OBJECTIVE = ["accuracy"]


def test_an_accuracy_is_learned_with_the_genome_of_a_users_own_space(monkeypatch):
    space = PlainSpace()
    monkeypatch.setattr(search_spaces, "_registered", {space.name: space})
    rng = np.random.default_rng(0)
    archs = [space.sample(rng) for _ in range(34)]
    values = np.array([60.0 + space.encode(arch) @ [3, 0, 0, 1, 2, 0] for arch in archs])
    labelled = [Row(space.name, str(a), {LABEL: v}) for a, v in zip(archs, values, strict=True)]
    surrogate = OnlineSurrogate(CachedPredictor(None, space), [LABEL], {})
    surrogate.update(labelled[:14])
    assert {"gene/0", "gene/3=1"} <= {*surrogate.surrogates[LABEL].graph_features.names}
    medians = surrogate.predict(space, archs, [LABEL], (0.5,))[:, 0, 0]
    assert medians[:14] == pytest.approx(values[:14])
    assert spearman(medians[14:], values[14:]) > 0.7


def predicted(surrogate, names):
    return surrogate.predict(SPACE, [SPACE.parse(n) for n in names], OBJECTIVE, [0.5])[:, 0, 0]


def test_repeated_measurements_are_averaged():
    surrogate = surrogate_of(NAMES[:12], OBJECTIVE)
    first = surrogate.measurements[NAMES[0]].targets["accuracy"]
    surrogate.update([Row("nasbench201", NAMES[0], {"accuracy": first + 3.0})])
    surrogate.update([Row("nasbench201", NAMES[0], {})])  # a failure beside values does not count
    assert surrogate.measurements[NAMES[0]].targets["accuracy"] == pytest.approx(first + 1.5)


def test_hyperparameters_are_fitted_again_once_labels_have_grown(monkeypatch):
    fits: list[int] = []
    monkeypatch.setattr(online_surrogate, "fit_features", counted_fit_features(fits))
    surrogate = surrogate_of(NAMES[:10], OBJECTIVE)
    for name in NAMES[10:20]:
        assert len(surrogate.surrogates["accuracy"].values) == len(surrogate.measurements)
        surrogate.update(rows([name], OBJECTIVE))
    assert fits == [10, 13, 17]


@pytest.mark.parametrize("objective", ["accuracy", MINE])
def test_predictions_depend_on_the_order_of_labels_and_not_on_when_they_are_needed(objective):
    used, unused = surrogate_of(NAMES[:10], [objective]), surrogate_of(NAMES[:10], [objective])
    for name in NAMES[10:25]:
        used.predict_names(NAMES[-3:], [objective])
        for surrogate in (used, unused):
            surrogate.update(rows([name], [objective]))
    used.forget_predictions()
    first, second = (s.predict_names(NAMES[30:60], [objective]) for s in (used, unused))
    assert (first == second).all()


def test_labels_between_fits_of_a_latency_are_learned():
    surrogate = surrogate_of(NAMES[:23], [MINE])
    before = surrogate.predict_names(NAMES[30:60], [MINE])
    surrogate.update(rows(NAMES[23:27], [MINE]))
    true = np.array([row.targets[MINE] for row in rows(NAMES[30:60], [MINE])])
    after = surrogate.predict_names(NAMES[30:60], [MINE])
    assert not np.array_equal(before, after)
    assert spearman(after[:, 0, 0], true) > 0.7


def counted_fit_features(fits):
    original = online_surrogate.fit_features

    def counted(graph_features, features, *args, **kwargs):
        fits.append(len(features))
        return original(graph_features, features, *args, **kwargs)

    return counted


def test_a_label_without_a_new_fit_changes_predictions():
    surrogate = surrogate_of(NAMES[:20], OBJECTIVE)
    before = predicted(surrogate, NAMES[21:])
    surrogate.update([Row("nasbench201", NAMES[20], {"accuracy": 20.0})])
    assert np.abs(predicted(surrogate, NAMES[21:]) - before).max() > 0.01
