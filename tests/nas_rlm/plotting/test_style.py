import pytest
from matplotlib.figure import Figure

from nas_rlm.plotting.style import FORMATS, check_picture, plain, save


@pytest.mark.parametrize("suffix", [*FORMATS])
def test_a_picture_is_the_same_each_time(tmp_path, suffix):
    for name in ("one", "two"):
        figure = Figure()
        plain(axis := figure.subplots())
        axis.plot([1, 2], [3, 4])
        save(figure, tmp_path / f"{name}{suffix}")
    one, two = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("one", "two"))
    assert len(one) > 1000
    assert one == two or suffix == ".svg"  # whose identifiers are random


def test_where_no_picture_can_be(tmp_path):
    check_picture(tmp_path / "new" / "picture.png")
    with pytest.raises(ValueError, match=r"'picture.txt' is no picture: expected .png, .svg, .pdf, .jpg"):
        check_picture(tmp_path.__class__("picture.txt"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        check_picture(tmp_path / "folder.png")
