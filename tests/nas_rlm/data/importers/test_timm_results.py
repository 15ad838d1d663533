"""Result tables of timm: their values, and networks that timm builds."""

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read as read_table
from nas_rlm.data.importers.registry import import_benchmark
from nas_rlm.data.importers.timm_results import is_imagenet_alone, read_results
from nas_rlm.data.omissions import Omissions
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text.parser import parse_network
from nas_rlm.utils import extras

ACCURACIES = """model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation
eva_giant_patch14_336.m30m_ft_in22k_in1k,89.566,10.434,98.952,1.048,"1,013.01",336,1.000,bicubic
resnet18.a1_in1k,73.154,26.846,91.028,8.972,11.69,288,1.000,bicubic
resnet18.fb_swsl_ig1b_ft_in1k,73.286,26.714,91.730,8.270,11.69,224,0.875,bilinear
resnet18.tv_in1k,69.760,30.240,89.078,10.922,11.69,224,0.875,bilinear
resnet18.a3_in1k,68.252,31.748,88.172,11.828,11.69,224,0.950,bicubic
"""
SPEED_COLUMNS = (
    *("model", "infer_img_size", "infer_samples_per_sec", "infer_step_time", "infer_batch_size"),
    *("param_count", "infer_gmacs", "infer_macts"),
)
SPEEDS = f"""{",".join(SPEED_COLUMNS)}
test_vit,160,707.29,1.405,1,0.37,0.04,0.48
resnet18,160,218.15,4.568,1,11.69,0.93,1.27
mobilenetv3_large_150d,224,92.84,10.756,1,14.62,,
"""
OLDER_SPEEDS = """model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,param_count
resnet18,"1,218.15",0.8,256,160,11.69
"""


def results_of(tmp_path, content, *arguments):
    path, omissions = tmp_path / "results.csv", Omissions()
    path.write_text(content)
    return read_results(path, omissions, *arguments), omissions


def test_accuracies_are_the_best_of_the_checkpoints_of_an_architecture_and_image_size(tmp_path):
    results, omissions = results_of(tmp_path, ACCURACIES)
    assert results == {
        ("eva_giant_patch14_336", 336): {"accuracy/imagenet_any": 89.566},
        ("resnet18", 288): {"accuracy/imagenet": 73.154, "accuracy/imagenet_any": 73.154},
        ("resnet18", 224): {"accuracy/imagenet": 69.76, "accuracy/imagenet_any": 73.286},
    }
    assert not omissions


@pytest.mark.parametrize(
    ("tag", "alone"),
    [
        *(("tv_in1k", True), ("a1_in1k", True), ("sail_in1k_384", True), ("1200ep_in1k", True)),
        *(("in22k_ft_in1k", False), ("fb_dist_in1k", False), ("ns_jft_in1k", False), ("", False)),
        *(("ssld_stage2_ft_in1k", False), ("swag_lc_in1k", False), ("augreg_in21k", False)),
    ],
)
def test_tags_tell_whether_a_checkpoint_saw_other_data_or_a_teacher(tag, alone):
    assert is_imagenet_alone(tag) is alone


def test_speeds_are_milliseconds_an_image(tmp_path):
    results, omissions = results_of(tmp_path, SPEEDS, "i9_10940x")
    assert results[("resnet18", 160)] == {"latency/i9_10940x": pytest.approx(1000 / 218.15)}
    assert len(results) == 3 and not omissions
    results, _ = results_of(tmp_path, OLDER_SPEEDS, "rtx3090")
    assert results == {("resnet18", 160): {"latency/rtx3090": pytest.approx(1000 / 1218.15)}}


def test_patterns_limit_the_architectures(tmp_path):
    assert set(results_of(tmp_path, ACCURACIES, "", ["resnet*"])[0]) == {("resnet18", 288), ("resnet18", 224)}
    assert set(results_of(tmp_path, SPEEDS, "x", ["test_*", "mobilenetv3*"])[0]) == {
        ("test_vit", 160),
        ("mobilenetv3_large_150d", 224),
    }
    with pytest.raises(ValueError, match="no architecture is 'resnet81'; did you mean resnet18"):
        results_of(tmp_path, SPEEDS, "x", ["resnet81"])


def test_lines_that_are_not_valid_are_left_out(tmp_path):
    starts = ("a,160,0", "b,160,fast", "c,,5", "d,big,5", "f,160,500")
    lines = [*(start + ",1,1,1,1,1" for start in starts), "e,160"]
    results, omissions = results_of(tmp_path, "\n".join([",".join(SPEED_COLUMNS), *lines]), "x")
    assert results == {("f", 160): {"latency/x": 2.0}}
    assert omissions.counts == {"latency/x": 3, "": 2}
    assert omissions.reasons[""][0] == "line 4: the image size is '': expected a number of pixels"


@pytest.mark.parametrize(
    ("content", "device", "message"),
    [
        (ACCURACIES, "rtx4090", "it has accuracies, which do not depend on a device"),
        (SPEEDS, "", "expected its name, --device NAME"),
        ("", "", "the columns are : expected model, img_size or infer_img_size"),
        ("name,top1\na,1\n", "", "the columns are name, top1: expected model"),
        ("model,img_size\na,1\n", "", "and top1 or infer_samples_per_sec"),
    ],
)
def test_tables_of_another_kind_are_refused(tmp_path, content, device, message):
    with pytest.raises(ValueError, match=message):
        results_of(tmp_path, content, device)


def test_a_missing_package_is_reported_before_the_file_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "timm" else object())
    path = tmp_path / "results.csv"
    path.write_text("not a table")
    assert main(["data", "import", "timm", str(path), "--out", str(tmp_path / "t.parquet")]) == 2
    assert "the format timm needs timm, which is not installed: pip install 'nas-rlm[timm]'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("option", [["--device", "x"], ["--models", "a*"]])
@pytest.mark.parametrize("kind", ["csv", "nn_meter", "onnx"])
def test_options_of_timm_are_refused_for_other_formats(tmp_path, capsys, kind, option):
    path = tmp_path / "results.csv"
    path.write_text(SPEEDS)
    assert main(["data", "import", kind, str(path), *option, "--out", str(tmp_path / "t.parquet")]) == 2
    assert "timm" in capsys.readouterr().err


def test_networks_are_built_at_the_image_size(tmp_path, capsys):
    pytest.importorskip("timm", reason="timm is not installed")
    path, out = tmp_path / "speeds.csv", tmp_path / "t.parquet"
    path.write_text(SPEEDS + "test_vit,192,500,1.405,1,0.37,0.04,0.48\nno_such_model,160,5,1,1,1,1,1\n")
    options = ["--device", "i9", "--models", "test_vit", "resnet18", "no_such*", "--out", str(out)]
    assert main(["data", "import", "timm", str(path), *options]) == 0
    rows = {row.identifier: row for row in read_table(out).rows}
    assert rows.keys() == {"test_vit@160", "resnet18@160", "test_vit@192"}
    assert "no_such_model@160: timm" in capsys.readouterr().err
    resnet = rows["resnet18@160"]
    macs, params, _ = compute_costs(parse_network(resnet.input)).sums()
    assert (round(macs / 1e9, 2), round(params / 1e6, 2)) == (0.93, 11.69)  # as timm's table says
    assert (resnet.space, resnet.group) == ("timm", "resnet")
    assert resnet.targets == {"latency/i9": pytest.approx(1000 / 218.15)}
    assert "float[1,3,192,192]" in rows["test_vit@192"].input


def test_accuracies_are_imported_with_networks(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    path = tmp_path / "results-imagenet.csv"
    path.write_text(ACCURACIES)
    rows = import_benchmark("timm", path, models=["resnet18"])
    assert [row.identifier for row in rows] == ["resnet18@288", "resnet18@224"]
    assert rows[1].targets == {"accuracy/imagenet": 69.76, "accuracy/imagenet_any": 73.286}
