import math
import time
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import search_spaces
from nas_rlm.study.suggestion import PoolSuggester
from search_spaces import blocks
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import accuracy, quick_suggestions, tiny_rlm  # noqa: F401 - fixtures
from tests.search_spaces.plain_space import PlainSpace

optuna = pytest.importorskip("optuna", reason="needs Optuna")

from nas_rlm.integrations.optuna import SUGGESTING, RLMSampler, labels, suggest_architecture  # noqa: E402

DIRECTIONS = ("maximize", "minimize")


class Four(search_spaces.SearchSpace):
    """A space of four networks."""

    name, size, genes, input_shape = "four", 4, (4,), (3, 8, 8)

    def decode(self, genome):
        return 8 * (int(genome[0]) + 1)

    def encode(self, architecture):
        return np.array([architecture // 8 - 1])

    def parse(self, text):
        return int(text)

    def write(self, graph, architecture):
        return blocks.classifier(graph, blocks.conv_norm(graph, graph.input, architecture, 3), 4)


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def sampler(tiny_rlm, quick_suggestions):  # noqa: F811
    return RLMSampler(CELLS, ["accuracy", "latency/mine"], model=tiny_rlm)


def objective(trial):
    cell = suggest_architecture(trial, CELLS)
    rate = trial.suggest_float("rate", 0.01, 0.1)
    if trial.number == 2:
        raise optuna.TrialPruned
    return accuracy(cell)["accuracy"], 1 + str(cell).count("conv") + rate


def test_the_sampler_suggests_new_architectures_from_all_trials(sampler, monkeypatch):
    seen, suggest = [], PoolSuggester.suggest

    def recorded(self, rows, pending, count, candidates):
        seen.append((list(rows), list(pending)))
        assert len(candidates) == len(seen) - 1  # one with each suggestion
        return suggest(self, rows, pending, count, candidates)

    monkeypatch.setattr(PoolSuggester, "suggest", recorded)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.optimize(objective, n_trials=6)
    cells = [str(CELLS.decode(np.array([t.params[f"gene{i}"] for i in range(6)]))) for t in study.trials]
    assert len(set(cells)) == 6
    rows, pending = seen[-1]
    assert [row.arch_str for row in rows] == cells[:5] and pending == []
    assert rows[2].targets == {}  # pruned
    assert rows[4].targets == dict(zip(("accuracy", "latency/mine"), study.trials[4].values, strict=True))
    study.ask().suggest_int("gene0", 0, 4)
    pending_trial = study.ask()
    cell = suggest_architecture(pending_trial, CELLS)
    study.ask().suggest_int("gene0", 0, 4)
    assert str(cell) in seen[-1][1]


@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_trials_of_several_threads_have_different_architectures(sampler, monkeypatch, delay):
    """Also where a trial is suggested before the objective function of an earlier one has begun."""
    suggest, busy = PoolSuggester.suggest, []

    def one_at_a_time(self, *arguments):
        busy.append(True)
        assert len(busy) == 1
        time.sleep(0.01)
        busy.pop()
        return suggest(self, *arguments)

    def slow(trial):
        time.sleep(delay)
        cell = suggest_architecture(trial, CELLS)
        return accuracy(cell)["accuracy"], 1.0

    monkeypatch.setattr(PoolSuggester, "suggest", one_at_a_time)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.optimize(slow, n_trials=24, n_jobs=3)
    cells = [str(to_cell(trial.params)) for trial in study.trials]
    assert len(set(cells)) == len(cells) == 24
    assert all(trial.values for trial in study.trials)


def test_a_constraint_on_another_value_is_refused(tiny_rlm):  # noqa: F811
    with pytest.raises(
        ValueError, match=r"on latency/mine, which .* expected one of accuracy, flops, params"
    ):
        RLMSampler(CELLS, ["accuracy"], constraints=["latency/mine<=1"], model=tiny_rlm)
    RLMSampler(CELLS, ["accuracy"], constraints=["flops<=1e9"], model=tiny_rlm)


def test_trials_with_genes_of_another_kind_are_left_out(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    parameters = {f"gene{i}": "none" for i in range(6)}
    kinds = {name: optuna.distributions.CategoricalDistribution(["none"]) for name in parameters}
    study.add_trial(optuna.create_trial(params=parameters, distributions=kinds, values=[70.0, 1.0]))
    study.add_trial(optuna.create_trial(values=[70.0, 1.0]))
    suggest_architecture(study.ask(), CELLS)


def test_a_function_that_does_not_use_the_suggestion_is_warned_of(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    with pytest.warns(UserWarning, match=r"trial 0 has the parameters width, which are random: get the arch"):
        study.optimize(lambda trial: (float(trial.suggest_int("width", 8, 64)), 1.0), n_trials=1)


def test_a_function_that_does_not_use_suggestions_is_warned_of_once(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study.optimize(lambda trial: (float(trial.suggest_int("width", 8, 64)), 1.0), n_trials=3)
    assert len(caught) == 1


def test_another_direction_is_refused(sampler):
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    with pytest.raises(ValueError, match=r"are \['maximize', 'minimize'\]: create the study with them"):
        study.optimize(objective, n_trials=1)


def test_counts_of_another_network_are_warned_of(tiny_rlm, quick_suggestions):  # noqa: F811
    sampler = RLMSampler(CELLS, ["accuracy", "params"], model=tiny_rlm)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)

    def in_millions(trial):
        cell = suggest_architecture(trial, CELLS)
        return accuracy(cell)["accuracy"], CELLS.params(cell) / (1 if trial.number == 0 else 1e6)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(in_millions, n_trials=1)
    with pytest.warns(UserWarning, match=r"trial 1: params of .* is 0\..*, and nasbench201 counts") as caught:
        study.optimize(in_millions, n_trials=2)
    assert len(caught) == 1


def test_finished_studies_are_labels():
    study = optuna.create_study(directions=DIRECTIONS, sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=5)

    def to_cell(params):
        return CELLS.decode(np.array([params[f"gene{i}"] for i in range(6)]))

    rows = labels(study, "nasbench201", ["accuracy", "latency/mine"], to_cell)
    assert [row.targets["accuracy"] for row in rows] == [t.values[0] for t in study.trials if t.values]
    assert rows[0].space == "nasbench201" and rows[0].arch_str == str(to_cell(study.trials[0].params))
    with pytest.raises(ValueError, match="has 2 values for 1 name: accuracy"):
        labels(study, CELLS, ["accuracy"], to_cell)
    with pytest.raises(
        ValueError,
        match=r"none of 5 trials is complete, with valid values, and an arch.*: trial 0: 'no cell'",
    ):
        labels(study, CELLS, ["accuracy", "latency/mine"], lambda params: "no cell")
    with pytest.raises(ValueError, match="trial 0: 'cell' is missing"):
        labels(study, CELLS, ["accuracy", "latency/mine"], lambda params: params["cell"])
    with pytest.raises(ValueError, match="objectives is 'accuracy': expected a list"):
        labels(study, CELLS, "accuracy", to_cell)


def test_complete_trials_that_are_no_architecture_are_warned_of():
    study = study_of([71.0, None])
    other = optuna.create_trial(
        params={"width": 8},
        distributions={"width": optuna.distributions.IntDistribution(8, 64)},
        value=70.0,
    )
    study.add_trial(other)
    with pytest.warns(UserWarning, match="1 entry .* was left out: trial 2: 'gene0' is missing"):
        rows = labels(study, CELLS, ["accuracy"], lambda p: CELLS.decode([p[f"gene{i}"] for i in range(6)]))
    assert [row.targets for row in rows] == [{"accuracy": 71.0}]


def test_an_error_of_the_function_of_parameters_names_the_trial():
    with pytest.raises(ValueError, match=r"for trial 0 with .*'gene0': 0.*: 'dict' object has no attribute"):
        labels(study_of([71.0]), CELLS, ["accuracy"], lambda parameters: parameters.cell)


def test_labels_in_another_order_than_the_values_are_refused():
    def flops_and_loss(trial):
        return CELLS.flops(suggest_architecture(trial, CELLS)), trial.number

    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.optimize(flops_and_loss, n_trials=2)
    assert len(labels(study, CELLS, ["flops", "loss"], to_cell)) == 2
    with pytest.raises(ValueError, match=r"flops of \|.* is 0, and nasbench201 counts [\d,]+: expected"):
        labels(study, CELLS, ["loss", "flops"], to_cell)
    with pytest.raises(ValueError, match="accuracy is maximised, and the Optuna study minimises it"):
        labels(study, CELLS, ["flops", "accuracy"], to_cell)


def study_of(values):
    """A study of one cell, whose trials have these values or failed."""
    study = optuna.create_study(direction="maximize")
    parameters = {f"gene{i}": 0 for i in range(6)}
    kinds = {name: optuna.distributions.IntDistribution(0, 4) for name in parameters}
    for value in values:
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.create_trial(params=parameters, distributions=kinds, value=value, state=state))
    return study


def to_cell(parameters):
    return CELLS.decode(list(parameters.values()))


def test_trials_of_the_same_architecture_have_their_mean_without_those_that_failed():
    rows = labels(study_of([71.0, None, 73.0, 78.0, None]), CELLS, ["accuracy"], to_cell)
    assert [row.targets for row in rows] == [{"accuracy": 74.0}]


@pytest.mark.parametrize("value", [math.inf, 300.0])
def test_values_that_an_objective_cannot_have_count_as_failures(value):
    with pytest.warns(UserWarning, match=f"trial 1 .* accuracy is {value:g}, expected a percentage"):
        rows = labels(study_of([71.0, value]), CELLS, ["accuracy"], to_cell)
    assert [row.targets for row in rows] == [{"accuracy": 71.0}]


def test_labels_are_added_to_a_study(open_study_of_labels):
    study, rows = open_study_of_labels
    study.add_table(rows)
    assert [t.values["accuracy"] for t in study.trials] == [row.targets["accuracy"] for row in rows]


@pytest.fixture
def open_study_of_labels(tiny_rlm, quick_suggestions, tmp_path):  # noqa: F811
    from nas_rlm import Study

    finished = optuna.create_study(directions=DIRECTIONS, sampler=optuna.samplers.RandomSampler(seed=0))
    finished.optimize(objective, n_trials=4)
    rows = labels(
        finished,
        CELLS,
        ["accuracy", "latency/mine"],
        lambda params: CELLS.decode(np.array([params[f"gene{i}"] for i in range(6)])),
    )
    return Study(CELLS, ["accuracy", "latency/mine"], tmp_path / "study", model=tiny_rlm), rows


def test_trials_that_lack_genes_do_not_have_the_same_suggestion_again(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)

    def pruned(trial):
        trial.suggest_int("gene0", 0, 4)
        raise optuna.TrialPruned

    study.optimize(pruned, n_trials=6)
    suggested = [trial.system_attrs["nas_rlm:architecture"] for trial in study.trials]
    assert len(set(suggested)) == 6


def test_a_function_that_asks_for_some_genes_or_other_ranges_is_warned_of(tiny_rlm, quick_suggestions):  # noqa: F811
    for ranges, reason in [
        ([4, 4], r"trial 0 has no gene2, gene3, gene4, gene5, so that nothing is learnt"),
        ([4, 4, 4, 9, 4, 4], r"trial 0 has gene3 from IntDistribution\(high=9.*, and nasbench201 has Int"),
    ]:
        sampler = RLMSampler(CELLS, ["accuracy", "latency/mine"], model=tiny_rlm)
        study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)

        def some(trial, ranges=ranges):
            return float(sum(trial.suggest_int(f"gene{i}", 0, high) for i, high in enumerate(ranges))), 1.0

        with pytest.warns(UserWarning, match=reason):
            study.optimize(some, n_trials=1)


def test_two_samplers_on_one_storage_have_different_architectures(
    tiny_rlm,  # noqa: F811
    quick_suggestions,  # noqa: F811
    monkeypatch,
):
    """As those of two processes, also where the other one has found the same suggestion meanwhile."""
    first, second = (RLMSampler(CELLS, ["accuracy", "latency/mine"], model=tiny_rlm) for _ in range(2))
    monkeypatch.setattr(
        "nas_rlm.integrations.optuna.SUGGESTING", nullcontext()
    )  # which processes do not share
    storage = optuna.storages.InMemoryStorage()
    name = optuna.create_study(directions=DIRECTIONS, storage=storage).study_name
    one, two = (optuna.load_study(study_name=name, storage=storage, sampler=s) for s in (first, second))
    suggest = second._suggester.suggest
    asked = []

    def slow(*arguments):
        found = suggest(*arguments)
        if not asked:
            asked.append(suggest_architecture(one.ask(), CELLS))  # the second sampler has read the trials
        return found

    second._suggester.suggest = slow
    cells = [suggest_architecture(study.ask(), CELLS) for study in (two, one, two)]
    assert len(asked) == 1 and len({*map(str, cells + asked)}) == 4


def test_a_suggestion_that_another_process_wrote_at_the_same_time_is_not_used(tiny_rlm, quick_suggestions):  # noqa: F811
    sampler = RLMSampler(CELLS, ["accuracy", "latency/mine"], model=tiny_rlm)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    other = optuna.trial.Trial(study, study._storage.create_new_trial(study._study_id))
    write, written = study._storage.set_trial_system_attr, []

    def write_both(trial_id, key, value):
        if not written:
            write(other._trial_id, key, value)
        written.append(value)
        write(trial_id, key, value)

    study._storage.set_trial_system_attr = write_both
    assert str(suggest_architecture(study.ask(), CELLS)) == written[1] != written[0]


def test_enqueued_architectures_and_fixed_genes_are_accepted(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.enqueue_trial({f"gene{i}": 1 for i in range(6)})
    study.optimize(objective, n_trials=1)
    assert "nas_rlm:architecture" not in study.trials[0].system_attrs
    study.sampler = optuna.samplers.PartialFixedSampler({"gene0": 2}, sampler)
    study.optimize(objective, n_trials=4)
    assert [trial.params["gene0"] for trial in study.trials] == [1, 2, 2, 2, 2]


def test_the_search_ends_when_each_architecture_has_a_trial(tiny_rlm):  # noqa: F811
    space = Four()
    sampler = RLMSampler(space, ["accuracy"], model=tiny_rlm)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: float(len(str(suggest_architecture(trial, space)))), n_trials=20)
    assert len(study.trials) == 4
    with pytest.raises(ValueError, match="each architecture of four has a trial"):
        suggest_architecture(study.ask(), space)
    limit = sorted(map(space.flops, (8, 16, 24, 32)))[2]
    limited = RLMSampler(space, ["accuracy"], constraints=[f"flops<={limit}"], model=tiny_rlm)
    study = optuna.create_study(direction="maximize", sampler=limited)
    study.optimize(lambda trial: float(suggest_architecture(trial, space)), n_trials=20)
    assert [trial.values for trial in sorted(study.trials, key=lambda t: t.value)] == [[8], [16], [24]]


def test_the_check_for_further_architectures_waits_for_suggestions_of_other_threads(sampler, monkeypatch):
    held, is_exhausted = [], PoolSuggester.is_exhausted

    def recorded(self, known, candidates):
        held.append(SUGGESTING.locked())
        return is_exhausted(self, known, candidates)

    monkeypatch.setattr(PoolSuggester, "is_exhausted", recorded)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.optimize(objective, n_trials=2)
    assert held == [True, True] and not SUGGESTING.locked()


class Unregistered(PlainSpace):
    name = "unregistered"


def test_a_space_is_an_object_that_need_not_be_registered(tiny_rlm):  # noqa: F811
    space = Unregistered()
    study = optuna.create_study(direction="maximize", sampler=RLMSampler(space, ["accuracy"], model=tiny_rlm))
    study.optimize(lambda trial: 50.0 + suggest_architecture(trial, space).stages[0][0], n_trials=12)
    assert {trial.state for trial in study.trials} == {optuna.trial.TrialState.COMPLETE}
    with pytest.raises(
        ValueError, match=r"is the class Unregistered: expected an object such as MySpace\(\)"
    ):
        RLMSampler(Unregistered, ["accuracy"], model=tiny_rlm)


def test_a_value_that_an_objective_cannot_have_is_warned_of_once(sampler):
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)

    def impossible(trial):
        suggest_architecture(trial, CELLS)
        return 150.0 if trial.number == 0 else 50.0, 1.0

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study.optimize(impossible, n_trials=4)
    assert [str(w.message)[:42] for w in caught] == ["trial 0 of the Optuna study counts as fail"]


def test_scores_that_are_minimised_are_warned_of(tiny_rlm):  # noqa: F811
    with pytest.warns(UserWarning, match="val_acc is minimised: if larger values are better, give it as max"):
        sampler = RLMSampler(CELLS, ["val_acc"], model=tiny_rlm)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    with pytest.raises(ValueError, match="create the study with them, and give objectives that are max"):
        suggest_architecture(study.ask(), CELLS)


def test_labels_of_a_maximised_objective_that_a_study_minimises_are_warned_of():
    study = study_of([71.0])
    with pytest.warns(UserWarning, match="the Optuna study maximises score, which a Study minimises"):
        labels(study, CELLS, ["score"], to_cell)
