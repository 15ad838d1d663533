import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas_rlm.benchmarks.programs import (
    METHODS,
    OTHER_LANGUAGES,
    TRAINED_METHODS,
    TimedPredictions,
    evaluate_predictions,
)
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from nas_rlm.data.tables import Table
from tests.nas_rlm.cli.commands import refused


def rows(n):
    """Programs whose memory depends on their problem and their lists."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(n):
        lists, problem = int(rng.integers(1, 6)), i % 12
        source = f"# problem-{problem}\n# {i}\ndef f(n):\n" + "    x = [0] * n\n" * lists
        found.append(
            Row(
                "APPS",
                "",
                {"memory": 100.0 * 2 ** (problem % 6) * lists},
                source,
                f"r{i}",
                group=f"p{problem}",
            )
        )
    return found


@pytest.fixture
def command(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    write(tmp_path / "own.parquet", rows(400))
    (tmp_path / "own.yaml").write_text(
        "tables:\n  - {path: own.parquet, surrogates: [memory]}\nsize: 2\nepochs: 1\nvocab_size: 900\n"
        "tokenizer_texts: 50\nvalidation: 0.3\n"
    )
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return [
        "bench",
        "programs",
        "--table",
        "own",
        "--recipe",
        "own.yaml",
        "--models",
        "models",
        "--seeds",
        "1",
    ]


def test_methods_are_evaluated_on_the_same_rows_and_an_interrupted_run_continues(
    command, capsys, monkeypatch
):
    assert main([*command, "--out", "found.jsonl"]) == 0
    shown = capsys.readouterr().out
    correlations = {line.split()[1]: float(line.split()[2]) for line in shown.splitlines()[2:]}
    methods = set(METHODS) - {OTHER_LANGUAGES, "surrogate-alone", "surrogate-mixed", "size"}
    assert set(correlations) == methods
    assert (
        correlations["surrogate"] > 0.8
        and correlations["ngrams"] > 0.8
        and correlations["rlm"] > 0.8 > correlations["length"]
    )
    lines = Path("found.jsonl").read_text().splitlines()
    assert len(lines) == len(methods)

    def refuse(*_, **__):
        raise AssertionError("it is trained already")

    monkeypatch.setattr("nas_rlm.benchmarks.programs.train_from_recipe", refuse)
    Path("found.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert main([*command, "--out", "found.jsonl", "--picture", "problems.png", "--objective", "memory"]) == 0
    assert Path("problems.png").stat().st_size > 1000
    again = [json.loads(line) | {"seconds": 0} for line in Path("found.jsonl").read_text().splitlines()]
    assert again == [json.loads(line) | {"seconds": 0} for line in lines]


def test_new_problems_can_be_evaluated(command, capsys):
    assert main([*command, "--split", "problem", "--methods", "length,ngrams,surrogate-mixed"]) == 0
    shown = capsys.readouterr().out
    assert "own by problem" in shown and "surrogate-mixed" in shown


def test_the_size_of_the_input_is_a_baseline_of_kernels(command, capsys, tmp_path):
    sized = [replace(r, input=f"# input: [[{2 ** (i % 9)}]]\n{r.input}") for i, r in enumerate(rows(200))]
    sized = [replace(r, targets={"memory": float(i % 9 + 1)}) for i, r in enumerate(sized)]
    write(tmp_path / "own.parquet", sized)
    assert main([*command, "--methods", "size"]) == 0
    assert "size               1.000" in capsys.readouterr().out


def test_languages_are_compared_with_each_alone_and_with_the_others(command, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.benchmarks.programs.MIN_LANGUAGE_ROWS", 100)
    in_two = [replace(row, space=f"Judge/{'AB'[i // 12 % 2]}") for i, row in enumerate(rows(400))]
    write(tmp_path / "own.parquet", in_two)
    methods = "other-languages,ngrams,surrogate,surrogate-alone"
    assert main([*command, "--methods", methods, "--out", "found.jsonl"]) == 0
    assert capsys.readouterr().out.count("mean of languages") == 4
    lines = map(json.loads, Path("found.jsonl").read_text().splitlines())
    found = {(r["method"], r["objective"]): r for r in lines}
    assert len(found) == 12 and found["surrogate", "memory"]["language_spearman"] > 0.8
    each = [found["other-languages", f"memory of Judge/{name}"]["spearman"] for name in "AB"]
    assert found["other-languages", "memory"]["language_spearman"] == pytest.approx(np.mean(each), abs=1e-4)


def test_several_objectives_are_ranked_jointly_within_problems_of_a_language(
    command, capsys, tmp_path, monkeypatch
):
    """Nearly all programs have fewer lists than another of their problem in the other language."""
    both = [
        replace(
            row,
            targets={"memory": row.targets["memory"] * 1000 ** (i // 12 % 2), "time": row.input.count("\n")},
            space=f"Judge/{'AB'[i // 12 % 2]}",
        )
        for i, row in enumerate(rows(400))
    ]
    write(tmp_path / "own.parquet", both)
    command += ["--methods", "length", "--out", "found.jsonl"]
    assert main(command) == 0
    found = {r["objective"]: r for r in map(json.loads, Path("found.jsonl").read_text().splitlines())}
    joint = found["memory+time"]
    assert joint["spearman"] > 0.95 and joint["top1"] == 1 > 2 * joint["random_top1"]
    assert joint["problems"] > found["memory"]["problems"]
    assert found["memory"]["spearman"] < 0.8

    def refuse(*_, **__):
        raise AssertionError("it is known already")

    monkeypatch.setattr("nas_rlm.benchmarks.programs._predict", refuse)
    assert main(command) == 0


def test_programs_by_other_people_and_a_part_of_the_rows_can_be_evaluated(command, capsys, tmp_path):
    by_source = [replace(row, source="other" if i % 5 == 0 else "main") for i, row in enumerate(rows(400))]
    write(tmp_path / "own.parquet", by_source)
    command[command.index("--seeds") + 1 :] = ["1", "--out", "found.jsonl", "--split", "source"]
    assert main([*command, "--methods", "ngrams,rlm", "--rows", "200"]) == 0
    assert "own, at most 200 rows of a space by source" in capsys.readouterr().out
    (record,) = map(json.loads, Path("found.jsonl").read_text().splitlines())
    assert record["method"] == "ngrams" and 30 < record["rows"] < 70 and record["spearman"] > 0.8
    command[command.index("--seeds") + 1] = "2"
    assert "expected --seeds 1" in refused(capsys, *command)


def test_bad_options_are_refused(command, capsys):
    assert "--split is 'row'" in refused(capsys, *command, "--split", "row")
    assert "is not a picture" in refused(capsys, *command, "--picture", "problems.txt")
    assert "--rows is -1" in refused(capsys, *command, "--rows", "-1")
    assert "no method 'gcn'" in refused(capsys, *command, "--methods", "gcn")
    assert "own has no 'speed'; known: memory" in refused(capsys, *command, "--objective", "speed")
    assert "no table 'other'" in refused(capsys, *command[:3], "other", *command[4:])


def test_predictions_are_compared_with_measurements():
    table = Table("own", rows(96))
    true = table.column("memory")
    found = evaluate_predictions(
        TimedPredictions(np.stack([true - 1, true, true + 1], 1), 0.5), table, "memory"
    )
    assert (found.rows, found.coverage, found.seconds) == (96, 1.0, 0.5)
    assert found.spearman == pytest.approx(1)
    assert found.problems == 12 and found.good_share == found.top1 == 1 and 0 < found.random_top1 < 0.6
    blind = evaluate_predictions(TimedPredictions(np.ones((96, 3)), 0.5), table, "memory")
    assert (blind.spearman, blind.coverage, blind.good_share) == (0.0, 0.0, 0.0)
    few = evaluate_predictions(TimedPredictions(np.ones((96, 3)), 0), table, "memory", min_programs=9)
    assert few.problems == 0
    assert set(TRAINED_METHODS) < set(METHODS)
