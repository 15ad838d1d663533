import numpy as np
import pytest

from nas_rlm.benchmarks.devices import SELECTIONS, SOURCES, TARGETS, Transfer, agreement, summary
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows
from nas_rlm.surrogates.fitting import fit_graph_surrogates
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
    return Transfer(measured(400))


@pytest.fixture(scope="module")
def surrogates(transfer):
    return fit_graph_surrogates([transfer.rows[i] for i in transfer.pool], transfer.devices)


def test_a_new_device_is_told_from_two_that_it_is_between(transfer, surrogates):
    sides = [set(keys_of_rows([transfer.rows[i] for i in part])) for part in (transfer.pool, transfer.asked)]
    assert all(sides) and not sides[0] & sides[1]
    scores = transfer.scores(surrogates, ["latency/new"], 12, [0, 1])
    found = {(target, how, seed): score for target, how, seed, score in scores}
    assert list(found) == [("latency/new", how, seed) for how in SELECTIONS for seed in (0, 1)]
    for score in found.values():
        assert score.spearman > 0.95
        assert score.best > 0.8
        assert score.seconds > 0
        assert 0 < score.error < 0.3
    again = list(transfer.scores(surrogates, ["latency/new"], 12, [0, 1], done=[*found][:3]))
    assert [(t, how, seed) for t, how, seed, _ in again] == [*found][3:]
    assert again[0][3].spearman == found[[*found][3]].spearman
    lines = summary(found, ["latency/new"], [0, 1]).splitlines()
    assert lines[1].split()[:2] == ["latency/new", f"{again[0][3].flops:.3f}"]
    assert lines[2].startswith("mean of 1")


def test_with_many_samples_nobody_advises_and_a_cost_stands_for_it(transfer, surrogates):
    (found, *_) = transfer.scores(surrogates, ["latency/new"], 101, [0])
    assert 0 < abs(found[3].best) <= 1


def test_what_experts_know_of_a_target_does_not_help(transfer, surrogates):
    told = {"nasbench201": [e.without(["latency/new"]) for e in surrogates["nasbench201"]]}
    scores = [next(transfer.scores(e, ["latency/new"], 12, [0]))[3] for e in (surrogates, told)]
    assert scores[0].spearman == scores[1].spearman


def test_a_device_that_is_known_in_another_space(transfer, surrogates):
    elsewhere = {"nasbench101": surrogates["nasbench201"]}
    ((target, how, seed, blind),) = transfer.scores(elsewhere, ["latency/new"], 0, [0])
    assert (target, how, seed) == ("latency/new", "random", 0)
    assert blind.spearman > 0.8
    lines = summary({(target, how, seed): blind}, [target], [0]).splitlines()
    assert "chosen" not in lines[0]
    told = [score.spearman for *_, score in transfer.scores(elsewhere, ["latency/new"], 12, [0])]
    assert min(told) > 0.9
    with pytest.raises(ValueError, match="no surrogate of another space can predict latency/odd"):
        next(transfer.scores(surrogates, ["latency/odd"], 0, [0]))


def test_the_split_of_help():
    names = [name.format("256") for name in (*SOURCES, *TARGETS)]
    sources, targets = Transfer(measured(30, names)).split()
    assert (len(sources), len(targets)) == (9, 6)
    assert sources[2] == "latency/1080ti_256"
    with pytest.raises(ValueError, match="cells has no latency/1080ti_1"):
        Transfer(measured(30)).split()


def test_tables_without_devices():
    mixed = Table("mixed", [*measured(9).rows, Row("fbnet", "0", {"latency/quick": 1.0})])
    for table in (mixed, Table("none", [])):
        with pytest.raises(ValueError, match="expected rows of one space"):
            Transfer(table)


def test_all_others_are_asked_where_none_are_held_out(surrogates):
    table = measured(60)
    table.rows[3].targets.pop("latency/new")
    transfer = Transfer(table, held=0)
    assert transfer.pool == transfer.asked == list(range(len(table)))
    asked = []
    transfer._score = lambda others, some, target: asked.append(some)
    list(transfer.scores(surrogates, ["latency/new"], 12, [0]))
    assert all(len(set(some)) == 12 and 3 not in some for some in asked)
    with pytest.raises(ValueError, match="expected 102 at least"):
        list(transfer.scores(surrogates, ["latency/new"], 100, [0]))


def test_two_measurements_of_the_same_networks():
    one, other = measured(30), measured(30)
    for i, row in enumerate(other.rows):
        row.targets["latency/new"] *= 1.1 if i % 2 else 0.9
    other.rows = other.rows[:20]
    count, rank, apart = agreement(one, other, "latency/new")
    assert count == 20
    assert 0.5 < rank < 1
    assert apart == pytest.approx(0.1)
