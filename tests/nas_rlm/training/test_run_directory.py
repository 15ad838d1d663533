import json

import pytest

from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.run_directory import TrainingLog, claim_run_directory


def test_a_run_directory_with_former_keys_of_a_recipe_can_be_resumed(tmp_path):
    recipe = Recipe((TableRecipe("a.parquet", pseudo_labels=9, surrogates=("accuracy",)),))
    claim_run_directory(tmp_path, recipe, resume=False)
    path = tmp_path / "recipe.json"
    former = path.read_text().replace("pseudo_labels", "lessons").replace("surrogates", "experts")
    path.write_text(former)
    claim_run_directory(tmp_path, recipe, resume=True)
    assert '"pseudo_labels": 9' in path.read_text()


def test_a_stored_recipe_may_have_integers_and_former_keys(tmp_path):
    recipe = Recipe((TableRecipe("a", pseudo_labels=2),), weight_decay=0)
    claim_run_directory(tmp_path / "out", recipe, resume=False)
    path = tmp_path / "out" / "recipe.json"
    stored = path.read_text()
    for present, former in (('"weight_decay": 0.0', '"weight_decay": 0'), ("pseudo_labels", "lessons")):
        assert present in stored
        path.write_text(stored.replace(present, former))
        claim_run_directory(tmp_path / "out", recipe, resume=True)
        assert path.read_text() == stored
    path.write_text(stored[:-2])
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        claim_run_directory(tmp_path / "out", recipe, resume=True)


def test_a_line_of_the_log_has_the_mean_loss_since_the_last_line(tmp_path):
    log = TrainingLog(tmp_path)
    log.add(1.0, 10)
    log.add(2.0, 10)
    log.write(2, validation={"t:y": 0.5})
    log.write(3)
    first, second = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (first["step"], first["loss"], first["validation"]) == (2, 1.5, {"t:y": 0.5})
    assert first["tokens_per_second"] > 0
    assert (second["step"], second["loss"]) == (3, None)
    TrainingLog(None).write(1)
