import numpy as np
import pytest

from nas_rlm.plotting.probability import draw_probability_plot, probability_coordinates


def test_coordinates_are_normal_scores_among_the_measured_values():
    measured = 10.0 ** np.arange(9)
    same, higher = (
        probability_coordinates(measured, measured),
        probability_coordinates(measured, 3 * measured),
    )
    assert same[0] == pytest.approx(same[1]) and same[0][4] == pytest.approx(0)
    assert (higher[1] >= higher[0]).all() and (higher[1] > higher[0])[:-1].all()
    assert np.isfinite(probability_coordinates(measured, np.array([-1.0] * 5 + [1e99] * 4))).all()


def test_the_plot_has_a_panel_for_each_data_set():
    measured = np.random.default_rng(0).lognormal(size=200)
    panels = draw_probability_plot({f"memory {i}": np.stack([measured, measured]) for i in range(5)}).axes
    assert len(panels) == 5 and all("Spearman 1.000" in panel.get_title(loc="left") for panel in panels)
