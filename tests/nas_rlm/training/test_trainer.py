import json
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, write
from nas_rlm.model.batching import TruncationWarning
from nas_rlm.model.network import Config, Network
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS
from nas_rlm.training import distributed, state, trainer
from nas_rlm.training.dataset import IGNORED, Dataset, collate, make_dataset
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.state import TrainingState
from tests.nas_rlm.training_runs import RECIPE, interrupt, prepare_run, rows

SPACE = search_spaces.get("nasbench201")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    return prepare_run(tmp_path, monkeypatch)


def weights(rlm):
    return {k: v.numpy() for k, v in rlm.network.state_dict().items()}


@pytest.mark.parametrize(("steps", "optimizer"), [([1], "adamw"), ([4, 9], "muon"), ([7], "adafactor")])
def test_a_resumed_run_equals_an_uninterrupted_one(recipe, tmp_path, monkeypatch, steps, optimizer):
    recipe.write_text(f"{RECIPE}optimizer: {optimizer}\n")
    whole = trainer.run(recipe, tmp_path / "whole")
    for step in steps:
        with monkeypatch.context() as patched:
            interrupt(patched, step)
            with pytest.raises(KeyboardInterrupt):
                trainer.run(recipe, tmp_path / "parts", resume=step != steps[0])
    resumed = trainer.run(recipe, tmp_path / "parts", resume=True)
    found = weights(resumed)
    for name, expected in weights(whole).items():
        assert np.array_equal(found[name], expected), name


def test_truncated_rows_are_reported_once(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "Config", partial(Config, max_length=60))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.run(recipe, tmp_path / "out")
    messages = [str(warning.message) for warning in caught if warning.category is TruncationWarning]
    assert messages == ["training reads only the first 60 tokens of 30 of the 30 texts"]


def test_a_run_leaves_a_checkpoint_and_a_log(recipe, tmp_path):
    trained = trainer.run(recipe, tmp_path / "out")
    loaded = RLM.load(tmp_path / "out")
    assert loaded.objectives == ("accuracy", "latency/mine", "latency/other")
    for name, half in weights(loaded).items():
        assert np.array_equal(half, weights(trained)[name].astype(np.float16).astype(half.dtype))
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 4
    assert {"loss", "tokens_per_second", "validation", "mean_spearman"} <= lines[0].keys()
    assert "cells:accuracy" in lines[0]["validation"]


@pytest.mark.parametrize("scores", [state.MAX_ATTENTION_SCORES, 1])
def test_the_loss_of_a_step_combines_each_text_with_its_sequences(monkeypatch, scores):
    monkeypatch.setattr(state, "MAX_ATTENTION_SCORES", scores)  # few of them: one text at a time
    monkeypatch.setattr(distributed, "local_rows", lambda n: (torch.arange(n - 1), 1.0))
    network = Network(Config(30, ("accuracy", "latency/a", "latency/b"), 2, max_numbers=2), np.zeros(30))
    numbers = [{NUM_DIGIT_TOKENS + k: 1.0 + i + k for k in range(3)} for i in range(5)]
    texts = [np.arange(1, 4 + i) for i in range(5)]
    dataset = Dataset(TableRecipe("", sequences=2), texts, numbers)
    batch = collate([(dataset, i) for i in range(5)], np.random.default_rng(0), network.config)
    ids, given, wanted, weights = batch
    assert len(given) == 2 * len(ids)
    logits = network(ids, given).flatten(0, 1)
    each = torch.nn.functional.cross_entropy(logits, wanted.flatten(), reduction="none")
    weights = weights * (wanted != IGNORED)
    expected = (each.view(weights.shape) * weights)[:-2].sum() / weights.sum()
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in network.named_parameters()}
    loss = TrainingState(network, Recipe((TableRecipe("t"),), clip=1e9)).advance(*batch, 10)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name], rtol=1e-3, atol=1e-6)


def test_a_recipe_that_starts_from_a_checkpoint(recipe, tmp_path):
    trainer.run(recipe, tmp_path / "first")
    first = RLM.load(tmp_path / "first")
    more = [Row(r.space, r.arch_str, {"latency/new": 2.0 + i, **r.targets}) for i, r in enumerate(rows(40))]
    for row in more:
        del row.targets["latency/other"]
    write(tmp_path / "cells.parquet", more)
    recipe.write_text(f"{RECIPE}start: {tmp_path / 'first'}\nlearning_rate: 1.0e-9\n")
    second = trainer.run(recipe, tmp_path / "second")
    assert set(second.objectives) == {*first.objectives, "latency/new"} - {"latency/other"}
    assert second.tokenizer.sha256 == first.tokenizer.sha256
    assert second.trained_on["nasbench201"].rows == first.trained_on["nasbench201"].rows
    assert "latency/new" in second.trained_on["nasbench201"].objectives
    archs = [row.arch_str for row in more]
    objectives = ["accuracy", "latency/mine"]
    found = [rlm.predict("nasbench201", archs, objectives) for rlm in (first, second)]
    assert np.allclose(*found, rtol=2e-3)
    recipe.write_text(f"{RECIPE}start: {tmp_path / 'none'}\n")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*none"):
        trainer.run(recipe, tmp_path / "third")


def test_surrogates_are_fitted_to_the_network_of_another_model(recipe, tmp_path):
    first = trainer.run(recipe, tmp_path / "first")
    sources = [f"def f(n):\n    return {'[0] * n + ' * (i % 5)}[]  # {i}\n" for i in range(60)]
    programs = [Row("Judge/Python", "", {"time": 1.0 + i % 5}, s, f"p{i}") for i, s in enumerate(sources)]
    write(tmp_path / "programs.parquet", programs)
    text = RECIPE.replace("{path: cells.parquet}", "{path: programs.parquet, surrogates: [time]}")
    text = text.replace("epochs: 3", "epochs: 0")
    recipe.write_text(f"{text}start: {tmp_path / 'first'}\n")
    second = trainer.run(recipe, tmp_path / "second")
    assert set(second.objectives) == {*first.objectives, "time"} and list(second.surrogates) == [
        "Judge/Python"
    ]
    kept = {n: w for n, w in weights(first).items() if "tokens" not in n}
    assert all(np.allclose(weights(second)[name], w, atol=2e-3) for name, w in kept.items())
    found = second.predict_text(sources, ["time"], space="Judge/Python")[:, 0]
    assert found[4] > found[0]
    recipe.write_text(text)
    with pytest.raises(ValueError, match="epochs is 0: expected at least 1, or the model to start from"):
        trainer.run(recipe, tmp_path / "third")


def test_one_table_of_a_recipe(recipe, tmp_path):
    alone = trainer.run(recipe, tmp_path / "alone")
    write(tmp_path / "others.parquet", rows(30, seed=1))
    recipe.write_text(RECIPE.replace("tables: [", "tables: [{path: others.parquet}, "))
    found = weights(trainer.run(recipe, tmp_path / "one", table="cells"))
    assert all(np.array_equal(found[name], expected) for name, expected in weights(alone).items())
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        trainer.run(recipe, tmp_path / "one", resume=True)


@pytest.mark.long
def test_random_networks_and_pseudo_labels_beside_a_table(recipe, tmp_path, monkeypatch):
    calls = []
    make_datasets = trainer.make_datasets

    def recorded(rlm, rows, use, seed):
        found = make_datasets(rlm, rows, use, seed)
        calls.append((use, len(rows), found))
        return found

    monkeypatch.setattr(trainer, "make_datasets", recorded)
    recipe.write_text(
        RECIPE.replace("cells.parquet", "cells.parquet, pseudo_labels: 16, surrogates: [latency]")
        + "spaces: [{space: nats_size, networks: 30, rows: 8}]\n"
    )
    trained = trainer.run(recipe, tmp_path / "out")
    (of_table, rows, (own, labelled)), (of_space, drawn, (random,)) = calls
    assert (of_table.path, of_space.path) == ("cells.parquet", "nats_size")
    assert (len(own), len(labelled), len(random)) == (rows, 16, drawn)
    assert trained.trained_on["nats_size"].rows == drawn < 30
    assert {"accuracy", "flops", "convs/macs"} <= set(trained.objectives)
    (surrogate,) = RLM.load(tmp_path / "out").surrogates["nasbench201"]
    assert surrogate.objectives == ("latency/mine",)
    log = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    assert {"cells:accuracy"} < json.loads(log[-1])["validation"].keys()
    with monkeypatch.context() as patched:
        interrupt(patched, 5)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(recipe, tmp_path / "halves")
    found = weights(trainer.run(recipe, tmp_path / "halves", resume=True))
    assert all(np.array_equal(found[name], expected) for name, expected in weights(trained).items())


def test_a_damaged_state_is_refused(recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt(patched, 5)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(recipe, tmp_path / "out")
    path = tmp_path / "out" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged"):
        trainer.run(recipe, tmp_path / "out", resume=True)


def test_a_directory_of_another_run(recipe, tmp_path):
    trainer.run(recipe, tmp_path / "out")
    with pytest.raises(ValueError, match="already holds a run"):
        trainer.run(recipe, tmp_path / "out")
    recipe.write_text(RECIPE + "seed: 1\n")
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        trainer.run(recipe, tmp_path / "out", resume=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        trainer.run(recipe, tmp_path / "photos")
    assert [p.name for p in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_it_stops_when_validation_no_longer_rises(tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    train = rows(64)
    recipe = Recipe(
        (TableRecipe(""),), epochs=50, batch_size=16, learning_rate=1e-5, validate_every=2, patience=2
    )
    examples = make_dataset(rlm, train, recipe.tables[0], ["x=Relu(y)\n"] * len(train))
    heights = iter([0.1, 0.5, 0.4, 0.5])
    trainer.fit(rlm, [examples], recipe, lambda: {"t:y": {"spearman": next(heights)}}, tmp_path, False)
    steps = [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6, 8]
