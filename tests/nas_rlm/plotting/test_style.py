import pytest
from matplotlib.figure import Figure

from nas_rlm.plotting.style import FORMATS, check_picture_path, save_figure, style_axis


@pytest.mark.parametrize("suffix", [*FORMATS])
def test_equal_figures_give_equal_files(tmp_path, suffix):
    for name in ("one", "two"):
        figure = Figure()
        style_axis(axis := figure.subplots())
        axis.plot([1, 2], [3, 4])
        save_figure(figure, tmp_path / f"{name}{suffix}")
    one, two = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("one", "two"))
    assert len(one) > 1000
    assert one == two or suffix == ".svg"  # whose identifiers are random


def test_bad_picture_paths_are_refused(tmp_path):
    check_picture_path(tmp_path / "new" / "picture.png")
    with pytest.raises(ValueError, match=r"'picture.txt' is not a picture: expected .png, .svg, .pdf, .jpg"):
        check_picture_path(tmp_path.__class__("picture.txt"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="is a directory"):
        check_picture_path(tmp_path / "folder.png")
