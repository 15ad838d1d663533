import numpy as np
import pytest

from nas_rlm.plotting.probability import draw_probits, probits


def test_places_among_the_true_values():
    true = 10.0 ** np.arange(9)
    same, higher = probits(true, true), probits(true, 3 * true)
    assert same[0] == pytest.approx(same[1]) and same[0][4] == pytest.approx(0)
    assert (higher[1] >= higher[0]).all() and (higher[1] > higher[0])[:-1].all()
    assert np.isfinite(probits(true, np.array([-1.0] * 5 + [1e99] * 4))).all()


def test_pictures_have_a_panel_for_each():
    true = np.random.default_rng(0).lognormal(size=200)
    panels = draw_probits({f"memory {i}": np.stack([true, true]) for i in range(5)}).axes
    assert len(panels) == 5 and all("Spearman 1.000" in panel.get_title(loc="left") for panel in panels)
