import csv
import json

import numpy as np
import onnx
import pytest

import nas_rlm
import search_spaces
from nas_rlm.cli import main
from nas_rlm.cli.finetune import _evidence
from nas_rlm.data import Row, write
from nas_rlm.graph.costs import compute_costs
from nas_rlm.surrogates import latency_fitting
from nas_rlm.surrogates.latency import layer_fitting, layer_network
from nas_rlm.text import from_architectures, from_onnx
from nas_rlm.text.parser import parse_network
from nas_rlm.training import finetune
from nas_rlm.training.recipe import Recipe, TableRecipe
from tests.nas_rlm.cli.commands import ARCHS, refused, rows

LEAVES_OUT = "leaves out what has fewer"


def test_finetune_adds_a_new_objective(tmp_path, model, table, archs, capsys):
    tuned = tmp_path / "tuned"
    objectives = ("--objectives", "latency/toaster")
    assert "latency/toaster" in refused(capsys, "predict", *model, *archs, *objectives)
    assert main(["finetune", *model, "--data", str(table), *objectives, "--out", str(tuned)]) == 0
    assert (
        main(["predict", "--model", str(tuned), *archs, *objectives, "--out", str(tmp_path / "t.csv")]) == 0
    )
    assert len(rows(tmp_path / "t.csv")) == len(ARCHS)
    line = refused(
        capsys, "finetune", *model, "--data", table, "--objectives", "latency/x", "--out", tmp_path / "no"
    )
    assert "latency/x" in line


def test_bad_objectives_of_finetune_are_refused(tmp_path, model, table, capsys):
    tuned = tmp_path / "tuned"
    command = ["finetune", *model, "--data", str(table)]
    assert "none of" in refused(capsys, *command, "--new-objective", "energy/mybox", "--out", tuned)
    refusals = {
        ("--new-objective", "accuracy"): "--objectives accuracy trains it again with your labels",
        ("--new-objective", "latency/pixel3"): f"{table} has latency/toaster instead: --new-objective"
        " latency/toaster learns it by its own name",
        ("--new-objective", "latency/x", "--objectives", "accuracy"): "expected one of them",
        ("--new-objective", "latency/x,latency/y"): "expected one name without commas and spaces",
        ("--new-objective", "latency/"): "expected one name without commas and spaces",
        ("--new-objective", "latency/my box"): "expected one name without commas and spaces",
        (): "nothing to learn: expected --objectives, or --new-objective",
        ("--objectives", "accuracy", "--learn", "encoder"): "no part 'encoder' of a network",
    }
    for more, message in refusals.items():
        assert message in refused(capsys, *command, *more, "--out", tuned)
        assert "is learned as" not in capsys.readouterr().out
    two = tmp_path / "two.parquet"
    write(two, [Row("nasbench201", ARCHS[0], {"latency/a": 3.0, "latency/b": 4.0})])
    line = refused(capsys, *command[:-1], two, "--new-objective", "latency/pixel3", "--out", tuned)
    assert f"{two} does not have it; did you mean latency/" in line
    assert not tuned.exists()


def test_a_device_can_have_another_name_than_in_the_table(tmp_path, model, table, archs, capsys):
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(5)
    cells = sorted({str(space.sample(rng)) for _ in range(20)})
    data, out = tmp_path / "toaster.parquet", tmp_path / "tuned"
    write(data, [Row("nasbench201", c, {"latency/toaster": 1.0 + c.count("conv_3x3")}) for c in cells])
    options = ["--new-objective", "latency/mybox", "--out", str(out)]
    assert "expected at least 10" in refused(capsys, "finetune", *model, "--data", table, *options)
    assert main(["finetune", *model, "--data", str(data), *options]) == 0
    printed = capsys.readouterr().out
    assert "latency/toaster is learned as latency/mybox" in printed
    assert main(["predict", "--model", str(out), *archs, "--objectives", "latency/mybox"]) == 0


def test_a_new_latency_is_learned_by_surrogates_that_say_how_good_they_are(tmp_path, model, archs, capsys):
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(5)
    cells = sorted({str(space.sample(rng)) for _ in range(30)})
    data, out = tmp_path / "new.parquet", tmp_path / "tuned"
    write(data, [Row("nasbench201", c, {"latency/new": 1.0 + c.count("conv_3x3")}) for c in cells])
    command = ["finetune", *model, "--data", str(data), "--new-objective", "latency/new", "--out", str(out)]
    assert main(command) == 0
    evidence = f"latency/new of nasbench201: leave-one-out on {len(cells)} networks: Spearman "
    assert evidence in capsys.readouterr().out
    config = json.loads((out / "config.json").read_text())
    (found,) = [s["evidence"] for s in config["surrogates"]["nasbench201"] if s["kind"] == "latency"]
    assert found["labels"] == len(cells) and 0 <= found["relative_error"] < found["spread"]
    assert main(["predict", "--model", str(out), *archs, "--objectives", "latency/new"]) == 0


def test_few_labels_of_an_accuracy_say_how_good_they_are(tmp_path, model, capsys):
    space, rng = search_spaces.get("nats_size"), np.random.default_rng(5)
    sizes = sorted({str(space.sample(rng)) for _ in range(14)})
    data, out = tmp_path / "few.parquet", tmp_path / "tuned"
    write(data, [Row("nats_size", s, {"accuracy": 50 + sum(map(int, s.split(":"))) / 10}) for s in sizes])
    command = ["finetune", *model, "--data", str(data), "--objectives", "accuracy", "--learn", "none"]
    assert main([*command, "--out", str(out)]) == 0
    expected = f"accuracy of nats_size: 5-fold cross-validation on {len(sizes)} networks: Spearman "
    assert expected in capsys.readouterr().out
    config = json.loads((out / "config.json").read_text())
    (found,) = config["surrogates"]["nats_size"]
    held_out = found["evidence"]["accuracy"]["held_out"]
    assert held_out["labels"] == len(sizes) and 0 <= held_out["error"] < held_out["spread"]


def test_finetune_without_surrogates(tmp_path, model, table):
    command = ["finetune", *model, "--data", str(table), "--objectives", "accuracy", "--no-surrogates"]
    assert main([*command, "--out", str(tmp_path / "tuned")]) == 0
    assert not (tmp_path / "tuned" / "surrogates.safetensors").exists()


def test_a_value_that_a_recipe_rejects_gets_one_line(tmp_path, model, table, monkeypatch, capsys):
    def rejected(*_, **__):
        Recipe((TableRecipe("a"),), seed=-1)

    monkeypatch.setattr(nas_rlm.RLM, "fine_tune", rejected)
    arguments = ("--data", table, "--objectives", "accuracy", "--out", tmp_path / "out", *model)
    line = refused(capsys, "finetune", *arguments)
    assert line == "nas-rlm: error: seed is -1: expected at least 0"


def test_tokenizer_train_writes_one_that_loads(tmp_path, table):
    out = tmp_path / "tokenizer.model"
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"tables: [{table}]\nspaces: [{{name: snas, networks: 20}}]\nvocab_size: 850\n")
    assert main(["tokenizer", "train", str(recipe), "--out", str(out)]) == 0
    assert 800 < nas_rlm.text.Tokenizer.load(out).vocab_size <= 850


def test_evaluate_prints_a_line_for_each_objective(tmp_path, model, table, capsys):
    picture = tmp_path / "predicted.png"
    assert main(["evaluate", *model, "--data", str(table), "--picture", str(picture)]) == 0
    assert picture.stat().st_size > 1000
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("table ")] == [
        ["objective", "rows"],
        ["accuracy", "6"],
    ]
    assert "is not a picture" in refused(capsys, "evaluate", *model, "--picture", tmp_path / "predicted.txt")


def test_evaluate_can_evaluate_only_the_network(tmp_path, table, monkeypatch, capsys, shipped_rlm):
    command = ["evaluate", "--data", str(table), "--samples", "0", "--objectives", "accuracy"]
    used = []
    predict = nas_rlm.RLM.predict_text
    monkeypatch.setattr(
        nas_rlm.RLM, "predict_text", lambda rlm, *a, **k: used.append(rlm.surrogates) or predict(rlm, *a, **k)
    )
    for flag in ([], ["--no-surrogates"]):
        assert main([*command, *flag]) == 0
    assert [bool(surrogates) for surrogates in used] == [True, False]


@pytest.fixture
def own_networks(tmp_path, monkeypatch):
    """Return a table of 26 networks of two families without a space, with their latencies."""
    monkeypatch.setattr(latency_fitting, "MAX_LATENCY_LABELS", 25)
    monkeypatch.setattr(layer_network, "MIN_STEPS", 5)
    monkeypatch.setattr(layer_fitting, "NUM_FOLDS", 2)
    own, rng = [], np.random.default_rng(5)
    for name in ("nasbench201", "ofa_mbv3"):
        space = search_spaces.get(name)
        for text in from_architectures(space, [space.sample(rng) for _ in range(13)]):
            macs = compute_costs(parse_network(text)).sums()[0]
            own.append(Row("", "", {"latency/new": 0.1 + 1e-8 * macs}, text, group=name))
    write(tmp_path / "own.parquet", own)
    return str(tmp_path / "own.parquet"), own


@pytest.mark.parametrize("learn", [("--learn", "none", "--objectives"), ("--new-objective",)])
def test_latencies_of_networks_of_any_family_are_learned_from_the_command_line(
    tmp_path, model, archs, own_networks, capsys, learn
):
    data, own = own_networks
    out, file = tmp_path / "tuned", tmp_path / "net.onnx"
    command = ["finetune", *model, "--data", data, *learn, "latency/new", "--out", str(out)]
    assert main(command) == 0
    config = json.loads((out / "config.json").read_text())
    (found,) = config["surrogates"][""]
    assert (found["kind"], found["objectives"]) == ("layers", ["latency/new"])
    assert found["evidence"]["latency/new"]["networks"] == len(own)
    space = search_spaces.get("fbnet")
    onnx.save(space.to_onnx(space.sample(np.random.default_rng(0))), file)
    capsys.readouterr()
    options = ["--model", str(out), "--objectives", "latency/new", "--quantiles", ".1,.9"]
    assert main(["predict", str(file), *options, "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["predict", *archs, *options, "--out", str(tmp_path / "a.csv")]) == 0
    assert "unreliable" not in capsys.readouterr().err
    predicted = rows(tmp_path / "p.csv") + rows(tmp_path / "a.csv")
    assert len(predicted) == 1 + len(ARCHS)
    for row in predicted:
        low, median, high = (float(row[f"latency/new{q}"]) for q in ("@0.1", "", "@0.9"))
        assert 0 < low < median < high
    expected = 0.1 + 1e-8 * compute_costs(parse_network(from_onnx(file))).sums()[0]
    assert float(predicted[0]["latency/new"]) == pytest.approx(expected, rel=0.5)


def solutions(path, n):
    """Write a CSV file of solutions in two languages, whose memory grows with the array that they make."""
    rng = np.random.default_rng(0)
    lines = [["problem", "language", "program", "memory", "time"]]
    for i in range(n):
        size, problem, language = int(rng.integers(1, 8)), i % 30, ("Java", "Python")[i // 30 % 2]
        source = (
            f"class P{problem} {{\n    int[] f() {{ return new int[{10**size}]; }} // {i}\n}}\n"
            if language == "Java"
            else f"def p{problem}():\n    return [0] * {10**size} + [{i}]\n"
        )
        value = 10.0 ** (0.2 * size + 3 * (language == "Java"))
        lines.append([problem, language, source, value, value / 10])
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)


@pytest.mark.parametrize("learn", ["none", pytest.param("all", marks=pytest.mark.long)])
def test_solutions_in_two_languages_are_learnt_and_ranked(tmp_path, model, capsys, monkeypatch, learn):
    monkeypatch.setattr(finetune, "MAX_EPOCHS", 1)
    solutions(tmp_path / "own.csv", 240)
    table, tuned = str(tmp_path / "own.parquet"), str(tmp_path / "tuned")
    options = ("--objectives", "memory,time", "--learn", learn)
    imported = "data import programs"
    assert imported in refused(
        capsys, "finetune", *model, "--data", tmp_path / "own.csv", *options, "--out", "x"
    )
    assert main([*imported.split(), str(tmp_path / "own.csv"), "--space", "Mine", "--out", table]) == 0
    assert main(["finetune", *model, "--data", table, *options, "--out", tuned]) == 0
    shown = capsys.readouterr().out
    for name in ("memory of Mine/Java", "time of Mine/Python"):
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{name}: Spearman on 1")]
        known, new = (float(line.split(text)[0].split()[-1]) for text in (" without a ", " without all "))
        assert known > 0.8 and new > 0.8
    for name, size in (("small.py", 10), ("large.py", 10**7)):
        (tmp_path / name).write_text(f"def q():\n    return [0] * {size}\n")
    files = [str(tmp_path / name) for name in ("large.py", "small.py")]
    ranking = ["rank", *files, "--by", "memory", "--model", tuned, "--space", "Mine/Python"]
    assert main(ranking) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:3]] == files[::-1]


@pytest.mark.parametrize(
    ("options", "comments", "learn"),
    [
        ((), "abcdefghijkl", "token"),
        ((), range(12), "none"),  # programs that differ in numbers only
        (("--learn", "none"), "abcdefghijkl", "none"),
        (("--learn", "token"), "abcdefghijkl", "token"),
    ],
)
def test_times_of_an_interpreter_are_reported_and_the_part_to_learn_is_kept(
    tmp_path, monkeypatch, capsys, options, comments, learn
):
    def fine_tune(*_, learn, **__):
        raise ValueError(f"learns {learn}")

    monkeypatch.setattr(nas_rlm.RLM, "fine_tune", fine_tune)
    kernel = "import triton\n\n@triton.jit\ndef f(x):\n    pass\n"
    times = {"latency/triton-interpreter": 3.0}
    rows_of_kernels = [Row("triton", "", times, kernel + f"# {i}") for i in comments]
    write(tmp_path / "t.parquet", rows_of_kernels)
    command = ["finetune", "--model", "programs", "--data", tmp_path / "t.parquet", "--out", tmp_path / "out"]
    command += ["--new-objective", "latency/mygpu"]
    assert main([*map(str, command), *options]) == 2
    printed = capsys.readouterr().err
    assert "has times of Triton's interpreter, which are not those of a GPU" in printed
    assert printed.splitlines()[-1] == f"nas-rlm: error: learns {learn}"
    assert "expected none or token" in refused(capsys, *command, "--learn", "decoder")


@pytest.mark.parametrize(
    ("labels_of_go", "objectives", "message"),
    [
        ({"memory": 3, "time": 12}, "memory,time", f"; --only Mine/Python or --objectives time {LEAVES_OUT}"),
        ({"memory": 3, "time": 12}, "memory", f"; --only Mine/Python {LEAVES_OUT}"),
        ({"memory": 12, "time": 12, "energy": 3}, "energy", ""),
        ({"memory": 12, "time": 3, "energy": 12}, "energy,time", f"; --objectives energy {LEAVES_OUT}"),
    ],
)
def test_what_leaves_out_too_few_labels_is_named(tmp_path, capsys, labels_of_go, objectives, message):
    labels = {"Mine/Python": {"memory": 12, "time": 12}, "Mine/Go": labels_of_go}
    programs = [
        Row(space, "", {name: 1.0 + i for name, n in counts.items() if i < n}, f"f(n) {{ x{i} }} # {space}")
        for space, counts in labels.items()
        for i in range(12)
    ]
    write(tmp_path / "t.parquet", programs)
    command = ["finetune", "--model", "programs", "--data", tmp_path / "t.parquet", "--out", tmp_path / "out"]
    line = refused(capsys, *command, "--objectives", objectives, "--learn", "none")
    assert line.endswith(f"for Mine/Go: expected at least 10{message}")


def test_only_learnt_spaces_of_programs_are_reported():
    lines = [*_evidence(nas_rlm.RLM.load("programs"), ["memory"], {"APPS"})]
    assert [line.partition(":")[0] for line in lines] == ["memory of APPS"]
