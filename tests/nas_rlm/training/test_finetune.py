import warnings

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.data.tables import keys
from nas_rlm.surrogates import calibration
from nas_rlm.surrogates.graph_surrogate import BESIDE
from nas_rlm.training import finetune
from nas_rlm.training.recipe import Recipe, TableRecipe

SPACE = search_spaces.get("nasbench201")
QUICK = Recipe((TableRecipe(""),), epochs=1, batch_size=16, warmup=1)


def rows(n):
    rng = np.random.default_rng(0)
    return [
        Row(
            "nasbench201",
            str(SPACE.sample(rng)),
            {"accuracy": 50 + 40 * rng.random(), "latency/mine": rng.random() + 1, "latency/other": 0.0},
        )
        for _ in range(n)
    ]


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


@pytest.fixture
def trainings(monkeypatch):
    """The rows, the epochs and the held-out rows of each training; none takes more than three epochs."""
    monkeypatch.setattr(finetune, "EPOCHS", 3)
    found, tuned = [], finetune._tuned

    def noted(rlm, some, objectives, recipe, learn, held=None):
        found.append((some, recipe.epochs, held.rows if held else []))
        return tuned(rlm, some, objectives, recipe, learn, held)

    monkeypatch.setattr(finetune, "_tuned", noted)
    return found


def test_a_new_objective_is_learnt_and_the_old_model_stays(rlm):
    before = {k: v.clone() for k, v in rlm.network.state_dict().items()}
    tuned = rlm.fine_tune(rows(20), ["latency/mine"], QUICK)
    assert tuned.objectives == (*rlm.objectives, "latency/mine")
    assert all((before[k] == v).all() for k, v in rlm.network.state_dict().items())
    assert tuned.predict(SPACE, [SPACE.sample(np.random.default_rng(0))], ["latency/mine"]).shape == (1, 1)


def test_a_new_objective_starts_at_the_known_one_that_is_most_like_it(rlm):
    some = rows(20)
    told = rlm.predict("nasbench201", [row.arch_str for row in some], ["latency/eyeriss"])[:, 0]
    for row, value in zip(some, told, strict=True):
        row.targets["latency/mine"] = 7 * value + 1
    assert finetune.alike(rlm, some, ["latency/mine", "accuracy"]) == {"latency/mine": "latency/eyeriss"}
    assert finetune.alike(rlm, some[:1], ["latency/mine"]) == {}
    assert finetune.alike(rlm, some, ["memory/mine"]) == {}
    grown = rlm.with_objectives(["latency/mine"], {"latency/mine": "latency/eyeriss"})
    first, second = grown.network.config.objective_ids(["latency/mine", "latency/eyeriss"])
    tokens = grown.network.tokens.weight
    assert (tokens[first] == tokens[second]).all()
    mean = rlm.with_objectives(["latency/mine"]).network.tokens.weight[first]
    assert not torch.allclose(tokens[first], mean)


def test_the_epochs_are_those_that_rank_held_out_rows_best(rlm, trainings, monkeypatch):
    heights = iter([0.2, 0.6, 0.4])
    monkeypatch.setattr(finetune, "validate", lambda *_: {"rows:accuracy": {"spearman": next(heights)}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    (some, most, held), (everything, epochs, none) = trainings
    assert (most, epochs, none) == (3, 2, [])
    assert len(everything) == len(some) + len(held) == 120
    assert 10 < len(held) < 40
    assert not set(keys(some)) & set(keys(held))
    assert tuned.temperatures["nasbench201"].keys() == {"accuracy"}
    assert tuned.experts["nasbench201"][0].temperatures.keys() == {"accuracy"}
    assert tuned.trained_on["nasbench201"].rows == 120


def test_epochs_end_when_none_was_better_for_a_while(rlm, trainings, monkeypatch):
    monkeypatch.setattr(finetune, "PATIENCE", 1)
    monkeypatch.setattr(finetune, "LONGEST", 1)
    heights = iter([0.6, 0.4])  # a third epoch would find none
    monkeypatch.setattr(finetune, "validate", lambda *_: {"rows:accuracy": {"spearman": next(heights)}})
    rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    assert [epochs for _, epochs, _ in trainings] == [3, 1]
    monkeypatch.setattr(finetune, "LONGEST", 12)  # steps of two epochs
    heights = iter([0.6, 0.4, 0.5])
    rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    assert next(heights, None) is None  # one epoch more


def test_too_few_rows_to_hold_some_out(rlm, trainings):
    with pytest.warns(UserWarning, match=r"too few rows to hold some out \(12\)"):
        tuned = rlm.fine_tune(rows(12), ["accuracy"])
    assert [(len(some), held) for some, _, held in trainings] == [(12, [])]
    assert tuned.temperatures == {"nasbench201": {"accuracy": calibration.ALONE}}
    (expert,) = tuned.experts["nasbench201"]
    assert expert.temperatures == {}
    assert expert.beside == {"accuracy": BESIDE}
    assert tuned.temperatures_of("nasbench201", ["accuracy"]) == [BESIDE]
    assert tuned.temperatures_of("", ["accuracy"]) == [pytest.approx(calibration.ALONE)]
    again = tuned.fine_tune(rows(12), ["accuracy"], QUICK)
    assert again.temperatures_of("nasbench201", ["accuracy"]) == [calibration.ALONE]


@pytest.fixture
def asked(monkeypatch):
    """The rows that experts are made of."""
    found, panel_of = [], finetune.panel_of

    def noted(some, *arguments):
        found.append(some)
        return panel_of(some, *arguments)

    monkeypatch.setattr(finetune, "panel_of", noted)
    return found


def test_experts_learn_from_what_the_network_learns_from(rlm, trainings, asked):
    tuned = rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    (expert,) = tuned.experts["nasbench201"]
    assert expert.objectives == ("accuracy",)
    (some, _, held), _ = trainings
    assert {keys(part) == keys(other) for part, other in zip(asked, (some, some), strict=True)} == {
        True,
        False,
    }
    everything, rest = asked
    assert len(everything) == len(expert.values) == 120
    assert not set(keys(rest)) & set(keys(held))


def test_experts_of_other_numbers_and_spaces_stay(rlm):
    first = rlm.fine_tune(rows(30), ["accuracy", "latency/mine"], QUICK)
    first.temperatures = {"nasbench201": {"accuracy": 2.5}, "fbnet": {"accuracy": 3.0}}
    second = first.fine_tune(rows(20), ["latency/mine"], QUICK)
    assert [e.objectives for e in second.experts["nasbench201"]] == [("accuracy",), ("latency/mine",)]
    guessed = {"accuracy": 2.5, "latency/mine": calibration.ALONE}
    assert second.temperatures == {"nasbench201": guessed, "fbnet": {"accuracy": 3.0}}
    third = second.fine_tune(rows(5), ["accuracy"], QUICK)
    assert [e.objectives for e in third.experts["nasbench201"]] == [("latency/mine",)]
    alone = rlm.fine_tune(rows(5), ["accuracy"], QUICK)
    assert alone.temperatures == {"nasbench201": {"accuracy": calibration.ALONE}}
    assert second.fine_tune(rows(20), ["accuracy"], QUICK, experts=False).experts == {}


def test_too_few_held_out_rows_to_tell_intervals(rlm, trainings):
    with pytest.warns(UserWarning, match="held-out rows are too few to tell how wide intervals should be"):
        rlm.fine_tune(rows(60), ["accuracy"])


def test_objectives_that_are_no_list_of_names(rlm):
    for objectives, message in (
        ("accuracy", "objectives is the text 'accuracy'"),
        ([], "no objectives asked for"),
        (["accuracy", "accuracy"], "'accuracy' is given more than once"),
    ):
        with pytest.raises(ValueError, match=message):
            rlm.fine_tune(rows(3), objectives)


def test_a_recipe_holds_nothing_out(rlm, trainings):
    rlm.fine_tune(rows(60), ["accuracy"], QUICK)
    assert [(len(some), epochs, held) for some, epochs, held in trainings] == [(60, 1, [])]


def test_the_more_rows_the_fewer_epochs():
    epochs = [finetune.default(n).epochs for n in (0, 20, 1000, 5000, 20000, 10**6)]
    assert epochs == sorted(epochs, reverse=True)
    assert (epochs[1], epochs[-1]) == (finetune.EPOCHS, finetune.FEWEST)


def test_the_longer_the_texts_the_fewer_epochs():
    epochs = [finetune.default(100, length).epochs for length in (90, 200, 1000, 10**6)]
    assert epochs == [finetune.EPOCHS, finetune.EPOCHS, finetune.EPOCHS // 5, finetune.FEWEST]


def test_rows_without_a_number_to_learn(rlm):
    with pytest.raises(ValueError, match="none of 3 rows has a value for latency/none"):
        rlm.fine_tune(rows(3), ["latency/none"])
    with pytest.raises(ValueError, match="none of 3 rows has a value for latency/other above zero"):
        rlm.fine_tune(rows(3), ["latency/other"])


@pytest.mark.parametrize(("learn", "moved"), [("token", ["tokens"]), ("decoder", ["decoder", "tokens"])])
def test_a_part_of_the_network_learns(rlm, learn, moved):
    some = rows(40)
    tuned = rlm.fine_tune(some, ["latency/mine"], QUICK, experts=False, learn=learn)
    before, after = rlm.with_objectives(["latency/mine"]).network, tuned.network
    parts = {
        name.split(".")[0]
        for name, weight in after.named_parameters()
        if not torch.equal(weight, before.get_parameter(name))
    }
    assert parts == set(moved)
    assert all(p.requires_grad for p in after.parameters())
    if learn == "token":
        changed = (after.tokens.weight != before.tokens.weight).any(1).nonzero().flatten().tolist()
        assert changed == after.config.objective_ids(["latency/mine"])
        cells = [row.arch_str for row in some]
        told = [one.predict("nasbench201", cells, ["accuracy"], (0.1, 0.9)) for one in (rlm, tuned)]
        np.testing.assert_array_equal(*told)
    with pytest.raises(ValueError, match="no part 'tokens' of a network; did you mean token"):
        rlm.fine_tune(some, ["latency/mine"], learn="tokens")
