import json

import pytest

import search_spaces
from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import GENOTYPE, write_nds


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


@pytest.mark.parametrize("name", ["DARTS_in", "DARTS_lr-wd_in", "darts_IN"])
def test_accuracies_on_imagenet_are_an_objective_of_their_own(tmp_path, name):
    rows = import_benchmark("nds", write_nds(tmp_path, name))
    assert [(row.space, row.targets) for row in rows] == [("nds_darts", {"accuracy/imagenet": 87.5})] * 2


@pytest.mark.parametrize("name", ["DARTS", "DARTS_fix-w-d", "DARTS_lr-wd"])
def test_other_suffixes_are_settings_of_cifar_10(tmp_path, name):
    for row in import_benchmark("nds", write_nds(tmp_path, name)):
        assert row.targets == {"accuracy": 87.5, "params": 123456.0, "flops": 7890.0}


@pytest.mark.parametrize(
    ("change", "kind", "targets"),
    [
        ({"test_ep_top1": [60.0, None]}, "of accuracy ", {"params", "flops"}),
        ({"test_ep_top1": [60.0, 120.0]}, "of accuracy ", {"params", "flops"}),
        ({"test_ep_top1": [60.0, -1]}, "of accuracy ", {"params", "flops"}),
        ({"test_ep_top1": [60.0, float("nan")]}, "of accuracy ", {"params", "flops"}),
        ({"test_ep_top1": []}, "of accuracy ", {"params", "flops"}),
        ({"test_ep_top1": None}, "of accuracy ", {"params", "flops"}),
        ({"params": -1}, "of params ", {"accuracy", "flops"}),
        ({"flops": "many"}, "of flops ", {"accuracy", "params"}),
        ({"net": None}, "", None),
        ({"net": {"genotype": GENOTYPE, "depth": 8}}, "", None),
        ({"net": {"genotype": {**GENOTYPE, "normal": []}, "depth": 8, "width": 16}}, "", None),
    ],
)
def test_entries_that_are_not_valid_are_left_out(tmp_path, change, kind, targets):
    path = write_nds(tmp_path)
    valid, other = json.loads(path.read_text())
    path.write_text(json.dumps([other | change, valid]))
    with pytest.warns(UserWarning, match=f"^1 entry {kind}is not valid and was left out: DARTS_0: "):
        rows = import_benchmark("nds", path)
    assert rows[-1].targets == {"accuracy": 87.5, "params": 123456.0, "flops": 7890.0}
    assert [row.targets.keys() for row in rows[:-1]] == ([] if targets is None else [targets])


def test_groups_and_entries_of_other_types_are_left_out(tmp_path):
    path = write_nds(tmp_path, grouped=True)
    path.write_text(json.dumps({**json.loads(path.read_text()), "low": [5], "other": "x"}))
    with pytest.warns(UserWarning, match="^2 entries are not valid"):
        assert len(import_benchmark("nds", path)) == 2
