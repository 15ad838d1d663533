from nas_rlm.plotting.reliability import MAX_LEGEND_ENTRIES, draw_reliability

INTERVALS, SHARES = (0.2, 0.4, 0.8), (0.1, 0.5, 0.9)


def test_a_line_for_each_objective():
    diagonal, line = draw_reliability(INTERVALS, {"cells accuracy": SHARES}).axes[0].lines
    assert line.get_label() == "cells accuracy"
    assert (tuple(line.get_xdata()), tuple(line.get_ydata())) == (INTERVALS, SHARES)
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())


def test_many_lines_have_no_legend():
    coverages = {str(i): SHARES for i in range(MAX_LEGEND_ENTRIES + 1)}
    assert draw_reliability(INTERVALS, coverages).axes[0].get_legend() is None
