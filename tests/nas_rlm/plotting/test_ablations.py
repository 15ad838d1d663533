import pytest

from nas_rlm.plotting.ablations import draw_ablations, group_trials


def test_a_panel_for_each_ablation_and_a_dot_for_each_trial_and_space():
    correlations = {
        (ablation, trial, seed, space): 0.5 + 0.1 * seed
        for ablation, trial in (("heads", "decoder"), ("heads", "head"), ("text", "flat"))
        for space in ("nasbench101", "nasbench201")
        for seed in (0, 1)
    }
    groups = group_trials(correlations)
    assert groups["text"] == {"flat": {"nasbench101": [0.5, 0.6], "nasbench201": [0.5, 0.6]}}
    panels = draw_ablations(groups).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["heads", "text"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["decoder", "head"]
    bars, dots = panels[0].lines[::2], panels[0].lines[1::2]
    assert len(bars) == len(dots) == 4
    assert all(list(bar.get_xdata()) == [0.5, 0.6] for bar in bars)
    assert all(dot.get_xdata()[0] == pytest.approx(0.55) for dot in dots)
