import pytest

import search_spaces
from nas_rlm.data.importers import import_benchmark
from tests.nas_rlm.data.importers.published_files import write_nds


@pytest.mark.parametrize("grouped", [True, False])
def test_spaces_of_cells_are_found_by_the_name_of_the_file(tmp_path, grouped):
    first, second = import_benchmark("nds", write_nds(tmp_path, grouped=grouped))
    assert first.space == "nds_darts"
    assert first.targets == {"accuracy": 87.5, "params": 123456.0, "flops": 7890.0}
    assert search_spaces.get("nds_darts").parse(second.arch_str).depth == 8


@pytest.mark.parametrize(
    ("name", "block", "extra", "space"),
    [
        ("Vanilla", "vanilla_block", {}, "nds_vanilla"),
        ("ResNet", "res_basic_block", {}, "nds_resnet"),
        ("ResNeXt-A", "res_bottleneck_block", {"bot_muls": [0.5] * 3, "num_gs": [2] * 3}, "nds_resnext_a"),
        ("ResNeXt-B", "res_bottleneck_block", {"bot_muls": [1.0] * 3, "num_gs": [4] * 3}, "nds_resnext_b"),
    ],
)
def test_spaces_of_stages_are_found_by_the_blocks(tmp_path, name, block, extra, space):
    net = {"block_type": block, "ds": [1, 2, 3], "ws": [16, 32, 64], "ss": [1, 2, 2], **extra}
    assert {r.space for r in import_benchmark("nds", write_nds(tmp_path, name, net))} == {space}


def test_files_of_other_names_are_refused(tmp_path):
    path = write_nds(tmp_path, "Mystery")
    with pytest.raises(ValueError, match="its name does not name a design space"):
        import_benchmark("nds", path)
