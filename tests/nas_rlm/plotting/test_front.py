from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.plotting import density as density_module
from nas_rlm.plotting import front
from nas_rlm.plotting.style import save_figure
from nas_rlm.search.loop import search
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
TRIPLE = ("accuracy", "latency/pixel3", "latency/eyeriss")


def run_search(objectives=TRIPLE, **changed):
    settings = SearchSettings("nasbench201", objectives, population=30, generations=6, **changed)
    result = search(SPACE, StubPredictor(), settings)
    names = [result.architectures[i] for i in front.highlights(result)]
    samples_of_one = StubPredictor().sample(SPACE, names, settings.all_objectives, 200) if names else []
    return result, dict(zip(names, samples_of_one, strict=True))


def make_result(points, objectives=("accuracy", "latency/pixel3")):
    medians = np.array(points, dtype=float)
    names = [str(i) for i in range(len(points))]
    return SearchResult(
        SearchSettings("nasbench201", objectives), names, np.repeat(medians[:, :, None], 3, axis=2)
    )


def test_a_panel_for_each_latency():
    result, samples = run_search()
    info = front.front_info(result, samples)
    assert [(p.x, p.y) for p in info.panels] == [
        ("latency/pixel3", "accuracy"),
        ("latency/eyeriss", "accuracy"),
    ]
    for column, panel in enumerate(info.panels, 1):
        assert np.array_equal(panel.front, result.medians[result.front][:, [column, 0]])
        assert len(panel.feasible) == len(result.architectures)
        assert {tuple(p) for p in panel.outline} <= {tuple(p) for p in panel.front}
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(panel.outline))


def test_densities_are_centred_on_medians_and_correlated():
    result, samples = run_search()
    for panel in front.front_info(result, samples).panels:
        assert [d.name for d in panel.densities] == list(samples)
        for density in panel.densities:
            medians = result.medians[result.architectures.index(density.name)]
            assert density.point == (medians[TRIPLE.index(panel.x)], medians[0])
            row, column = np.unravel_index(density.density.argmax(), density.density.shape)
            assert density.x[column] == pytest.approx(density.point[0], abs=2.0)
            assert density.y[row] == pytest.approx(density.point[1], abs=1.0)
            assert 0.4 < density.correlation < 0.9
            assert density.levels[0] < density.levels[1] < density.density.max()


def test_contours_contain_their_probability_mass():
    rng = np.random.default_rng(0)
    samples_of_one = rng.multivariate_normal([90, 10], [[1, 0.7], [0.7, 1]], size=4000)
    result = make_result([[90, 10]])
    density = front.front_info(result, {"0": samples_of_one}).panels[0].densities[0]
    share = density.density / density.density.sum()
    for mass, level in zip(density_module.CONTOUR_MASSES, density.levels, strict=True):
        assert share[density.density >= level].sum() == pytest.approx(mass, abs=0.08)
    assert density.correlation == pytest.approx(0.68, abs=0.05)


@pytest.mark.parametrize(
    "samples_of_one",
    [
        np.full((64, 2), 90.0),
        np.zeros((64, 2)),
        np.stack([np.linspace(88, 92, 64), np.full(64, 10.0)], axis=1),
        np.stack([np.linspace(88, 92, 64), np.linspace(8, 12, 64)], axis=1),
        np.array([[90.0, 10.0]] * 63 + [[0.0, 1e9]]),
    ],
)
def test_degenerate_samples_have_a_density(samples_of_one, tmp_path):
    info = front.front_info(make_result([[90, 10], [80, 5]]), {"0": samples_of_one})
    density = info.panels[0].densities[0]
    assert np.isfinite(density.density).all()
    assert np.isfinite(density.levels).all()
    save_figure(front.draw_front(info), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def test_collinear_samples_have_correlation_one_and_constant_samples_zero():
    line = np.stack([np.linspace(88, 92, 64), np.linspace(8, 12, 64)], axis=1)
    correlations = [
        front.front_info(make_result([[90, 10]]), {"0": samples_of_one}).panels[0].densities[0].correlation
        for samples_of_one in (line, line[:1].repeat(64, axis=0))
    ]
    assert correlations == pytest.approx([1.0, 0.0])


def test_an_outlier_on_the_front_is_outside_the_axis_limits():
    points = [[94, 20], [93.5, 15], [93, 10], [92, 8], [91, 6], [90, 4], [10, 0.1]]
    result = make_result(points)
    panel = front.front_info(result, {}).panels[0]
    assert panel.ylim[0] > 85
    assert panel.num_hidden == 1
    assert 6 not in front.highlights(result)
    assert {0, 5} <= set(front.highlights(result))


def test_infeasible_architectures_are_drawn_separately():
    result, samples = run_search(("accuracy", "latency/pixel3"), constraints=("latency/pixel3<=8",))
    info = front.front_info(result, samples)
    panel = info.panels[0]
    assert (panel.feasible[:, 0] <= 8).all()
    assert (panel.infeasible[:, 0] > 8).all()
    assert len(panel.feasible) + len(panel.infeasible) == len(result.architectures)
    assert [(b.objective, b.bound) for b in panel.constraints] == [("latency/pixel3", 8.0)]
    assert f"{len(panel.feasible)} within the constraints" in info.subtitle


def test_one_objective_is_drawn_against_evaluations():
    result, samples = run_search(("accuracy",))
    panel = front.front_info(result, samples).panels[0]
    assert panel.x == "evaluation"
    assert panel.feasible[:, 0].tolist() == list(range(1, 181))
    assert panel.densities == []
    assert panel.num_hidden == 0


def test_the_picture_has_labels_and_a_legend(tmp_path):
    result, samples = run_search()
    figure = front.draw_front(front.front_info(result, samples))
    labels = [(a.get_xlabel(), a.get_ylabel()) for a in figure.axes]
    assert labels == [("latency on pixel3 (ms)", "accuracy (%)"), ("latency on eyeriss (ms)", "accuracy (%)")]
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert texts[:2] == ["evaluated", "predicted front"]
    assert any("joint" in t for t in texts)


def test_a_search_without_a_front_is_drawn(tmp_path):
    result = make_result([[90, 10], [91, 12]])
    infeasible = SearchResult(
        SearchSettings("nasbench201", ("accuracy", "latency/pixel3"), ("accuracy>=99",)),
        result.architectures,
        result.values,
    )
    assert front.highlights(infeasible).tolist() == []
    info = front.front_info(infeasible, {})
    assert info.panels[0].ylim[0] < 90 < 91 < info.panels[0].ylim[1]
    save_figure(front.draw_front(info), tmp_path / "picture.png")


def test_measured_and_predicted_points_of_the_front_differ():
    result = make_result([[90, 10], [80, 5], [70, 9]], ("accuracy", "latency/torch-cpu-1t"))
    settings = replace(result.settings, device="torch-cpu-1t", budget=10)
    result = replace(result, settings=settings, status={"1": "measured", "2": "measured"})
    info = front.front_info(result, {})
    (panel,) = info.panels
    assert panel.measured.tolist() == [False, True]
    assert "2 measured on torch-cpu-1t; 2 on the front, 1 of them measured" in info.subtitle
    figure = front.draw_front(info)
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert {"front, measured", "front, predicted"} <= set(texts)
    assert "predicted" not in info.title


def test_any_pair_of_objectives_is_drawn_with_measured_values():
    result, samples = run_search(TRIPLE[:2], constraints=("latency/eyeriss<=9",))
    names = result.architectures
    measured = {names[i]: {"latency/eyeriss": 3.0 + i, "latency/pixel3": 5.0} for i in [*result.front[:2], 7]}
    measured[names[0]] = {"accuracy": 90.0}
    pairs = [("latency/pixel3", "latency/eyeriss"), ("latency/eyeriss", "accuracy")]
    devices, accuracy = front.front_info(result, samples, pairs, measured).panels
    assert [(p.x, p.y) for p in (devices, accuracy)] == pairs
    assert len(devices.densities) == len(samples)
    medians = result.medians[result.front][:, [1, 2]]
    assert np.array_equal(devices.front, medians)
    assert devices.predicted_and_measured.tolist() == [
        [list(medians[k]), [5.0, 3.0 + i]] for k, i in enumerate(result.front[:2].tolist())
    ]
    count, in_x, in_y = devices.rank_correlations
    assert count == len({*result.front[:2], 7} - {0})
    assert in_x == 0 and -1 <= in_y <= 1
    assert accuracy.rank_correlations is None and len(accuracy.predicted_and_measured) == 0
    figure = front.draw_front(front.front_info(result, samples, pairs, measured))
    assert figure.axes[0].get_title(loc="left").startswith(f"Spearman of {count} evaluated and measured")
    assert figure.axes[1].get_title(loc="left") == ""
    assert "measured values of the front" in [t.get_text() for t in figure.legends[0].get_texts()]
    with pytest.raises(ValueError, match="the search has no latency/pixel; did you mean latency/pixel3"):
        front.front_info(result, samples, [("latency/pixel", "accuracy")])
