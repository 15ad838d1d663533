from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.search import active_search
from nas_rlm.search.active_search import Learner, Reader, as_told, explore, first_of, propose, worth
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import FAILED, MEASURED, Result
from nas_rlm.search.run_directory import open_log, read_result
from nas_rlm.search.settings import Settings
from nas_rlm.study import joint_samples, write_front
from nas_rlm.surrogates.features import usual_counts
from nas_rlm.surrogates.fitting import expert
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
LATENCY = "latency/onnxruntime-cpu-1t"
SETTINGS = Settings(
    *("nasbench201", ("accuracy", LATENCY), (), "nsga2", 12, 3),
    device="onnxruntime-cpu-1t",
    budget=24,
)


class Model(StubPredictor):
    """The stub, with experts on other devices."""

    def __init__(self, experts=()):
        super().__init__()
        self.experts = {"nasbench201": list(experts)}

    def predict(self, *args, **kwargs):
        return np.sort(super().predict(*args, **kwargs), axis=-1)


class Box:
    """A device on which convolutions cost most, and on which some networks do not run."""

    def __init__(self, broken=(), ends=10**9):
        self.broken, self.ends, self.asked = broken, ends, []

    def latency(self, name):
        return 1.0 + 5 * name.count("3x3") + 2 * name.count("1x1") + 0.1 * name.count("skip")

    def __call__(self, names):
        self.asked.append(list(names))
        if len(self.asked) > self.ends:
            raise KeyboardInterrupt
        return [
            Row("nasbench201", n, {} if any(b in n for b in self.broken) else {LATENCY: self.latency(n)})
            for n in names
        ]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(active_search, "FIRST", 12)
    monkeypatch.setattr(active_search, "POOL", 40)


def learner(model=None):
    model = model or Model()
    return Learner(Reader(model, SPACE), [LATENCY], model.experts)


def test_the_budget_goes_to_some_that_differ_and_then_to_the_front():
    box, known = Box(), learner()
    result = explore(known, SETTINGS, box)
    first, *turns = box.asked
    measured = [name for some in box.asked for name in some]
    assert len(set(measured)) == len(measured) <= SETTINGS.budget
    assert (len(first), len(turns[0])) == (12, 6)
    assert result.status == dict.fromkeys(measured, MEASURED)
    at = {name: k for k, name in enumerate(result.architectures)}
    for name in measured:
        assert result.values[at[name], 1].tolist() == [box.latency(name)] * 3
    on_front = {result.architectures[i] for i in result.front}
    assert len(measured) == SETTINGS.budget or on_front <= set(measured)
    assert len(on_front & set(measured)) > len(on_front & set(first))


def test_what_is_measured_teaches_what_is_not():
    box, known = Box(), learner()
    result = explore(known, SETTINGS, box)
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.corrcoef(result.medians[rest, 1], true)[0, 1] > 0.9
    low, high = result.values[rest, 1, 0], result.values[rest, 1, 2]
    assert (low < high).all()


def test_networks_that_the_device_cannot_run_are_never_on_the_front():
    box, known = Box(broken=("avg_pool_3x3~0",)), learner()
    result = explore(known, SETTINGS, box)
    failed = {name for name in known.measured if "avg_pool_3x3~0" in name}
    assert failed
    assert all(result.status[name] == FAILED for name in failed)
    assert not failed & {result.architectures[i] for i in result.front}
    assert len(box.asked[0]) == 12 > len(box.asked[1])  # a few more, since too few of the first ones run


def test_what_only_failing_networks_have_is_avoided():
    box, known = Box(broken=("nor_conv_1x1",)), learner()
    result = explore(known, replace(SETTINGS, budget=60), box)
    front = [result.architectures[i] for i in result.front]
    assert front
    assert not any("nor_conv_1x1" in name for name in front)
    assert all(result.status[name] == FAILED for name in result.architectures if "nor_conv_1x1" in name)
    late = [name for some in box.asked[2:] for name in some]
    assert sum("nor_conv_1x1" in name for name in late) < 0.2 * len(late)


def test_a_device_that_runs_next_to_nothing():
    box = Box(broken=("|",))
    with pytest.raises(ValueError, match="0 of 12 networks could be measured on onnxruntime-cpu-1t"):
        explore(learner(), SETTINGS, box)
    assert len(box.asked) == 1  # what all of them have fails: the rest of the budget is not spent


@pytest.mark.parametrize(
    "changed",
    [
        {"objectives": (LATENCY,)},
        {"objectives": ("accuracy",), "constraints": (f"{LATENCY}<=14",)},
        {"constraints": (f"{LATENCY}<=2.05",)},
    ],
)
def test_fronts_of_few_points_are_measured_too(changed):
    settings, box = replace(SETTINGS, **changed), Box()
    result = explore(learner(), settings, box)
    assert len(box.asked) > 1
    front = [result.architectures[i] for i in result.front]
    assert front
    assert all(result.status.get(name) == MEASURED for name in front)


def write(out, known, result):
    write_front(out, SPACE, result, joint_samples(SPACE, known, result))


def test_a_search_that_was_killed_while_it_measured_ends_the_same(tmp_path):
    whole, known = tmp_path / "whole", learner()
    result = explore(known, SETTINGS, Box(), open_log(whole, SETTINGS, False))
    write(whole, known, result)
    for ends in (0, 1, 2):  # while it measures
        cut = tmp_path / f"cut{ends}"
        with pytest.raises(KeyboardInterrupt):
            explore(learner(), SETTINGS, Box(ends=ends), open_log(cut, SETTINGS, False))
        again = learner()
        log = open_log(cut, SETTINGS, True)
        write(cut, again, explore(again, SETTINGS, Box(), log))
        log.finish()
        for name in ("log.jsonl", "front.csv", "samples.json", "pareto.png", "report.html"):
            assert (cut / name).read_bytes() == (whole / name).read_bytes()
    kept = (whole / "log.jsonl").read_bytes()
    for share in (0.3, 0.6, 0.95):  # while it writes
        (whole / "log.jsonl").write_bytes(kept[: int(share * len(kept))])
        again = learner()
        write(whole, again, explore(again, SETTINGS, Box(), open_log(whole, SETTINGS, True)))
        assert (whole / "log.jsonl").read_bytes() == kept
    read = read_result(whole)
    assert (read.architectures, read.status) == (result.architectures, result.status)
    assert (read.values == result.values).all()
    rows = (whole / "front.csv").read_text().splitlines()
    assert rows[0].endswith(",status")
    told = {row.rsplit(",", 1)[1] for row in rows[1:]}
    assert MEASURED in told <= {MEASURED, "predicted"}


def test_a_measuring_search_is_not_made_longer(tmp_path):
    open_log(tmp_path / "run", SETTINGS, False)
    with pytest.raises(ValueError, match="generations 3 where 4"):
        open_log(tmp_path / "run", replace(SETTINGS, generations=4), True)


def test_what_is_known_of_a_device_of_the_same_name_is_advice():
    box, rng = Box(), np.random.default_rng(5)
    rows = box([str(SPACE.sample(rng)) for _ in range(120)])
    slower = [Row(r.space, r.arch_str, {LATENCY: 3 * r.targets[LATENCY]}) for r in rows]
    known = learner(Model([expert(usual_counts("nasbench201"), slower, [LATENCY])]))
    result = explore(known, SETTINGS, box)
    assert len(known.own[LATENCY].counts.advisers) == 1
    rest = [k for k, name in enumerate(result.architectures) if name not in result.status]
    true = np.array([box.latency(result.architectures[k]) for k in rest])
    assert np.median(np.abs(result.medians[rest, 1] / true - 1)) < 0.2


def test_other_devices_advise():
    box, rng = Box(), np.random.default_rng(5)
    rows = box([str(SPACE.sample(rng)) for _ in range(60)])
    rows = [Row(r.space, r.arch_str, {"latency/pixel3": 3 * r.targets[LATENCY]}) for r in rows]
    known = learner(Model([expert(usual_counts("nasbench201"), rows, ["latency/pixel3"])]))
    assert not known.is_ready
    known.learn(box(first_of(known, SETTINGS, 12)))
    assert known.is_ready
    assert len(known.own[LATENCY].counts.advisers) == 1
    asked = list({str(SPACE.sample(rng)) for _ in range(50)} - known.measured.keys())
    told = as_told(known, SETTINGS, asked).medians[:, 1]
    true = np.array([box.latency(name) for name in asked])
    assert np.median(np.abs(told / true - 1)) < 0.1


def test_what_is_worth_a_measurement():
    def told(accuracy, low, middle, high):
        return [[accuracy] * 3, [low, middle, high]]

    values = {
        "sure": told(90, 4.9, 5, 5.1),
        "unsure": told(80, 2, 3, 4),
        "measured": told(70, 1, 1, 1),
        "perhaps": told(83, 2.9, 5.2, 6.3),
        "never": told(79, 3.1, 3.3, 3.5),
        "failed": told(99, 1, 1, 1),
    }
    result = Result(
        SETTINGS, list(values), np.array(list(values.values())), {"measured": MEASURED, "failed": FAILED}
    )
    assert worth(result, [LATENCY], 9) == ["unsure", "perhaps", "sure"]
    assert worth(result, [LATENCY], 1) == ["unsure"]
    assert worth(result, [LATENCY], 9, confirming=True) == ["unsure", "sure"]
    assert worth(result, [LATENCY], 0) == []


def test_what_goes_upwards_is_hoped_to_be_high():
    values = {
        "sure": [[84, 85, 86], [5] * 3],
        "unsure": [[70, 80, 90], [5] * 3],
        "low": [[70, 71, 72], [5] * 3],
    }
    result = Result(SETTINGS, list(values), np.array(list(values.values()), dtype=float), {})
    assert worth(result, ["accuracy", LATENCY], 9) == ["unsure"]


def test_proposals_lead_to_the_front():
    model, rng = Model(), np.random.default_rng(3)
    objectives = SETTINGS.objectives
    settings = replace(SETTINGS, device="", budget=0, population=60, generations=5)

    def rows(names):
        told = zip(names, model.medians(names, ["accuracy"])[:, 0].tolist(), strict=True)
        return [Row("nasbench201", n, {"accuracy": a, LATENCY: Box().latency(n)}) for n, a in told]

    known = Learner(Reader(model, SPACE), objectives, {})
    while len(known.measured) < 40:
        names = propose(known, settings, 10)
        assert 1 <= len(names) <= 10
        assert not known.measured.keys() & set(names)
        known.learn(rows(names))
    assert not model.predicted
    found = [[r.targets[o] for o in objectives] for r in known.measured.values()]
    drawn = {str(SPACE.sample(rng)): None for _ in range(2000)}
    some = rows(drawn)
    every = [[r.targets[o] for o in objectives] for r in some]
    best = hypervolume(np.array(every), objectives, (60, 40))
    assert hypervolume(np.array(found), objectives, (60, 40)) > 0.96 * best
    assert hypervolume(np.array(every[:40]), objectives, (60, 40)) < 0.94 * best
    assert propose(known, settings, 10) == propose(known, settings, 10)


def test_joint_draws_hold_what_was_measured():
    box, known = Box(), learner()
    names = first_of(known, SETTINGS, 12)
    known.learn(box(names))
    new = [str(SPACE.sample(np.random.default_rng(9)))]
    drawn = known.sample(SPACE, [SPACE.parse(n) for n in names[:2] + new], SETTINGS.predicted, 32)
    assert drawn.shape == (3, 32, 2)
    assert (drawn[0, :, 1] == box.latency(names[0])).all()
    assert drawn[2, :, 1].std() > 0
    assert drawn[0, :, 0].std() > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": 0}, "budget is 0, expected at least 10"),
        ({"device": ""}, "budget is 24 on no device"),
        ({"device": "torch-cpu-1t"}, "nothing of torch-cpu-1t is among accuracy"),
        ({"objectives": ("accuracy", "energy/onnxruntime-cpu-1t")}, "nothing of onnxruntime-cpu-1t is among"),
    ],
)
def test_settings_that_cannot_be_measured(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **changed)
