import numpy as np
import pytest

from nas_rlm.benchmarks.devices import (
    SELECTIONS,
    SOURCES,
    TARGETS,
    DeviceTransfer,
    format_results,
    repeatability,
)
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows
from tests.nas_rlm.devices.networks import SPACE, cells

DEVICES = ("quick", "slow", "odd", "new")


def measured(count, names=DEVICES):
    """Cells on devices whose times are sums of costs; the new one is between two others."""
    rng, rows = np.random.default_rng(0), []
    for a in {SPACE.key(a): a for a in cells(count)}.values():
        macs, convs = SPACE.flops(a) / 1e7, str(a).count("conv")
        times = {"quick": 1 + macs, "slow": 2 + convs, "odd": 1 + rng.random(), "new": 1 + macs + convs}
        rows.append(Row("nasbench201", str(a), {f"latency/{n}": times.get(n, 1 + macs) for n in names}))
    return Table("cells", rows)


@pytest.fixture(scope="module")
def transfer():
    return DeviceTransfer(measured(200))


@pytest.fixture(scope="module")
def surrogates(transfer):
    return {"nasbench201": transfer.fit_known_devices()}


def test_a_new_device_is_predicted_from_two_similar_ones(transfer, surrogates):
    keys = [
        set(keys_of_rows([transfer.rows[i] for i in part]))
        for part in (transfer.pool_indices, transfer.test_indices)
    ]
    assert all(keys) and not keys[0] & keys[1]
    found = dict(transfer.run(surrogates, ["latency/new"], 12, [0, 1]))
    assert list(found) == [("latency/new", how, seed) for how in SELECTIONS for seed in (0, 1)]
    for score in found.values():
        assert score.spearman > 0.95
        assert score.spearman_nearest > 0.8
        assert score.seconds > 0
        assert 0 < score.mape < 0.3
        assert score.within_10_percent > 0.5
        assert score.coverage > 0.5
        assert score.spearman_layers > 0.8
    again = list(transfer.run(surrogates, ["latency/new"], 12, [0, 1], finished=[*found][:3]))
    assert [key for key, _ in again] == [*found][3:]
    assert again[0][1].spearman == found[[*found][3]].spearman
    lines = format_results(found, ["latency/new"], [0, 1]).splitlines()
    assert lines[1].split()[:2] == ["latency/new", f"{again[0][1].spearman_flops:.3f}"]
    assert [line.split()[0] for line in lines[2:5]] == ["mean", "minimum", "maximum"]


def test_with_many_samples_no_source_is_used_and_the_nearest_feature_is_a_cost(transfer, surrogates):
    _, result = next(transfer.run(surrogates, ["latency/new"], 101, [0]))
    assert 0 < abs(result.spearman_nearest) <= 1


def test_surrogates_do_not_use_what_they_know_of_the_target(transfer, surrogates):
    reduced = {"nasbench201": [e.without(["latency/new"]) for e in surrogates["nasbench201"]]}
    scores = [next(transfer.run(e, ["latency/new"], 12, [0]))[1] for e in (surrogates, reduced)]
    assert scores[0].spearman == scores[1].spearman


def test_a_device_that_is_known_in_another_space(transfer, surrogates):
    elsewhere = {"nasbench101": surrogates["nasbench201"]}
    (((target, how, seed), blind),) = transfer.run(elsewhere, ["latency/new"], 0, [0])
    assert (target, how, seed) == ("latency/new", "random", 0)
    assert blind.spearman > 0.8
    lines = format_results({(target, how, seed): blind}, [target], [0]).splitlines()
    assert "chosen" not in lines[0]
    correlations = [score.spearman for _, score in transfer.run(elsewhere, ["latency/new"], 12, [0])]
    assert min(correlations) > 0.9
    with pytest.raises(ValueError, match="no surrogate of another space can predict latency/odd"):
        next(transfer.run(surrogates, ["latency/odd"], 0, [0]))


def test_the_devices_of_help():
    names = [name.format("256") for name in (*SOURCES, *TARGETS)]
    sources, targets = DeviceTransfer(measured(30, names)).help_devices()
    assert (len(sources), len(targets)) == (9, 6)
    assert sources[2] == "latency/1080ti_256"
    with pytest.raises(ValueError, match="cells has no latency/1080ti_1"):
        DeviceTransfer(measured(30)).help_devices()


def test_tables_without_devices_are_refused():
    mixed = Table("mixed", [*measured(9).rows, Row("fbnet", "0", {"latency/quick": 1.0})])
    for table in (mixed, Table("none", [])):
        with pytest.raises(ValueError, match="expected rows of one space"):
            DeviceTransfer(table)


def test_without_a_test_share_all_networks_but_the_samples_are_test_networks(surrogates):
    table = measured(60)
    table.rows[3].targets.pop("latency/new")
    transfer = DeviceTransfer(table, test_share=0)
    assert transfer.pool_indices == transfer.test_indices == list(range(len(table)))
    selected = []
    transfer._evaluate = lambda sources, samples, target: selected.append(samples)
    list(transfer.run(surrogates, ["latency/new"], 12, [0]))
    assert all(len(set(samples)) == 12 and 3 not in samples for samples in selected)
    with pytest.raises(ValueError, match="expected 102 at least"):
        list(transfer.run(surrogates, ["latency/new"], 100, [0]))


def test_two_measurements_of_the_same_networks():
    one, other = measured(30), measured(30)
    for i, row in enumerate(other.rows):
        row.targets["latency/new"] *= 1.1 if i % 2 else 0.9
    other.rows = other.rows[:20]
    count, rho, difference = repeatability(one, other, "latency/new")
    assert count == 20
    assert 0.5 < rho < 1
    assert difference == pytest.approx(0.1)


def test_a_table_can_know_its_own_devices(transfer, surrogates):
    known = surrogates["nasbench201"]
    assert {name for surrogate in known for name in surrogate.objectives} == {*transfer.devices}
    _, found = next(transfer.run(surrogates, ["latency/new"], 12, [0]))
    assert found.spearman > 0.9
    assert min(found.spearman_counts, found.spearman_counts_known, found.spearman_genes) > 0.3


def test_networks_without_a_space_have_no_known_devices():
    from nas_rlm.data.row_texts import texts_of_rows

    rows = measured(60).rows
    texts = texts_of_rows(rows)
    table = Table("files", [Row("", "", row.targets, text) for row, text in zip(rows, texts, strict=True)])
    transfer = DeviceTransfer(table)
    assert transfer.fit_known_devices() == []
    _, found = next(transfer.run({"": []}, ["latency/new"], 12, [0]))
    assert found.spearman > 0.7 and found.spearman_genes == 0
