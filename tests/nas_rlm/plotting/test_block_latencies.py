import pytest

from nas_rlm.plotting.block_latencies import COLORS, block_info, draw_blocks, shortened
from nas_rlm.plotting.style import save_figure
from nas_rlm.reports.comparison import BlockLatency, ComparedNetwork, Comparison, Prediction

BLOCKS = (
    BlockLatency(32, "convolution", 5, 2.0),
    BlockLatency(32, "function", 5, 0.5),
    BlockLatency(16, "convolution", 3, 1.0),
    BlockLatency(0, "product", 1, 0.01),
    BlockLatency(0, "constant", 0, 0.04),
)


def network(name, blocks, objective="latency/box"):
    median = sum(block.latency for block in blocks)
    return ComparedNetwork(name, 1, 2, 3, {objective: Prediction(median, median / 2, 2 * median)}, blocks)


def comparison(*names):
    return Comparison(("latency/box",), "latency/box", tuple(network(name, BLOCKS) for name in names))


def test_bars_are_stacked_by_stage():
    info = block_info(comparison("a.onnx", "b.onnx"))
    assert [bar.name for bar in info.bars] == ["a.onnx", "b.onnx"]
    bar = info.bars[0]
    assert [(s.start, s.width, s.layer_class) for s in bar.segments] == [
        (pytest.approx(start), block.latency, block.layer_class)
        for start, block in zip((0, 2, 2.5, 3.5, 3.51), BLOCKS, strict=True)
    ]
    assert bar.total == pytest.approx(3.55)
    assert [(s.start, s.width) for s in bar.stages] == [
        (pytest.approx(0), pytest.approx(2.5)),
        (pytest.approx(2.5), pytest.approx(1)),
        (pytest.approx(3.5), pytest.approx(0.05)),
    ]
    assert [s.label for s in bar.stages] == ["32 px", "16 px", ""]
    assert info.classes == ("convolution", "product", "function", "constant")
    assert info.label == "latency on box (ms)"


def test_short_bars_have_no_labels_beside_a_long_one():
    blocks = (BlockLatency(0, "product", 1, 100.0),)
    both = Comparison(("latency/box",), "latency/box", (network("a", BLOCKS), network("b", blocks)))
    info = block_info(both)
    assert [s.label for s in info.bars[0].stages] == ["", "", ""]
    assert [s.label for s in info.bars[1].stages] == ["no image"]


def test_a_rectangle_for_each_segment(tmp_path):
    info = block_info(comparison("a_$x$.onnx", "b.onnx"))
    figure = draw_blocks(info)
    bars = figure.axes[0].patches
    for bar, segment in zip(bars[:5], info.bars[0].segments, strict=True):
        assert (bar.get_x(), bar.get_width()) == pytest.approx((segment.start, segment.width))
    assert len(bars) == 10
    assert len({COLORS[name] for name in info.classes}) == len(info.classes)
    save_figure(figure, tmp_path / "blocks.png")
    assert (tmp_path / "blocks.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (("latency/a",), "predicts latency/a, so"),
        (("accuracy", "latency/a", "latency/b"), "predicts latency/a and 1 more, so"),
        ((), "predicts an objective, so"),
        (("accuracy",), "predicts an objective, so"),
    ],
)
def test_without_blocks_there_is_no_picture(objectives, message):
    with pytest.raises(ValueError, match=message):
        block_info(Comparison(objectives, "", ()))


def test_long_names_are_shortened():
    (name,) = shortened([f"{'x' * 60}/{'y' * 60}.onnx"])
    assert len(name) == 40
    assert name.startswith("…y")
    assert name.endswith("y.onnx")
