import json
from dataclasses import replace

import numpy as np

from nas_rlm.benchmarks.ablations import ABLATIONS, Trial
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import SPACE, refused


def test_bench_ablation_prints_a_line_for_each_trial_and_continues(tmp_path, monkeypatch, capsys):
    write(
        tmp_path / "architectures" / "nasbench201.parquet",
        [
            Row("nasbench201", str(SPACE.sample(np.random.default_rng(i))), {"accuracy": 50.0 + i})
            for i in range(40)
        ],
    )
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    trial = Trial(spaces=("nasbench201",), rows=16, steps=2, size=1)
    monkeypatch.setitem(ABLATIONS, "length", {"16 tokens": replace(trial, length=16), "all tokens": trial})
    out = tmp_path / "runs" / "length.jsonl"
    for seeds in (1, 2):
        assert main(["bench", "ablation", "length", "--seeds", str(seeds), "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines if "nasbench201" in line] == ["16 tokens", "all tokens"] * 3
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["trial"], r["seed"]) for r in records] == [
        (name, seed) for seed in (0, 1) for name in ("16 tokens", "all tokens")
    ]
    assert "seeds is 0" in refused(capsys, "bench", "ablation", "length", "--seeds", "0")
    assert "no ablation 'lenght'; did you mean length" in refused(capsys, "bench", "ablation", "lenght")
