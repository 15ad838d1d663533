import json
import shutil

import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import refused, rows

QUICK = ("--source", "surrogate", "--quiet")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("fit") / "data.csv"
    lines = ["id,width,act,loss,seconds"]
    for i, (x, act) in enumerate(zip(rng.random(80).round(3), ["relu", "tanh"] * 40, strict=True)):
        seconds = "OOM" if x > 0.9 else "" if i % 9 == 0 else round(3 * x, 3)
        lines.append(f"{i},{x},{act},{x + (act == 'tanh'):.3f},{seconds}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def model(data):
    out = data.parent / "model"
    assert main(["fit", str(data), "--target", "loss,seconds", "--out", str(out), *QUICK]) == 0
    return out


def test_it_prints_metrics_beside_baselines_and_what_is_left_out(data, tmp_path, capsys):
    command = ["fit", str(data), "--text", "width", "--target", "loss,seconds", "--out", str(tmp_path / "m")]
    assert main([*command, *QUICK]) == 0
    printed = capsys.readouterr().out
    for words in ("Spearman", "Kendall", "MAPE", "coverage", "ngrams", "median", "failed/seconds"):
        assert words in printed
    assert "columns that are not used: id, act" in printed
    cells = [line.rpartition(",")[2] for line in data.read_text().splitlines()]
    numbers = f"{cells.count('OOM')} failed, {cells.count('')} missing"
    assert f"{numbers}; predicted by the surrogate" in printed
    report = json.loads((tmp_path / "m" / "fit.json").read_text())
    assert report["text"] == "width"
    assert report["metrics"]["loss"]["rlm"]["rows"] == report["holdout_rows"] == 16


def test_predict_and_rank_read_what_the_model_was_fitted_to(model, data, tmp_path):
    texts = tmp_path / "new.jsonl"
    new = [{"id": 1, "width": 0.25, "act": "tanh"}, {"id": 2, "width": 0.25, "act": "relu"}]
    texts.write_text("\n".join(map(json.dumps, new)))
    for verb, options in (("predict", ["--objectives", "loss"]), ("rank", ["--by", "loss"])):
        out = tmp_path / f"{verb}.csv"
        command = [verb, "--texts", str(texts), "--model", str(model), *options, "--out", str(out)]
        assert main(command) == 0
        found = [float(row["loss"]) for row in rows(out)]
        np.testing.assert_allclose(sorted(found), [0.25, 1.25], atol=0.15)
        assert (found == sorted(found)) == (verb == "rank")


def test_bad_command_lines_leave_nothing(data, tmp_path, capsys):
    out = tmp_path / "out"
    command = ("fit", data, "--out", out)
    refusals = {
        ("--target", "los"): "has no column 'los'; did you mean loss?",
        ("--target", "act"): "line 2, column act: 'relu': expected a number",
        ("--target", ""): "with numbers, which are: id, width, loss",
        ("--target", "loss,loss"): "objective 'loss' is given more than once",
        ("--target", "loss", "--text", "txt"): "has no column 'txt'",
        ("--target", "loss", "--source", "magic"): "source is 'magic'",
        (
            "--target",
            "loss",
            "--tokenizer",
            "nope",
        ): "no tokenizer 'nope': expected a SentencePiece file or nas",
        ("--target", "loss", "--holdout", "0.8"): "holdout is 0.8",
        ("--target", "loss", "--maximise", "x"): "maximise has 'x'",
    }
    for options, message in refusals.items():
        assert message in refused(capsys, *command, *options)
    assert list(tmp_path.iterdir()) == []


def test_texts_need_a_model_and_no_architectures(model, data, capsys):
    assert "without --model" in refused(capsys, "predict", "--texts", data, "--objectives", "loss")
    command = ("predict", "--texts", data, "--model", model, "--objectives", "loss", "--space", "nasbench201")
    assert "--space: give one of them" in refused(capsys, *command)
    assert "without --texts" in refused(capsys, "predict", "--text", "a", "--objectives", "loss")


def test_what_is_no_network_or_program_is_refused_with_the_way_to_read_it(model, data, tmp_path, capsys):
    for objectives in (["--objectives", "loss"], []):
        assert f"--texts {data} for a model that fit" in refused(capsys, "predict", data, *objectives)
    assert "is a directory" in refused(capsys, "rank", tmp_path, "--by", "memory")
    assert "both --texts and --model" in refused(capsys, "rank", "--by", "loss")
    texts = ("predict", "--texts", data, "--model", model, "--objectives", "flops")
    assert "unknown objective 'flops'; did you mean loss?" in refused(capsys, *texts)


def test_models_of_texts_and_of_networks_are_not_exchanged(model, data, tiny_checkpoint, tmp_path, capsys):
    texts = ("predict", "--texts", str(data), "--model", str(tiny_checkpoint), "--objectives", "accuracy")
    assert "reads networks or programs: --texts needs a model that fit wrote" in refused(capsys, *texts)
    assert main(["export", "--space", "nasbench201", "--sample", "1", "--out", str(tmp_path / "one")]) == 0
    files = ("predict", str(tmp_path / "one" / "000.onnx"), "--model", str(model), "--objectives", "loss")
    assert "was fitted to texts: give --texts FILE instead of files" in refused(capsys, *files)
    size = ("fit", str(data), "--target", "loss", "--size", "100", "--out", str(tmp_path / "m"))
    assert "size is 100: expected at most 16" in refused(capsys, *size)


def test_a_model_that_python_saved_needs_the_column_of_the_texts(model, data, tmp_path, capsys):
    saved = tmp_path / "saved"
    RLM.load(model).save(saved)
    command = ("predict", "--texts", data, "--model", saved, "--objectives", "loss")
    assert "has no fit.json" in (message := refused(capsys, *command)) and "--text with one of id" in message
    assert main([*map(str, command), "--text", "width"]) == 0


def test_rows_that_predict_leaves_out_are_counted(model, tmp_path, capsys):
    texts = tmp_path / "new.jsonl"
    texts.write_text('{"t": "width=0.5"}\n{"t": null}\n{}\n')
    command = ["--texts", str(texts), "--model", str(model), "--text", "t"]
    for verb in (["predict"], ["rank", "--by", "loss"]):
        assert main([*verb, *command]) == 0
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 2
        assert f"{texts}: 2 rows have no t, left out" in captured.err


@pytest.mark.parametrize("content", ["", "[1]", '{"text": 3, "columns": []}', '{"text": "", "columns": 3}'])
def test_a_damaged_report_of_fit_is_named(model, data, tmp_path, capsys, content):
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    (damaged / "fit.json").write_text(content)
    message = refused(capsys, "predict", "--texts", data, "--model", damaged, "--objectives", "loss")
    assert f"{damaged / 'fit.json'} is damaged: copy the model again" in message


def test_a_model_without_a_readable_configuration_is_said_to_be_damaged(model, data, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    (damaged / "config.json").write_text("{")
    message = refused(capsys, "predict", "--texts", data, "--model", damaged, "--objectives", "loss")
    assert f"{damaged} has no readable config.json" in message


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".TSV"])
def test_predictions_are_not_written_as_csv_under_another_ending(model, data, tmp_path, capsys, ending):
    out = tmp_path / f"predictions{ending}"
    texts = ("--texts", data, "--model", model, "--out", out)
    for command in (("predict", *texts), ("rank", *texts, "--by", "loss")):
        assert f"predictions are a CSV file, expected {out.with_suffix('.csv')}" in refused(capsys, *command)
    assert not out.exists()


def test_predict_has_all_targets_of_texts_by_default(model, data, capsys):
    assert main(["predict", "--texts", str(data), "--model", str(model)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "text,loss,seconds"
    assert "no --objectives: expected names such as" in refused(capsys, "predict", data.with_suffix(".py"))


@pytest.mark.parametrize("content", ['{"t": "a", ', '[{"t": "a", "y": 1}]'])
def test_a_json_file_that_is_no_network_is_named_before_objectives(tmp_path, capsys, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    for command in (("rank", path, "--by", "memory"), ("predict", path, "--objectives", "memory")):
        message = refused(capsys, *command)
        assert "bad.json' is not an ONNX file" in message and "--texts FILE.jsonl" in message


def test_a_model_is_shown_in_one_line(model):
    assert repr(RLM.load(model)) == "RLM(objectives=[loss, seconds, failed/seconds])"
    assert len(repr(RLM.load("programs"))) < 300


def test_too_few_texts_are_said_once(data, tmp_path, capsys):
    few = tmp_path / "few.csv"
    few.write_text("\n".join(data.read_text().splitlines()[:13]))
    assert main(["fit", str(few), "--target", "loss", "--out", str(tmp_path / "m"), *QUICK]) == 0
    printed = "".join(capsys.readouterr())
    assert printed.count("12 distinct texts are too few to hold any out") == 1
