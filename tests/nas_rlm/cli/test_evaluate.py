import json

import pytest

from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import refused

TARGETS = ("loss", "seconds")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of the loss and the seconds, which fail where x is large, by x and an activation."""
    directory = tmp_path_factory.mktemp("evaluate")
    write_rows(directory / "data.jsonl", range(0, 100, 2))
    command = ["fit", str(directory / "data.jsonl"), "--target", ",".join(TARGETS), "--quiet"]
    assert main([*command, "--source", "surrogate", "--out", str(directory / "model")]) == 0
    return directory / "model"


def write_rows(path, numbers):
    rows = [
        {"x": i / 100, "act": ("relu", "tanh")[i % 3 == 0], "loss": i / 100 + (i % 3 == 0), "seconds": i / 9}
        for i in numbers
    ]
    rows = [row | {"seconds": "OOM"} if row["x"] > 0.8 else row for row in rows]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def metrics_of(printed, title):
    lines = printed.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{title}:"))
    titles = lines[start + 1].replace("in 10 %", "near").replace(" %", "").split()
    return dict(zip(titles, lines[start + 2].split()[1:], strict=True))


def test_a_model_of_texts_is_evaluated_on_new_texts(model, tmp_path, capsys):
    new = write_rows(tmp_path / "new.jsonl", range(1, 100, 2))
    picture = tmp_path / "points.png"
    command = ["evaluate", "--model", str(model), "--texts", str(new), "--picture", str(picture)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "loss: 50 values\n" in printed and "seconds: 40 values, 10 failed\n" in printed
    assert "failed/seconds: 50 values" in printed
    found = metrics_of(printed, "loss")
    assert float(found["Spearman"]) > 0.95 and float(found["Kendall"]) > 0.85 and float(found["MAE"]) < 0.1
    assert int(found["near"].rstrip("%")) > 50 and int(found["coverage"].rstrip("%")) > 50
    assert picture.stat().st_size > 1000


def test_only_targets_that_model_and_file_share_are_evaluated(model, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("x,act,loss,other\n0.11,relu,0.11,1\n0.33,tanh,1.33,2\n0.47,relu,0.47,3\n")
    assert main(["evaluate", "--model", str(model), "--texts", str(new)]) == 0
    printed = capsys.readouterr().out
    assert "loss: 3 values" in printed and "seconds" not in printed


def test_what_a_model_of_texts_cannot_be_evaluated_on_is_refused(model, tiny_checkpoint, tmp_path, capsys):
    data = write_rows(tmp_path / "data.jsonl", range(9))
    (tmp_path / "others.csv").write_text("x,act,speed\n1,relu,3\n")
    of_texts = ("evaluate", "--model", model)
    for command, message in (
        (of_texts, "was fitted to texts: give --texts FILE with columns of targets"),
        ((*of_texts, "--data", data), f"was fitted to texts: give --texts {data} with columns of targets"),
        ((*of_texts, "--text", "x"), "--text x without --texts"),
        ((*of_texts, "--texts", data, "--validation"), "--validation: give one of them"),
        ((*of_texts, "--texts", data, "--objectives", "los"), "unknown objective 'los'; did you mean loss?"),
        (
            (*of_texts, "--texts", tmp_path / "others.csv"),
            "has the columns x, act, speed: expected",
        ),
        (("evaluate", "--model", tiny_checkpoint, "--texts", data), "--texts needs a model that fit wrote"),
    ):
        assert message in refused(capsys, *command)
