import json

import search_spaces
from nas_rlm.cli import main


def test_bench_references_adds_missing_values(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setattr(search_spaces, "names", lambda: ["nasbench201", "hiaml"])
    out = tmp_path / "references.json"
    out.write_text('{"nasbench201": {"flops": 3.0}}')
    assert main(["bench", "references", *model, "--count", "5", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["nasbench201"]["flops"] == 3
    assert found["nasbench201"]["params"] > 0 and found["hiaml"]["flops"] > 0
    assert "reference values of 2 spaces" in capsys.readouterr().out
