import json

import numpy as np
import pytest

from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import SPACE, refused


@pytest.mark.long
def test_bench_measure_continues_and_draws(tmp_path, tiny_checkpoint, capsys, monkeypatch):
    monkeypatch.setattr("nas_rlm.search.acquisition.selection.POOL_SIZE", 30)
    rng = np.random.default_rng(0)
    cells = {str(c): c for c in (SPACE.sample(rng) for _ in range(200))}
    rows = [
        Row(
            "nasbench201",
            name,
            {"accuracy": 85 + 10 * rng.random(), "latency/mine": 1 + SPACE.flops(c) / 1e7},
        )
        for name, c in cells.items()
    ]
    write(tmp_path / "mine.parquet", rows)
    command = ["bench", "measure", "--model", str(tiny_checkpoint), "--data", str(tmp_path / "mine.parquet")]
    command += ["--population", "6", "--generations", "2", "--seeds", "1", "--devices", "mine"]
    output = ["--out", str(tmp_path / "m.jsonl"), "--picture", str(tmp_path / "m.png")]
    assert (
        main([*command, *output, "--budgets", "12"]) == main([*command, *output, "--budgets", "12,14"]) == 0
    )
    records = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [(r["policy"], r["budget"]) for r in records] == [
        (policy, budget) for budget in (12, 14) for policy in ("active search", "front once", "random")
    ]
    assert all(r["num_measured"] <= r["budget"] and 0 < r["measured_hypervolume"] <= 1 for r in records)
    printed = capsys.readouterr().out
    assert printed.count("active search        12") == 2
    assert (tmp_path / "m.png").stat().st_size > 10_000
    for more, message in (
        (("--budgets", "12,5"), "--budgets is 12,5: expected whole numbers from 10 on"),
        (("--devices", "none"), "mine has no latency/none"),
        (("--picture", tmp_path / "m.txt"), "is not a picture"),
    ):
        assert message in refused(capsys, *command, *more)
