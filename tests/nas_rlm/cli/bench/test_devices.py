import json

import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.cli import main
from nas_rlm.cli.bench.app import with_objectives_of
from nas_rlm.data import Row, Table, write
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.cli.commands import SPACE, refused


def test_unknown_spaces_are_refused_with_a_suggestion(tmp_path, capsys):
    command = ("bench", "devices", "--space")
    assert "no search space 'fbnt'; did you mean 'fbnet'" in refused(capsys, *command, "fbnt")
    assert "did you mean 'fbnet'" in refused(
        capsys, "bench", "propose", "--space", "fbnt", "--objectives", "accuracy"
    )
    write(tmp_path / "mine.parquet", [Row("nasbench201", str(SPACE.sample(np.random.default_rng(0))), {})])
    other = refused(capsys, *command, "fbnet", "--data", str(tmp_path / "mine.parquet"))
    assert "no row of" in other and "is of the space 'fbnet'; known: nasbench201" in other


def test_a_table_may_have_further_objectives_of_the_same_architectures():
    first, second = (Row("nasbench201", name, {"accuracy": 1.0}) for name in "ab")
    times = [Row("nasbench201", name, {"accuracy": 2.0, "latency/x": 3.0}) for name in "bc"]
    joined = with_objectives_of(Table("own", [first, second]), Table("other", times))
    assert [row.targets for row in joined.rows] == [{"accuracy": 1.0}, {"accuracy": 1.0, "latency/x": 3.0}]
    with pytest.raises(ValueError, match="no architecture of own is in other"):
        with_objectives_of(Table("own", [first]), Table("other", times))


def test_bench_devices_learns_new_ones_and_continues(tmp_path, tiny_checkpoint, capsys):
    rng = np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(60)]
    times = {str(c): 1 + SPACE.flops(c) / 1e7 for c in cells}

    def rows(*names):
        return [Row("nasbench201", c, {f"latency/{n}": t for n in names}) for c, t in times.items()]

    rlm = RLM.load(tiny_checkpoint)
    features, names = graph_features_of_space("nasbench201"), ["latency/pixel3", "latency/eyeriss"]
    rlm.surrogates = {"nasbench201": [fit_graph_surrogate(features, rows("pixel3", "eyeriss"), names)]}
    rlm.save(tmp_path / "model")
    write(tmp_path / "mine.parquet", rows("mine", "pixel3"))
    command = ["bench", "devices", "--space", "nasbench201", "--model", str(tmp_path / "model")]
    command += ["--data", str(tmp_path / "mine.parquet"), "--samples", "10"]
    more = ["--split", "new", "--again", str(tmp_path / "mine.parquet"), "--out", str(tmp_path / "d.jsonl")]
    assert main([*command, *more, "--seeds", "1"]) == main([*command, *more, "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("latency/mine measured twice: 60 networks, Spearman 1.000, difference 0.0%") == 2
    records = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert [(r["target"], r["selection"], r["seed"]) for r in records] == [
        *[("latency/mine", how, 0) for how in ("random", "chosen")],
        *[("latency/mine", how, 1) for how in ("random", "chosen")],
    ]
    assert all(r["spearman"] > 0.93 for r in records)
    given = {"--model": tmp_path / "model", "--data": tmp_path / "mine.parquet", "--samples": "10"}
    for wrong, message in (
        ({"--split": "help"}, "mine has no latency/1080ti_1"),
        (
            {"--split": "half"},
            "--split is 'half': expected one-out, out, help, new, or the name of another space",
        ),
        ({"--split": "nasbench201"}, "has no device of mine from nasbench201 as another space"),
        ({"--samples": "0"}, "--samples is 0, expected at least 10"),
        ({"--samples": "9"}, "--samples is 9, expected at least 10"),
        ({"--samples": "59", "--split": "new"}, "expected 61 at least"),
        ({"--model": tiny_checkpoint}, "has surrogates of fewer than two latencies of nasbench201"),
    ):
        options = [part for pair in (given | wrong).items() for part in pair]
        assert message in refused(capsys, "bench", "devices", "--space", "nasbench201", *options)


def test_bench_devices_takes_the_name_that_a_table_gives_its_networks(tmp_path, capsys):
    rng = np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(60)]
    texts = texts_of_rows([Row("nasbench201", str(cell), {}) for cell in cells])
    times = [{"latency/mine": 1 + SPACE.flops(cell) / 1e7} for cell in cells]
    rows = [Row("phones", "", time, text) for time, text in zip(times, texts, strict=True)]
    write(tmp_path / "phones.parquet", rows)
    command = ("bench", "devices", "--space", "phones", "--split", "out", "--samples", "10", "--seeds", "1")
    assert main([*command, "--data", str(tmp_path / "phones.parquet"), "--out", str(tmp_path / "d")]) == 0
    assert "10 samples of a new device" in capsys.readouterr().out
    assert json.loads((tmp_path / "d").read_text().splitlines()[0])["space"] == "phones"
    assert "no search space 'phones'" in refused(capsys, *command)
    other = refused(capsys, *command[:3], "phone", "--data", str(tmp_path / "phones.parquet"))
    assert "is of the space 'phone'; did you mean phones?" in other
