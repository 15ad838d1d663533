import csv
import json
import shutil

import numpy as np
import pytest

from nas_rlm.cli import main
from nas_rlm.data import Row, read, write
from nas_rlm.devices.profiler import Measurement
from nas_rlm.search.acquisition import candidate_pool
from nas_rlm.search.run_directory import read_result
from tests.nas_rlm.cli.commands import SEARCH, SPACE, UNSAMPLED_SEARCH, refused, rows


def archs_of(folder):
    return [json.loads(line)["arch"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_search_resume_and_plot(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--resume"]) == 0
    assert str(tmp_path / "run" / "pareto.png") in capsys.readouterr().out
    kept = {n: (tmp_path / "run" / n).read_bytes() for n in ("front.csv", "log.jsonl", "pareto.png")}
    assert kept["log.jsonl"].count(b"\n") == 18
    (tmp_path / "run" / "log.jsonl").write_bytes(kept["log.jsonl"][:1000])
    (tmp_path / "run" / "front.csv").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert {n: (tmp_path / "run" / n).read_bytes() for n in kept} == kept
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == kept["pareto.png"]
    held = [
        Row("nasbench201", a, {"accuracy": 90.0, "latency/pixel3": 5.0}) for a in archs_of(tmp_path / "run")
    ]
    write(tmp_path / "true.parquet", held)
    pair = [
        "plot",
        str(tmp_path / "run"),
        "--pair",
        "accuracy,latency/pixel3",
        "--out",
        str(tmp_path / "p.png"),
    ]
    assert main([*pair, "--data", str(tmp_path / "true.parquet")]) == 0
    assert (tmp_path / "p.png").read_bytes() != kept["pareto.png"]
    assert "expected two objectives" in refused(capsys, *pair[:3], "accuracy")
    assert "the search has no flops" in refused(capsys, *pair[:3], "accuracy,flops")
    write(tmp_path / "true.parquet", [Row("nasbench101", "x", {"accuracy": 90.0})])
    assert "has none of the 18 architectures" in refused(capsys, *pair, "--data", tmp_path / "true.parquet")
    shutil.rmtree(tmp_path / "run" / "front")
    assert main(["report", str(tmp_path / "run")]) == 0
    assert {n: (tmp_path / "run" / n).read_bytes() for n in kept} == kept
    for name in ("again.svg", "again.pdf", "again.jpg"):
        assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 10_000


def test_a_ray_cluster_gives_the_same_files(tmp_path, model):
    pytest.importorskip("ray", reason="needs Ray")
    arguments = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3", "--out"]
    assert main([*arguments, str(tmp_path / "alone")]) == 0
    assert main([*arguments, str(tmp_path / "many"), "--ray", "local"]) == 0
    for name in ("front.csv", "log.jsonl", "feasibility.json", "settings.json"):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_the_directory_of_another_search_is_refused(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy", "--out", str(tmp_path / "run")]
    main(arguments)
    assert "--resume" in refused(capsys, *arguments)
    assert "seed 0 instead of 1" in refused(capsys, *arguments, "--resume", "--seed", "1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes")
    assert "holds no search" in refused(capsys, *arguments[:-1], tmp_path / "mine", "--resume")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_infeasible_constraints_are_reported(tmp_path, model, capsys):
    bound = ("--constraint", "latency/pixel3<=1e-6")
    command = [*UNSAMPLED_SEARCH, *model, *bound, "--objectives", "accuracy", "--out", tmp_path / "run"]
    assert "none of 260 architectures of nasbench201 meets latency/pixel3 ≤ 1e-06" in refused(
        capsys, *command
    )
    assert not (tmp_path / "run").exists()
    assert "none meets latency/pixel3<=1e-6" in refused(capsys, *command, "--sample", "0")
    assert not (tmp_path / "run" / "front.csv").exists()
    assert "--sample is -1" in refused(capsys, *command, "--sample", "-1")


def test_user_functions_and_exact_objectives_are_optimised(tmp_path, model, capsys):
    path = tmp_path / "mine.py"
    path.write_text("def skips(cell):\n    return str(cell).count('skip_connect')\n")
    command = [*UNSAMPLED_SEARCH, *model, "--objectives", "skips,flops", "--function", f"skips={path}:skips"]
    command += ["--maximise", "skips", "--constraint", "params<=900000", "--out", str(tmp_path / "run")]
    assert main([*command, "--sample", "30"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["of", "skips", "flops", "params", "params"]
    front = rows(tmp_path / "run" / "front.csv")
    assert [float(r["skips"]) for r in front] == sorted((float(r["skips"]) for r in front), reverse=True)
    for row in front:
        cell = SPACE.parse(row["arch"])
        assert [float(row[n]) for n in ("skips", "flops", "params")] == [
            *(row["arch"].count("skip_connect"), SPACE.flops(cell), SPACE.params(cell))
        ]
    page = (tmp_path / "run" / "report.html").read_bytes()
    assert main(["plot", str(tmp_path / "run")]) == main([*command, "--sample", "0", "--resume"]) == 0
    assert (tmp_path / "run" / "report.html").read_bytes() == page
    path.write_text(path.read_text() + "# another\n")
    assert "holds another search, with model" in refused(capsys, *command, "--resume")
    assert "unknown objective 'skips'" in refused(
        capsys, *SEARCH, *model, "--objectives", "skips", "--out", tmp_path / "other"
    )
    assert "'energy' is to be maximised" in refused(capsys, *command, "--maximise", "energy", "--resume")


def test_the_shipped_model_searches(shipped_rlm, tmp_path):
    arguments = [
        *SEARCH,
        "--objectives",
        "accuracy,latency/pixel3,latency/eyeriss",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(arguments) == 0
    accuracies = [float(r["accuracy"]) for r in rows(tmp_path / "run" / "front.csv")]
    assert accuracies == sorted(accuracies, reverse=True)
    assert 80 < accuracies[0] < 96


@pytest.fixture
def measuring(monkeypatch):
    """A device on which the latency of a network is the size of its ONNX file; it records its requests."""
    requests = []

    def measure(networks, device, plan):
        for network, content in networks:
            requests.append((str(device), network.row.arch_str, plan.python))
            yield network, Measurement(len(content) / 1e5, 1.0, 9.0, 0.0, 15)

    monkeypatch.setattr("nas_rlm.search.ray_cluster.measure", measure)
    monkeypatch.setattr("nas_rlm.search.ray_cluster.check_device", lambda device, python: None)
    monkeypatch.setattr("nas_rlm.search.acquisition.selection.POOL_SIZE", 30)
    return requests


BOX = ("--objectives", "accuracy,latency/torch-cpu-2t", "--measure", "torch-cpu-2t", "--budget", "14")


def test_labels_replace_predictions(tmp_path, model, capsys):
    cells = [str(SPACE.sample(np.random.default_rng(i))) for i in range(30)]
    held = [Row("nasbench201", a, {"accuracy": 99.0 + i / 10, "flops": 1.0}) for i, a in enumerate(cells[:3])]
    held += [Row("nasbench201", a, {"params": 1.0}) for a in cells[3:]]
    held += [Row("nasbench101", "x", {"accuracy": 3.0})]
    held.insert(0, Row("nasbench201", cells[0], {"accuracy": 1.0}))
    write(tmp_path / "mine.parquet", held)
    out, data = tmp_path / "run", ["--data", str(tmp_path / "mine.parquet")]
    command = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3,flops"]
    assert main([*command, *data, "--out", str(out)]) == 0
    output = capsys.readouterr()
    assert "3 with labels, " in output.out
    left = (
        *("ignored 29 of 32 rows", "1 of another space", "27 without accuracy"),
        "1 with a later row of the same architecture",
    )
    assert all(part in output.err for part in left)
    result = read_result(out)
    assert len(result.architectures) == 18 + 3
    found = dict(zip(result.architectures, result.values, strict=True))
    assert [set(found[a][0].tolist()) for a in cells[:3]] == [{99.0 + i / 10} for i in range(3)]
    assert found[cells[0]][2, 1] == SPACE.flops(SPACE.parse(cells[0]))
    assert result.status == dict.fromkeys(cells[:3], "measured")
    with open(out / "front.csv", newline="") as file:
        status = {row["arch"]: row["status"] for row in csv.DictReader(file)}
    assert status[cells[2]] == "measured" and set(status.values()) == {"measured", "predicted"}
    assert f"--data {data[1]}" in (out / "report.html").read_text()

    kept = {n: (out / n).read_bytes() for n in ("front.csv", "log.jsonl", "pareto.png", "report.html")}
    (out / "log.jsonl").write_bytes(kept["log.jsonl"][:-400])
    assert main([*command, *data, "--out", str(out), "--resume"]) == 0
    assert {n: (out / n).read_bytes() for n in kept} == kept
    write(tmp_path / "mine.parquet", held[:2])
    message = refused(capsys, *command, *data, "--out", out, "--resume")
    assert "holds another search, with model" in message
    assert "fingerprints of model, space, user functions and --data" in message


@pytest.mark.parametrize(
    ("rows_of", "message"),
    [
        ([Row("nasbench201", "x", {"accuracy": 90.0})], "'x'"),
        ([Row("nasbench101", "x", {"accuracy": 90.0})], "of nasbench201: it has accuracy of 'nasbench101'"),
        (
            [
                Row("nasbench201", "x", {"accuracy": 90.0}),
                Row("nasbench201", "y", {"latency/pixel3": 9.0}),
            ],
            "has no row of nasbench201 with accuracy and latency/pixel3",
        ),
    ],
)
def test_a_table_without_usable_labels_is_refused(tmp_path, model, capsys, rows_of, message):
    write(tmp_path / "mine.parquet", rows_of)
    command = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3", "--out", tmp_path / "run"]
    assert message in refused(capsys, *command, "--data", tmp_path / "mine.parquet")
    assert not (tmp_path / "run").exists()


def test_search_measures_and_resumes(tmp_path, model, measuring, capsys):
    arguments = [*SEARCH, *model, *BOX, "--python", "ssh box python", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    names = ("front.csv", "log.jsonl", "pareto.png", "measured.parquet")
    kept = {name: (tmp_path / "run" / name).read_bytes() for name in names}
    table = {
        row.arch_str: row.targets["latency/torch-cpu-2t"] for row in read(tmp_path / "run" / names[3]).rows
    }
    assert len(table) == len(measuring) <= 14
    assert {(device, python) for device, _, python in measuring} == {("torch-cpu-2t", "ssh box python")}
    front = rows(tmp_path / "run" / "front.csv")
    measured = [row["arch"] for row in front if row["status"] == "measured"]
    assert f"{len(table)} measured, {len(measured)} of them on the front" in said
    for row in front:
        assert (row["arch"] in table) == (row["status"] == "measured")
        if row["arch"] in table:
            assert float(row["latency/torch-cpu-2t"]) == pytest.approx(table[row["arch"]])
    (tmp_path / "run" / "log.jsonl").write_bytes(kept["log.jsonl"][:2000])
    before = len(measuring)
    assert main([*arguments, "--resume"]) == 0
    assert {name: (tmp_path / "run" / name).read_bytes() for name in names} == kept
    assert len(measuring) == before  # nothing is measured twice
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == kept["pareto.png"]


def test_labels_replace_predictions_and_count_as_measured_before(tmp_path, model, measuring, capsys):
    cells = list(dict.fromkeys(str(SPACE.sample(np.random.default_rng(i))) for i in range(200)))
    known = {cell: 50.0 + i / 100 for i, cell in enumerate(cells)}
    labels = [Row("nasbench201", a, {"accuracy": v}) for a, v in known.items()]
    before = {a: 1.0 + a.count("3x3") for a in cells[:12]}
    labels[:12] = [
        Row("nasbench201", a, {"accuracy": known[a], "latency/torch-cpu-2t": v}) for a, v in before.items()
    ]
    write(tmp_path / "mine.parquet", labels)
    out = tmp_path / "run"
    assert main([*SEARCH, *model, *BOX, "--data", str(tmp_path / "mine.parquet"), "--out", str(out)]) == 0
    assert "26 measured, 12 of them before, " in capsys.readouterr().out
    result = read_result(out)
    predictions = dict(zip(result.architectures, result.values, strict=True))
    shared = predictions.keys() & known.keys()
    assert shared > before.keys()
    assert all(set(predictions[a][0].tolist()) == {known[a]} for a in shared)
    measured = {
        row.arch_str: row.targets["latency/torch-cpu-2t"] for row in read(out / "measured.parquet").rows
    }
    assert len(measured) == 14 and not measured.keys() & before.keys()
    values = measured | before
    assert {a for a, status in result.status.items() if status == "measured"} == values.keys()
    assert all(predictions[a][1].tolist() == [v] * 3 for a, v in values.items())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--measure", "torch-cpu-2t"), "no budget for torch-cpu-2t"),
        (("--measure", "torch-cpu-2t", "--budget", "9"), "budget is 9, expected at least 10"),
        (("--measure", "torch-cpu-2t", "--budget", "20000"), "budget is 20,000, expected at most 15,625"),
        (("--budget", "20"), "budget is 20 without a device"),
        (
            ("--measure", "torch", "--budget", "20"),
            "no objective of torch-cpu-1t is among accuracy, latency/torch-cpu-2t",
        ),
        (("--measure", "toaster", "--budget", "20"), "there is no runtime 'toaster'"),
        (("--measure", "cpu", "--budget", "20"), "device type and threads: onnxruntime-cpu-1t"),
        ((), "unknown objective 'latency/torch-cpu-2t'"),
        (("--python", "python3"), "python is 'python3', but nothing is measured"),
    ],
)
def test_invalid_measurement_options_are_refused(tmp_path, model, measuring, capsys, more, message):
    wanted = ("--objectives", "accuracy,latency/torch-cpu-2t", "--out", tmp_path / "run")
    assert message in refused(capsys, *SEARCH, *model, *wanted, *more)
    assert not (tmp_path / "run").exists()
    assert not measuring


def test_a_search_without_a_worker_writes_nothing(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, *BOX, "--out", tmp_path / "run", "--python", "false"]
    assert "'false -m nas_rlm.devices.worker' does not start a worker" in refused(capsys, *arguments)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 30)
    monkeypatch.setattr(candidate_pool, "MIN_CHILDREN", 2)


def test_propose_selects_architectures_to_measure_next(tmp_path, model, capsys, small_pool):
    command = ["propose", *model, "--space", "nasbench201", "--objectives", "accuracy,latency/mine"]
    assert main([*command, "--count", "12", "--out", str(tmp_path / "first.txt")]) == 0
    first = (tmp_path / "first.txt").read_text().splitlines()
    assert len(set(first)) == 12
    rows = [Row("nasbench201", a, {"latency/mine": 1.0 + a.count("3x3")}) for a in first]
    write(tmp_path / "mine.parquet", [*rows, Row("nasbench201", "x", {"params": 1.0})])
    assert "half are those that the model ranks high and half are random" in capsys.readouterr().err
    assert main([*command, "--count", "3", "--data", str(tmp_path / "mine.parquet")]) == 0
    shown = capsys.readouterr()
    assert "first design" not in shown.err
    named = shown.out.splitlines()
    assert len(set(named)) == 3 and not set(named) & set(first)
    SPACE.parse(named[0])
    table = ["--data", tmp_path / "mine.parquet"]
    assert "unknown objective 'speed'" in refused(capsys, *command[:-1], "latency/mine,speed", *table)
    assert "has no accuracy or speed of nasbench201" in refused(
        capsys, *command[:-1], "accuracy,speed", *table
    )
    assert "--count is 0" in refused(capsys, *command, "--count", "0")
    assert "is a directory" in refused(capsys, *command, "--out", tmp_path)
    unmet = refused(capsys, *command, "--constraint", "params<=10")
    assert "examined meets params<=10: the smallest params is 73,306" in unmet


def test_objectives_that_need_no_measurement_are_not_proposed_for(model, capsys):
    command = ("propose", *model, "--space", "nasbench201", "--objectives", "params,flops")
    assert "params and flops need no measurements: expected an objective that does" in refused(
        capsys, *command
    )


def test_propose_says_what_is_wrong_with_labels(tmp_path, model, capsys, small_pool):
    cells = [str(SPACE.sample(np.random.default_rng(i))) for i in range(12)]
    (tmp_path / "cells.txt").write_text("\n".join(cells))
    table = tmp_path / "mine.parquet"
    command = ["propose", *model, "--space", "nasbench201", "--candidates", str(tmp_path / "cells.txt")]
    command += ["--data", str(table), "--objectives"]

    def write_targets(targets_of):
        write(table, [Row("nasbench201", cell, targets_of(i)) for i, cell in enumerate(cells)])

    write_targets(lambda i: {"accuracy": 0.5 + i / 50})
    assert main([*command, "accuracy"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "each candidate has a label: there are no others to propose" in shown.err
    assert "accuracy is at most 0.72: expected percentages" in shown.err
    write_targets(lambda i: {"accuracy": 50.0})
    assert main([*command[:-1], "--count", "2", "--seed", "1", "--objectives", "accuracy"]) == 2
    assert "the 12 labels of accuracy are equal: its predictions rank nothing" in capsys.readouterr().err
    write_targets(lambda i: {"accuracy": 50.0, "latency/x": float(i % 2)})
    assert main([*command, "accuracy,latency/x", "--count", "2"]) == 0
    assert "6 without accuracy or latency/x, or with 0: write more digits" in capsys.readouterr().err
    write_targets(lambda i: {"latency/x": 0.0})
    assert "has no latency/x of nasbench201 above 0" in refused(capsys, *command, "latency/x")


def test_candidates_restrict_propose_and_search(tmp_path, model, capsys, small_pool):
    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(str(SPACE.sample(rng)) for _ in range(12)))
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("\n".join(names) + "\n")
    common = [*model, "--space", "nasbench201", "--candidates", str(candidates)]
    assert main(["propose", *common, "--objectives", "accuracy,latency/mine", "--count", "20"]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(names)
    sizes = ["--algorithm", "random", "--population", "5", "--generations", "2", "--sample", "0"]
    assert (
        main(["search", *common, "--objectives", "flops,params", *sizes, "--out", str(tmp_path / "run")]) == 0
    )
    assert set(read_result(tmp_path / "run").architectures) <= set(names)
    candidates.write_text("\n".join([*names, "nonsense"]))
    assert "candidates.txt line 13: " in refused(capsys, "propose", *common, "--objectives", "accuracy")
    candidates.write_text("\n".join([*names, "", "other"]) + "\nnonsense")
    message = refused(capsys, "propose", *common, "--objectives", "accuracy")
    assert "line 14: " in message and "line 15: " in message
    candidates.write_text("\n".join([*names, names[2]]))
    message = refused(capsys, "propose", *common, "--objectives", "accuracy")
    assert f"candidates.txt lines 3 and 13 are the same architecture: {names[2]}" in message
    candidates.write_text("\n")
    assert "has no architectures" in refused(capsys, "search", *common, "--objectives", "flops", "--out", "x")
