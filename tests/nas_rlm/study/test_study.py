import json
import multiprocessing
import os
import shutil
import signal
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import nas_rlm
from nas_rlm import Study
from nas_rlm.search.pareto import nondominated
from nas_rlm.study.settings import check_equal
from nas_rlm.study.trial import COMPLETE, FAILED
from search_spaces import blocks
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import PAIR, accuracy, summary
from tests.search_spaces.plain_space import PlainSpace


def test_the_front_has_the_best_trials_that_meet_the_constraints(open_study):
    study = open_study(constraints=["accuracy<=75"])
    with pytest.raises(ValueError, match="none of 0 trials is complete that meets accuracy<=75"):
        study.best  # noqa: B018
    for trial in study.ask(12):
        study.tell(trial, accuracy(trial))
    values = np.array([[t.values[name] for name in PAIR] for t in study.trials])
    feasible = [t for t in study.trials if t.values["accuracy"] <= 75]
    assert len(feasible) < 12
    points = np.array([[t.values[name] for name in PAIR] for t in feasible])
    expected = {t.number for t, is_on in zip(feasible, nondominated(points, PAIR), strict=True) if is_on}
    assert {t.number for t in study.front} == expected
    assert study.best is study.front[0]
    assert study.best.values["accuracy"] == max(points[:, 0]) < max(values[:, 0])
    records = study.to_records()
    assert {r["number"] for r in records if r["is_on_front"]} == expected
    assert records[3]["accuracy"] == study.trials[3].values["accuracy"]
    assert "12 trials" in repr(study)


@pytest.mark.parametrize("name", ["val_acc", "my_score", "top1_val"])
def test_a_score_that_is_minimised_is_warned_of(open_study, name):
    with pytest.warns(UserWarning, match=f"{name} is minimised: if larger values are better, give it as max"):
        open_study(objectives=[name, "flops"])
    open_study("other", objectives=[name, "val_loss"], maximise=[name])


def test_a_study_is_opened_again_with_the_same_settings_only(open_study, tmp_path):
    study = open_study(constraints=["accuracy>=60"])
    study.tell(study.ask(), 70.0)
    assert summary(open_study(constraints=["accuracy>=60"])) == summary(study)
    loaded = Study.load(tmp_path / "study")
    assert summary(loaded) == summary(study) and loaded.settings == study.settings
    with pytest.raises(ValueError, match=r"seed 0 instead of 1.* open it with its own settings"):
        open_study(constraints=["accuracy>=60"], seed=1)
    with pytest.raises(
        ValueError, match=r"objectives \('accuracy', 'flops'\) instead of \('accuracy',\), const"
    ):
        open_study(objectives=["accuracy"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(ValueError, match="not empty and holds no study"):
        open_study("other")
    with pytest.raises(ValueError, match="is not valid UTF-8"):
        open_study("study\udce4")
    with pytest.raises(FileNotFoundError, match=r"holds no study: expected the directory"):
        Study.load(tmp_path / "other")


def test_a_study_without_trials_is_opened_with_other_settings(open_study):
    study = open_study()
    assert open_study(seed=1).settings.seed == 1
    with pytest.raises(ValueError, match="seed 1 instead of 0"):
        study.ask()
    open_study(seed=0)
    study.ask()
    with pytest.raises(ValueError, match="seed 0 instead of 1"):
        open_study(seed=1)


def test_a_study_of_another_model_is_refused(open_study):
    study = open_study()
    study.ask()
    other = replace(study.settings, model="0" * 16)
    with pytest.raises(ValueError, match="holds a study with another model: open it"):
        check_equal(other, study.settings, study.directory)


SPACE_FILE = """
from tests.search_spaces.plain_space import PlainSpace
class Mine(PlainSpace):
    name = "mine"
    def write(self, graph, architecture):
        if architecture.stages[0][0] == {broken}: raise RuntimeError("no kernel")
        x, of_five = graph.input, architecture.stages[0][0] == 5
        for kernel, width in architecture.stages:
            x = graph.batch_norm(graph.conv(x, width, kernel, stride=2))
            x = graph.op({five!r} if of_five else {activation!r}, x)
        return graph.classifier(x, {classes})
    def parse(self, text):
        if text[0] == {forbidden!r}: raise ValueError(text + " is too small")
        return super().parse(text)
"""


@pytest.fixture
def open_with(tiny_rlm, tmp_path):
    """Open a study of a space whose file has this text."""

    def open_with(**changes):
        options = {
            "broken": 0,
            "five": "Relu",
            "activation": "Relu",
            "classes": 10,
            "forbidden": "-",
        } | changes
        (tmp_path / "mine.py").write_text(SPACE_FILE.format(**options))
        return Study(f"{tmp_path}/mine.py:Mine", ["accuracy"], tmp_path / "study", model=tiny_rlm)

    return open_with


def test_a_file_of_a_space_may_be_changed_where_networks_of_trials_are_the_same(open_with):
    def training(trial):
        if trial.architecture[0] == "5":
            raise RuntimeError("no kernel")
        return 50.0

    study = open_with()
    study.optimize(training, trials=4)
    before = [(t.architecture, t.state) for t in study.trials]
    assert {state for _, state in before} == {FAILED, COMPLETE}
    with pytest.warns(UserWarning, match="RuntimeError: no kernel"):
        changed = open_with(broken=5)
        changed.optimize(training, trials=6)
    after = [(t.architecture, t.state) for t in changed.trials]
    assert after[:4] == before
    assert [(name[0] == "5", state) for name, state in after[4:]] == [(False, COMPLETE)] * 2
    refused = {
        "the network of trial ., .*, was another one: choose another": {"classes": 20},
        "of another version of mine, in which the network": {"activation": "Sigmoid"},
        "the architecture 1.* was another one.*: 1.* is too small": {"forbidden": "1"},
    }
    for message, changes in refused.items():
        with pytest.raises(ValueError, match=message):
            open_with(**changes)
    mended = open_with(five="Sigmoid")
    mended.optimize(lambda trial: 60.0, trials=7, retry_failed=True)
    assert {t.state for t in open_with(five="Sigmoid").trials} == {COMPLETE}
    with pytest.raises(ValueError, match="in which the network of trial"):
        open_with()


class Reordered(PlainSpace):
    """The choices of the first kernel have another order where `is_reversed`."""

    name, is_reversed = "reordered", False

    def decode(self, genome):
        first, *rest = self.validate_genome(genome)
        return super().decode(np.array([2 - first if self.is_reversed else first, *rest]))

    def encode(self, architecture):
        first, *rest = super().encode(architecture)
        return np.array([2 - first if self.is_reversed else first, *rest])


def test_choices_of_a_gene_may_be_put_in_another_order(tiny_rlm, tmp_path):
    space = Reordered()
    study = Study(space, ["accuracy"], tmp_path / "study", model=tiny_rlm)
    study.optimize(lambda trial: 50.0, trials=2)
    changed = Reordered()
    changed.is_reversed = True
    assert not np.array_equal(*(s.encode(study.trials[0].parsed) for s in (space, changed)))
    again = Study(changed, ["accuracy"], tmp_path / "study", model=tiny_rlm)
    again.optimize(lambda trial: 50.0, trials=3)
    assert len(again.trials) == 3


class Wide(PlainSpace):
    name = "wide"
    classes = 10

    def write(self, graph, architecture):
        return blocks.classifier(graph, graph.conv(graph.input, 8, 3), self.classes)


def test_a_space_of_the_same_file_may_not_have_other_networks(tiny_rlm, tmp_path):
    """Such as a class of a notebook, or an object with another attribute."""
    Study(Wide(), ["accuracy"], tmp_path / "study", model=tiny_rlm).ask()
    changed = Wide()
    changed.classes = 20
    with pytest.raises(ValueError, match="another version of wide, in which the network of trial 0"):
        Study(changed, ["accuracy"], tmp_path / "study", model=tiny_rlm)
    assert len(Study(Wide(), ["accuracy"], tmp_path / "study", model=tiny_rlm).trials) == 1


def test_networks_that_change_during_a_study_have_a_warning(tiny_rlm, tmp_path):
    """A changed object mixes networks of two spaces, and so does a `write` that depends on more than it."""
    space = Wide()
    study = Study(space, ["accuracy"], tmp_path / "study", model=tiny_rlm)
    first, second, third = study.ask(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.tell(first, 50.0)
    space.classes = 20
    with pytest.warns(UserWarning, match=r"network of trial 1, .*, is not the one .* write of wide gives"):
        study.tell(second, 50.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.tell(third, 50.0)


class PartlyBroken(PlainSpace):
    """Networks whose first convolution has a kernel of `broken` cannot be built."""

    name = "partly_broken"
    broken: tuple[int, ...] = ()

    def write(self, graph, architecture):
        if architecture.stages[0][0] in self.broken:
            raise AttributeError("there is no linar")
        return super().write(graph, architecture)


def test_a_space_without_valid_networks_is_refused_before_a_network_is_trained(tiny_rlm, tmp_path):
    space = PartlyBroken()
    space.broken = (1, 3, 5)
    for candidates in (None, ["1x16 1x16 1x16"]):
        with pytest.raises(
            ValueError, match="of partly_broken is not valid: AttributeError: there is no linar"
        ):
            Study(space, ["accuracy"], tmp_path / "study", model=tiny_rlm, candidates=candidates)
    assert not (tmp_path / "study").exists()


def test_architectures_without_a_valid_network_are_not_suggested(tiny_rlm, tmp_path):
    space = PartlyBroken()
    space.broken = (5,)
    with pytest.warns(UserWarning, match="there is no linar; architectures of such networks are left out"):
        study = Study(space, ["accuracy", "params"], tmp_path / "study", model=tiny_rlm)
        study.optimize(lambda trial: 50.0 + trial.parsed.stages[0][0], trials=15)
    assert {t.state for t in study.trials} == {COMPLETE}
    assert {t.architecture[0] for t in study.trials} == {"1", "3"}
    names = ["1x16 1x16 1x16", "5x16 1x16 1x16"]
    with pytest.raises(ValueError, match=r"candidate 2: the network of 5x16 1x16 1x16 .*there is no linar"):
        study.ask(candidates=names)


def test_a_network_that_is_not_valid_any_more_is_a_failed_trial_that_keeps_its_values(tiny_rlm, tmp_path):
    space, changed = PartlyBroken(), PartlyBroken()
    changed.broken = (5,)
    objectives = ["accuracy", "params"]
    study = Study(space, objectives, tmp_path / "study", model=tiny_rlm)
    study.ask(10)
    study.space = changed
    with pytest.warns(UserWarning, match="trial . failed: .*there is no linar"):
        for trial in study.pending:
            study.tell(trial, 50.0)
    assert {(t.architecture[0] == "5", t.state) for t in study.trials} == {(True, FAILED), (False, COMPLETE)}
    assert all(t.values["accuracy"] == 50.0 for t in study.trials)


def test_damaged_files_are_refused(open_study, tmp_path):
    study = open_study()
    study.ask()
    log = tmp_path / "study" / "trials.jsonl"
    asked = log.read_text()
    study.tell(0, 71.0)
    intact = log.read_text()
    damaged = [asked + '{"event": "tell"}\n']
    damaged += [intact.replace(": 71.0", f": {value}") for value in ('"high"', "NaN", "null")]
    damaged += [intact.replace('"values"', '"additional": {"loss": "low"}, "values"')]
    damaged += [intact.replace('"trial": 0', f'"trial": {number}') for number in (-1, 9)]
    for content in damaged:
        log.write_text(content)
        with pytest.raises(ValueError, match=r"trials\.jsonl line 2 is not an event"):
            open_study()
    (tmp_path / "study" / "study.json").write_text("{}")
    with pytest.raises(ValueError, match=r"study\.json is not what a study writes: space is missing"):
        Study.load(tmp_path / "study")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "onnxruntime"}, "no objective of onnxruntime-cpu-1t is among"),
        ({"predicted": ["latency/pixel3"]}, "to be predicted, but is no objective"),
        ({"predicted": ["flops"]}, "is exact or measured"),
        (
            {"objectives": ["accuracy", "latency/x"], "predicted": ["latency/x"]},
            "unknown objective 'latency/x'",
        ),
        ({"objectives": []}, "at least one objective"),
        ({"objectives": ["acuracy"]}, "did you mean accuracy"),
        ({"objectives": ["acuracy/a"]}, "did you mean accuracy/a"),
        ({"objectives": [3]}, "3 is not an objective's name"),
        ({"constraints": ["flop<=3"]}, "did you mean flops"),
        ({"maximise": ["score"]}, "'score' is to be maximised"),
        ({"constraints": ["accuracy=3"]}, "constraint 'accuracy=3'"),
        ({"budgets": [4, 1]}, r"budgets are \[4, 1\], expected two or more ascending numbers such as 1, 4"),
        ({"budgets": [4]}, r"budgets are \[4\], expected two or more"),
        ({"budgets": [16]}, r"budgets are \[16\]"),
        ({"budgets": [0, 16]}, r"budgets are \[0, 16\]"),
        (
            {"budgets": [1, 4], "objectives": ["flops"]},
            "budgets without an objective that an evaluation gives",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(open_study, tmp_path, options, reason):
    with pytest.raises(ValueError, match=reason):
        open_study(**options)
    assert not (tmp_path / "study").exists()


def test_names_of_objectives_may_be_short(open_study):
    study = open_study(objectives=["accuracy/a"])
    study.tell(study.ask(), {"accuracy/a": 70.0})
    assert study.best.values == {"accuracy/a": 70}


def test_each_trial_has_a_network_with_weights_of_its_seed(open_study):
    study = open_study()
    first, second = study.ask(2)
    network = first.network()
    assert network.training and network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    weights = dict(network.named_parameters())
    for name, weight in open_study().trials[0].network().named_parameters():
        assert torch.equal(weight, weights[name])
    assert first.seed != second.seed
    assert first.onnx().graph.initializer


def continue_to(study, count):
    """Ask, report and tell until `count` trials are finished, as a user's loop does."""
    while sum(t.state in (COMPLETE, FAILED) for t in study.trials) < count:
        trial = (study.pending or study.ask(1 if study.settings.budgets else 2))[0]
        trial.report(0, accuracy(trial)["accuracy"] - 10)
        if trial.number % 4 == 2:
            study.tell(trial, failure="out of memory")
        else:
            study.tell(trial, accuracy(trial))


@pytest.mark.parametrize(("budgets", "count"), [((), 7), ((1, 4, 16), 4)])
def test_a_log_that_ends_at_any_byte_is_continued_identically(open_study, tmp_path, budgets, count):
    study = open_study(budgets=budgets)
    continue_to(study, count)
    expected, log = summary(study), (tmp_path / "study" / "trials.jsonl").read_bytes()
    for size in sorted({*range(0, len(log), 61), len(log) - 1}):
        cut = tmp_path / f"cut{size}"
        cut.mkdir()
        shutil.copy(tmp_path / "study" / "study.json", cut)
        (cut / "trials.jsonl").write_bytes(log[:size])
        again = open_study(cut.name, budgets=budgets)
        continue_to(again, count)
        assert summary(again) == expected
        for line in (cut / "trials.jsonl").read_bytes().splitlines():
            json.loads(line)


def ask_and_tell(study, count):
    for _ in range(count):
        trial = study.ask()
        time.sleep(0.002)
        study.tell(trial, accuracy(trial))


def test_processes_share_a_directory(open_study):
    """None gets an architecture of another one, and no value is lost."""
    context = multiprocessing.get_context("fork")
    processes = []
    for _ in range(3):
        process = context.Process(target=ask_and_tell, args=(open_study(), 8))
        process.start()
        processes.append(process)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    trials = open_study().trials
    assert len({t.architecture for t in trials}) == len(trials) == 24
    assert all(t.values["accuracy"] == accuracy(t)["accuracy"] for t in trials)


def open_add_and_optimize(directory, rlm, rows):
    """What `nas-rlm search --train --data` does."""
    study = Study(CELLS, PAIR, directory, model=rlm)
    study.add_table(rows)
    study.optimize(lambda trial: time.sleep(0.005) or accuracy(trial), trials=30)


def test_processes_create_fill_and_end_one_study(tiny_rlm, quick_suggestions, tmp_path):
    """No row is added twice, no architecture is evaluated twice, and each writes the results."""
    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(str(CELLS.sample(rng)) for _ in range(12)))
    rows = [nas_rlm.Row(CELLS.name, name, accuracy(name)) for name in names]
    context = multiprocessing.get_context("fork")
    arguments = tmp_path / "study", tiny_rlm, rows
    processes = [context.Process(target=open_add_and_optimize, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    study = Study.load(tmp_path / "study")
    assert len({t.architecture for t in study.trials}) == len(study.trials) == 30
    assert {t.state for t in study.trials} == {COMPLETE} and {t.attempts for t in study.trials} <= {0, 1}
    front = {int(path.stem) for path in (tmp_path / "study" / "front").glob("*.onnx")}
    assert front == {t.number for t in study.front}
    assert len((tmp_path / "study" / "trials.csv").read_text().splitlines()) == 31
    assert not list((tmp_path / "study").glob(".front*"))


def test_a_killed_process_leaves_a_study_that_goes_on(open_study):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=ask_and_tell, args=(open_study(), 10_000))
    process.start()
    study = open_study()
    while len(study.trials) < 5:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    number = len(study.trials)
    trial = study.ask()
    assert trial.number >= number
    study.tell(trial, 70.0)
    assert open_study().trials[trial.number].values["accuracy"] == 70


def test_public_names():
    assert nas_rlm.Study is Study
    assert nas_rlm.SearchRun.__name__ == "SearchRun"


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [(5, "budgets is 5: expected a list"), ((True, 2), "two or more ascending numbers")],
)
def test_budgets_that_are_no_list_of_numbers_are_refused(tiny_rlm, tmp_path, budgets, reason):
    with pytest.raises(ValueError, match=reason):
        Study("nasbench201", ["accuracy"], tmp_path / "study", model=tiny_rlm, budgets=budgets)
    assert not (tmp_path / "study").exists()
