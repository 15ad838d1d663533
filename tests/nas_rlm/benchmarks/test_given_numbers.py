import json
from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.benchmarks.given_numbers import METHODS, WITH, WITHOUT, GivenCase, format_results
from nas_rlm.cli import main
from nas_rlm.data import Table, write
from tests.nas_rlm.stubs import counted_cells

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
EARLY = "accuracy/cifar10_4ep"


def table(count):
    rng = np.random.default_rng(0)
    rows = []
    for row in counted_cells(count):
        accuracy = row.targets["accuracy"] + 2 * rng.normal()
        targets = {"accuracy": accuracy, EARLY: accuracy - 5 + 0.1 * rng.normal()}
        rows.append(replace(row, targets={**targets, "flops": 1e6, "params": 1e5 * (1 + rng.random())}))
    return Table("cells", rows)


def test_each_method_is_measured_on_the_same_rows():
    case = GivenCase(table(50), "accuracy", [EARLY], 30, 20)
    found = {method: [result] for (_, method, _), result in case.run(20, [0])}
    assert list(found) == list(METHODS)
    assert found[WITH][0].kendall > 0.9 > found[WITHOUT][0].kendall
    assert [*case.run(20, [0], [(EARLY, method, 0) for method in METHODS])] == []
    text = format_results({("cells", 20, method): results for method, results in found.items()})
    assert text.splitlines()[1].split()[:2] == ["cells", "20"]
    assert "minimum" in text.splitlines()[-1]


def test_the_command(tmp_path, capsys):
    data, out = tmp_path / "cells.parquet", tmp_path / "given.jsonl"
    write(data, table(30).rows)
    command = ["bench", "given", str(data), "--seeds", "1", "--rows", "15", "--out", str(out)]
    assert main([*command, "--given", "accuracy/cifar10_5ep"]) == 2
    assert "has no 'accuracy/cifar10_5ep'; did you mean accuracy/cifar10_4ep" in capsys.readouterr().err
    assert main([*command, "--given", "accuracy"]) == 2
    assert "--given has accuracy, which is predicted" in capsys.readouterr().err
    assert main([*command, "--given", EARLY, "--labels", "12"]) == 0
    assert f"cells, {EARLY}" in capsys.readouterr().out
    assert [json.loads(line)["method"] for line in out.read_text().splitlines()] == list(METHODS)
