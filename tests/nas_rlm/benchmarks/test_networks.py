from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.networks import (
    CONVOLUTIONAL,
    FAMILIES,
    HYBRID,
    KEY_NAMES,
    KINDS,
    KNOWN,
    METHODS,
    TRANSFORMER,
    LatencyResult,
    NetworkLatencies,
    format_results,
    kinds_of,
    results_of_second_measurements,
)
from nas_rlm.cli import main
from nas_rlm.data import Row, Table, write
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.graph.executed_layers import ALL, Layer, layers_of
from nas_rlm.surrogates.latency import layer_network
from nas_rlm.surrogates.latency.layer_fitting import fit_layer_counts
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.text.parser import parse_network

NAME = "latency/mine"


def latency(text):
    """Return the latency of a device that executes layers one after the other."""
    layers = layers_of(parse_network(text), ALL).items()
    return 0.3 + sum(n * (0.01 + 1e-8 * layer.macs + 1e-7 * layer.outputs) for layer, n in layers)


@pytest.fixture(scope="module")
def rows():
    found = []
    for name in ("nasbench201", "nats_size", "nasbench101"):
        space, rng = search_spaces.get(name), np.random.default_rng(0)
        drawn = list({str(a): a for a in (space.sample(rng) for _ in range(60))}.values())[:40]
        plain = [Row(name, str(a), {}) for a in drawn]
        for row, text in zip(plain, texts_of_rows(plain), strict=True):
            found.append(
                Row("", "", {NAME: latency(text)}, text, identifier=f"{name} {row.arch_str}", group=name)
            )
    return found


@pytest.fixture
def quick(monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.setattr(layer_network, "MIN_STEPS", 20)
    monkeypatch.setattr(layer_network, "NUM_EPOCHS", 1)


def test_each_protocol_and_method_is_measured(rows, quick):
    networks = NetworkLatencies(rows, [NAME], per_family=30)
    found = dict(networks.run([KNOWN, FAMILIES, "20"], 2, []))
    cases = {(key[1], key[2], key[4]) for key in found}
    families = {"nasbench201", "nats_size", "nasbench101"}
    assert cases == {(KNOWN, "", 0), *((FAMILIES, f, 0) for f in families), ("20", "", 0), ("20", "", 1)}
    assert all({key[3] for key in found if key[1:3] == case[:2]} == {*METHODS} for case in cases)
    best = found[NAME, KNOWN, "", "layer sums", 0]
    assert best.within_10_percent > 0.95 and best.spearman > 0.98 and best.mape < 0.05
    assert found[NAME, FAMILIES, "nats_size", "surrogate", 0].networks == 30
    assert found[NAME, "20", "", "surrogate", 1].networks == 100
    finished = [key for key in found if key[1] != "20"]
    assert {key[1] for key, _ in networks.run([KNOWN, "20"], 1, finished)} == {"20"}


def test_kinds_of_networks_are_evaluated_without_their_families(rows, quick):
    networks = NetworkLatencies(rows, [NAME], per_family=30)
    found = dict(networks.run([KINDS], 2, []))
    assert {key[1:3] for key in found} == {(KINDS, ""), (KINDS, CONVOLUTIONAL)}
    assert found[NAME, KINDS, "", "layer sums", 0].networks == len(rows)
    fitted = fit_layer_counts(networks.counts, networks.latencies, networks.families.tolist())
    assert found[NAME, KINDS, "", "surrogate", 0].mape == pytest.approx(fitted.evidence[NAME].relative_error)
    assert not dict(networks.run([KINDS], 1, [*found]))
    lines = format_results(found).splitlines()
    assert [line.split(",")[1].strip() for line in lines[1:]] == ["all"] * 4 + [CONVOLUTIONAL] * 4


def test_networks_with_attention_are_transformers_or_hybrids():
    softmax, stem = Layer("Softmax", 0), Layer("Conv16x16", 14, kernel=16)
    spatial, pointwise = Layer("Conv3x3", 14, kernel=3), Layer("Conv1x1", 14, kernel=1)
    networks = (
        [(spatial, 9), (softmax, 1)],
        [(softmax, 12), (stem, 1), (pointwise, 9)],
        [(spatial, 5), (softmax, 2)],
    )
    layers = [softmax, stem, spatial, pointwise]
    indices = np.array([layers.index(layer) for network in networks for layer, _ in network])
    numbers = np.array([count for network in networks for _, count in network], np.float32)
    counts = LayerCounts(layers, indices, numbers, np.cumsum([len(network) for network in networks]))
    assert kinds_of(counts).tolist() == [CONVOLUTIONAL, TRANSFORMER, HYBRID]


def test_test_networks_are_not_training_networks(rows):
    networks = NetworkLatencies(rows, [NAME], per_family=30)
    for protocol in (KNOWN, FAMILIES, "20"):
        for _, _, train, test in networks._splits(protocol, 1):
            assert len(train) and len(test) and not {*train} & {*test}


def test_results_of_predictions():
    result = LatencyResult.of(np.array([1.04, 2.16, 3.0, 8.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert result.mape == pytest.approx((0.04 + 0.08 + 0 + 1) / 4) and result.networks == 4
    assert (result.within_5_percent, result.within_10_percent, result.within_20_percent) == (0.5, 0.75, 0.75)
    assert result.spearman == pytest.approx(1) and result.coverage == 0
    lines = format_results({(NAME, FAMILIES, "vgg", "trees", 0): result}).splitlines()
    assert lines[1].startswith(f"{NAME}, {FAMILIES}, trees") and lines[1].endswith("0.750 vgg")


def test_the_command_continues_and_refuses(rows, quick, tmp_path, capsys):
    table, out = tmp_path / "t.parquet", tmp_path / "r.jsonl"
    write(table, rows)
    arguments = ["bench", "networks", str(table), "--objectives", NAME, "--seeds", "1", "--out", str(out)]
    assert main([*arguments, "--protocols", "20"]) == 0
    first = out.read_text()
    assert "20, surrogate" in capsys.readouterr().out and all(name in first for name in KEY_NAMES)
    assert main([*arguments, "--protocols", "20"]) == 0 and out.read_text() == first
    for wrong in (["--protocols", "5"], ["--protocols", "all"], ["--per-family", "3"]):
        assert main([*arguments, *wrong]) == 2
    assert main(["bench", "networks", str(table), "--objectives", "latency/x"]) == 2
    assert "no network has latency/x" in capsys.readouterr().err


def test_second_measurements_are_compared_with_the_first_ones(rows):
    second = [
        replace(row, targets={NAME: row.targets[NAME] * factor})
        for row, factor in zip(rows, (1.02, 1.3), strict=False)
    ]
    ((key, result),) = results_of_second_measurements(Table("a", rows), Table("b", second), [NAME])
    assert key == (NAME, "again", "", "second measurement", 0)
    assert (result.networks, result.within_5_percent, result.within_20_percent) == (2, 0.5, 0.5)
    assert result.mape == pytest.approx(0.16)
    with pytest.raises(ValueError, match=r"no network of a has a second latency/mine in b"):
        [*results_of_second_measurements(Table("a", rows), Table("b"), [NAME])]
