import json
import subprocess
import sys

import numpy as np
import pytest

import nas_rlm
from nas_rlm.cli import main
from nas_rlm.data.objective_kinds import Declaration
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.search.run_directory import read_result

SPACE = nas_rlm.get_space("nasbench201")
PAIR = ["accuracy", "latency/pixel3"]
SMALL = {"population": 6, "generations": 3, "feasibility_samples": 10}
REPORT_FILES = ("front.csv", "log.jsonl", "settings.json", "feasibility.json", "samples.json", "report.html")
PICTURES = ("pareto.png", "hypervolume.png")


@pytest.fixture(scope="module")
def study(tiny_checkpoint):
    return nas_rlm.run_search("nasbench201", PAIR, model=tiny_checkpoint, seed=3, **SMALL)


@pytest.fixture(scope="module")
def cli_directory(tiny_checkpoint, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli") / "run"
    arguments = ["search", "--space", "nasbench201", "--objectives", ",".join(PAIR), "--seed", "3"]
    arguments += ["--population", "6", "--generations", "3", "--sample", "10"]
    assert main([*arguments, "--model", str(tiny_checkpoint), "--out", str(directory)]) == 0
    return directory


def test_the_command_line_and_the_python_api_write_the_same_run_directory(study, cli_directory, tmp_path):
    in_memory = study.report(tmp_path / "run")
    assert in_memory == tmp_path / "run"
    for name in (*REPORT_FILES, *PICTURES):
        assert (in_memory / name).read_bytes() == (cli_directory / name).read_bytes(), name
    assert {p.name for p in (in_memory / "front").iterdir()} == {
        p.name for p in (cli_directory / "front").iterdir()
    }


def test_a_run_directory_is_written_during_the_search(cli_directory, tiny_checkpoint, tmp_path):
    out = tmp_path / "run"
    study = nas_rlm.run_search("nasbench201", PAIR, model=tiny_checkpoint, seed=3, directory=out, **SMALL)
    assert study.directory == out
    for name in (*REPORT_FILES, *PICTURES):
        assert (out / name).read_bytes() == (cli_directory / name).read_bytes(), name
    with pytest.raises(ValueError, match="already holds a search: continue it with --resume"):
        nas_rlm.run_search("nasbench201", PAIR, model=tiny_checkpoint, seed=3, directory=out, **SMALL)
    (out / "front.csv").unlink()
    again = nas_rlm.run_search(
        "nasbench201", PAIR, model=tiny_checkpoint, seed=3, directory=out, resume=True, **SMALL
    )
    assert again.front == study.front
    assert (out / "front.csv").is_file()


def test_records_have_every_evaluated_architecture_with_its_quantiles(study):
    records = study.to_records()
    assert [r["architecture"] for r in records] == study.result.architectures
    assert list(records[0]) == [
        *("architecture", *PAIR),
        *(f"{objective}@{level}" for objective in PAIR for level in (0.1, 0.5, 0.9)),
        *("status", "is_feasible", "is_on_front"),
    ]
    for record, values in zip(records, study.result.values, strict=True):
        for k, objective in enumerate(PAIR):
            assert [record[f"{objective}@{level}"] for level in (0.1, 0.5, 0.9)] == values[k].tolist()
            assert record[objective] == values[k, 1]
    assert {r["status"] for r in records} == {"predicted"}
    assert json.loads(json.dumps(records)) == records


def test_the_front_is_sorted_by_the_first_objective(study):
    front = study.front
    assert front == [study.to_records()[i] for i in study.result.front]
    assert all(record["is_on_front"] and record["is_feasible"] for record in front)
    accuracies = [record["accuracy"] for record in front]
    assert accuracies == sorted(accuracies, reverse=True)
    assert f"{len(front)} on the front" in repr(study)


def test_a_study_is_loaded_from_its_run_directory(study, cli_directory, tmp_path):
    loaded = nas_rlm.SearchRun.load(cli_directory)
    assert loaded.front == study.front
    assert loaded.settings == study.settings
    assert loaded.measurements == []
    copy = loaded.report(tmp_path / "copy")
    for name in (*REPORT_FILES, *PICTURES):
        assert (copy / name).read_bytes() == (cli_directory / name).read_bytes(), name
    (copy / "report.html").unlink()
    nas_rlm.SearchRun.load(copy).report()
    assert (copy / "report.html").read_bytes() == (cli_directory / "report.html").read_bytes()
    with pytest.raises(FileNotFoundError, match="holds no search: expected the --out of nas-rlm search"):
        nas_rlm.SearchRun.load(tmp_path)


def test_a_plot_is_a_file_and_a_figure(study, cli_directory, tmp_path):
    figure = study.plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes() == (cli_directory / "pareto.png").read_bytes()
    assert len(figure.axes) == 1
    labels = [nas_rlm.Row("nasbench201", study.front[0]["architecture"], dict.fromkeys(PAIR, 5.0))]
    figure = study.plot(pairs=[("accuracy", "latency/pixel3")], labels=labels)
    assert figure.axes[0].get_xlabel() == "accuracy (%)"
    with pytest.raises(ValueError, match=r"'front\.txt' is not a picture"):
        study.plot("front.txt")
    with pytest.raises(ValueError, match="rows in memory has none of the 18 architectures"):
        study.plot(labels=[nas_rlm.Row("nasbench201", "x", {"accuracy": 5.0})])


@pytest.mark.parametrize("kind", ["rows", "table", "path"])
def test_labels_replace_predictions(tiny_checkpoint, tmp_path, kind):
    cells = [str(SPACE.sample(np.random.default_rng(i))) for i in range(3)]
    rows = [nas_rlm.Row("nasbench201", cell, {"accuracy": 97.0 + i}) for i, cell in enumerate(cells)]
    nas_rlm.write_table(tmp_path / "mine.parquet", rows)
    labels = {"rows": rows, "table": nas_rlm.Table("mine", rows), "path": tmp_path / "mine.parquet"}[kind]
    study = nas_rlm.run_search("nasbench201", PAIR, model=tiny_checkpoint, labels=labels, **SMALL)
    records = {r["architecture"]: r for r in study.to_records()}
    assert len(records) == 18 + 3
    for i, cell in enumerate(cells):
        assert records[cell]["accuracy"] == records[cell]["accuracy@0.1"] == 97.0 + i
        assert records[cell]["status"] == "measured"
    assert nas_rlm.SearchRun.load(study.report(tmp_path / "run")).front == study.front


@pytest.mark.parametrize("source", ["model", "labels", "argument", ""])
def test_a_declared_direction_is_that_of_the_search(tiny_checkpoint, source):
    rlm = nas_rlm.RLM.load(tiny_checkpoint).with_objectives(["score", "throughput/box"])
    rlm.maximised = ("score",) if source == "model" else ()
    cells = [str(SPACE.sample(np.random.default_rng(i))) for i in range(12)]
    rows = [
        nas_rlm.Row("nasbench201", c, {"score": -2.5 + i, "throughput/box": 5.0}) for i, c in enumerate(cells)
    ]
    declared = {"score": Declaration(direction="maximize")} if source == "labels" else {}
    study = nas_rlm.run_search(
        SPACE,
        ["score", "throughput/box"],
        model=rlm,
        labels=nas_rlm.Table("mine", rows, declared),
        maximise=["score"] if source == "argument" else (),
        **SMALL,
    )
    assert study.settings.maximised == (("score",) if source else ())
    scores = [record["score"] for record in study.to_records()]
    assert study.front[0]["score"] == (max(scores) if source else min(scores))
    assert study.settings.is_maximised("throughput/box")


def test_functions_constraints_and_a_model_in_memory(tiny_checkpoint):
    def skips(cell):
        return str(cell).count("skip_connect")

    bound = nas_rlm.Constraint("params", 900_000.0, is_upper=True)
    study = nas_rlm.run_search(
        SPACE,
        ["skips", "flops"],
        model=nas_rlm.RLM.load(tiny_checkpoint),
        functions={"skips": skips},
        maximise=["skips"],
        constraints=[bound],
        **SMALL,
    )
    assert study.settings.constraints == ("params<=900000.0",)
    assert all(r["params"] <= 900_000 for r in study.front)
    for record in study.front:
        cell = SPACE.parse(record["architecture"])
        exact = [SPACE.flops(cell), SPACE.params(cell)]
        assert [record[name] for name in EXACT_OBJECTIVES] == exact
        assert record["skips"] == skips(cell)


def test_the_feasibility_estimate_is_passed_on_before_the_search(tiny_checkpoint):
    estimates = []
    study = nas_rlm.run_search(
        "nasbench201", PAIR, model=tiny_checkpoint, on_feasibility=estimates.append, **SMALL
    )
    assert estimates == [study.feasibility]
    assert study.feasibility.num_architectures == 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"space": "nasbench20"}, "no search space 'nasbench20'"),
        ({"objectives": "accuracy"}, "objectives is 'accuracy': expected a list"),
        ({"objectives": ["accurcy"]}, "unknown objective 'accurcy'; did you mean accuracy"),
        ({"objectives": []}, "at least one objective"),
        ({"constraints": "flops<=3"}, "constraints is 'flops<=3': expected a list"),
        ({"constraints": ["flops<3"]}, "constraint 'flops<3' is not"),
        ({"algorithm": "nsga"}, "no algorithm 'nsga': did you mean"),
        ({"maximise": ["energy"]}, "'energy' is to be maximised, but is not in accuracy, latency/pixel3"),
        ({"functions": {"a<b": len}}, "'a<b' is not an objective's name"),
        ({"functions": {"accuracy": len}}, "there is an objective 'accuracy' already"),
        ({"functions": {"mine": 3}}, "function 'mine' is 3, expected a function of an architecture"),
        ({"functions": ["mine"]}, "function 'mine' is not NAME=FILE.py:FUNCTION"),
        ({"labels": [nas_rlm.Row("nasbench101", "x", {"accuracy": 9.0})]}, "rows in memory has no accuracy"),
        ({"device": "onnxruntime-cpu-1t"}, "no budget for onnxruntime-cpu-1t"),
        ({"device": "onnxruntime-cpu-1t", "budget": 20}, "a search that measures needs a run directory"),
        ({"resume": True}, "resuming a search needs a run directory"),
        ({"python": "python3"}, "python is 'python3', but nothing is measured"),
        ({"feasibility_samples": -1}, "-1 samples for feasibility"),
        ({"constraints": ["latency/pixel3<=1e-6"]}, "none of .* architectures of nasbench201 meets"),
    ],
)
def test_bad_arguments_are_named(tiny_checkpoint, changed, message):
    arguments = {"space": "nasbench201", "objectives": PAIR, "model": tiny_checkpoint, **SMALL, **changed}
    with pytest.raises(ValueError, match=message):
        nas_rlm.run_search(**arguments)


def test_an_empty_front_is_refused(tiny_checkpoint, tmp_path):
    arguments = {"constraints": ["latency/pixel3<=1e-6"], **SMALL, "feasibility_samples": 0}
    out = tmp_path / "run"
    with pytest.raises(ValueError, match="18 architectures evaluated, none meets latency/pixel3<=1e-6"):
        nas_rlm.run_search("nasbench201", PAIR, model=tiny_checkpoint, directory=out, **arguments)
    with pytest.raises(ValueError, match="no architecture meets the constraints so far"):
        nas_rlm.SearchRun.load(out).report()


def test_a_study_in_memory_has_no_directory_to_write_again(study):
    with pytest.raises(ValueError, match="no run directory: expected the path of a new one"):
        study.report()


def test_run_directories_of_earlier_versions_load(cli_directory, tmp_path):
    settings = json.loads((cli_directory / "settings.json").read_text())
    for name in ("device", "budget", "maximised", "functions", "data"):
        del settings[name]
    feasibility = json.loads((cli_directory / "feasibility.json").read_text())
    earlier = {"num_architectures": "architectures", "constraint_rates": "shares", "feasible_rate": "share"}
    feasibility = {earlier.get(name, name): value for name, value in feasibility.items()}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "feasibility.json").write_text(json.dumps(feasibility))
    (tmp_path / "log.jsonl").write_bytes((cli_directory / "log.jsonl").read_bytes())
    study = nas_rlm.SearchRun.load(tmp_path)
    assert study.result.architectures == read_result(cli_directory).architectures
    assert study.feasibility == nas_rlm.SearchRun.load(cli_directory).feasibility
    study.report()
    assert (tmp_path / "front.csv").read_bytes() == (cli_directory / "front.csv").read_bytes()


def test_public_names_are_imported_on_first_use():
    code = (
        "import sys, nas_rlm\n"
        "assert not {'torch', 'numpy', 'onnx', 'search_spaces'} & sys.modules.keys()\n"
        "assert set(nas_rlm.__all__) <= set(dir(nas_rlm))\n"
        "assert nas_rlm.get_space('nasbench201').name in nas_rlm.space_names()\n"
        "assert 'torch' not in sys.modules\n"
        "for name in nas_rlm.__all__: getattr(nas_rlm, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="has no attribute 'run_serach'"):
        nas_rlm.run_serach  # noqa: B018


def test_help_and_drawing_need_no_torch(cli_directory, tmp_path):
    code = (
        "import sys\nfrom nas_rlm.cli import main\n"
        f"assert main(['plot', {str(cli_directory)!r}, '--out', {str(tmp_path / 'p.png')!r}]) == 0\n"
        "main(['--help'])\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)
