from nas_rlm.plotting.hypervolume_curves import draw_hypervolume_curves, hypervolume_curves

STATISTICS = {
    ("first", "random", 100): (0.8, 0.02),
    ("first", "random", 50): (0.7, 0.01),
    ("first", "model", 50): (0.9, 0.0),
    ("second", "model", 50): (0.6, 0.1),
}


def test_curves_are_sorted_by_budget_and_empty_ones_are_left_out():
    curves = hypervolume_curves(STATISTICS, ["model", "random", "unused"])
    assert curves == {
        "first": {"model": [(50, 0.9, 0.0)], "random": [(50, 0.7, 0.01), (100, 0.8, 0.02)]},
        "second": {"model": [(50, 0.6, 0.1)]},
    }


def test_a_panel_for_each_title_and_a_line_for_each_method():
    methods = ["model", "random"]
    figure = draw_hypervolume_curves(
        hypervolume_curves(STATISTICS, methods), methods, "evaluations", log=True
    )
    first, second = figure.axes
    assert [line.get_label() for line in first.lines] == methods
    assert first.lines[1].get_xdata().tolist() == [50, 100]
    assert first.lines[1].get_ydata().tolist() == [0.7, 0.8]
    assert first.get_xscale() == "log"
    assert first.lines[0].get_color() == second.lines[0].get_color()
