import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from nas_rlm.training.recipe import (
    Recipe,
    SpaceTexts,
    TableRecipe,
    TokenizerRecipe,
    read_recipe,
    read_tokenizer_recipe,
)

RESULTS = Path(__file__).parents[3] / "results"


def written(path, text):
    path.write_text(text)
    return path


def test_a_recipe(tmp_path):
    table = "{path: a.parquet, rows: 10, surrogates: [accuracy]}"
    path = written(tmp_path / "r.yaml", f"tables: [{table}]\nsize: 2\nlearning_rate: 1\n")
    expected = Recipe((TableRecipe("a.parquet", rows=10, surrogates=("accuracy",)),), size=2, learning_rate=1)
    assert read_recipe(path) == expected


def test_the_shipped_recipe_by_name():
    recipe = read_recipe("nas")
    names = {t.path.split("/")[-1].removesuffix(".parquet") for t in recipe.tables}
    assert names == {"nasbench101", "nasbench201", "nats_size", "fbnet", "ofa_mbv3", "darts"}
    assert recipe.validation > 0


def test_surrogates_are_fitted_to_objectives_of_their_kinds():
    use = TableRecipe("a.parquet", surrogates=("memory",))
    assert use.surrogate_objectives(["accuracy", "memory", "memory/small-inputs"]) == [
        "memory",
        "memory/small-inputs",
    ]


def test_the_recipe_of_one_table():
    recipe = Recipe((TableRecipe("a/fbnet.parquet"), TableRecipe("a/darts.parquet", rows=3)), size=2)
    assert recipe.for_table("darts") == Recipe((TableRecipe("a/darts.parquet", rows=3),), size=2)
    with pytest.raises(ValueError, match="no table 'fbnets'; did you mean fbnet"):
        recipe.for_table("fbnets")


def test_a_recipe_with_a_base(tmp_path):
    written(tmp_path / "one.yaml", "tables: [{path: a}]\nsize: 2\nepochs: 3\n")
    other = written(tmp_path / "two.yaml", "base: one.yaml\nepochs: 4\n")
    assert read_recipe(other) == Recipe((TableRecipe("a"),), size=2, epochs=4)
    assert read_recipe(RESULTS / "recipes" / "programs-large.yaml") == replace(
        read_recipe("programs"), size=6
    )
    third = written(tmp_path / "three.yaml", "base: two.yaml\n")
    with pytest.raises(ValueError, match=r"base .two\.yaml. has a base as well"):
        read_recipe(third)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: [nas]\n", r"base is \['nas'\]: expected the name of a recipe"),
        ("tables: [{path: a}]\nlearning_rat: 1.0\n", "did you mean learning_rate"),
        ("tables: [{path: a, row: 1}]\n", r"unknown key 'tables\[0\].row'; did you mean rows"),
        ("tables: [{path: a}]\nsize: four\n", r"r\.yaml: size is 'four': expected an integer"),
        ("tables: [{path: a}]\nsize: 0\n", r"r\.yaml: size is 0: expected at least 1"),
        ("tables: [{path: a}]\nvalidation: 1.0\n", "validation is 1.0: expected a number below 1"),
        (
            "tables: [{path: a}]\nprecision: float8\n",
            "precision is 'float8': expected 'float32' or 'bfloat16'",
        ),
        ("tables: [{path: a}]\noptimizer: sgd\n", "optimizer is 'sgd': expected 'adamw', 'adafactor' or"),
        ("tables: [{path: a}]\nema: 1.0\n", "ema is 1.0: expected a number below 1"),
        ("tables: [{path: a}]\nnoise: -0.1\n", "noise is -0.1: expected at least 0"),
        ("tables: [{path: a}]\nlearning_rate: 0.0\n", "learning_rate is 0.0: expected a number above 0"),
        ("tables: [{path: a}]\nvocab_size: 0\n", "vocab_size is 0: expected at least 1"),
        ("tables: [{path: a}]\nseed: true\n", "seed is True: expected an integer"),
        ("tables: [{path: a, rows: 0}]\n", r"tables\[0\].rows is 0: expected at least 1"),
        ("tables: [{path: a, surrogates: accuracy}]\n", "surrogates is 'accuracy': expected a list"),
        ("tables: [{path: a, sequences: many}]\n", "sequences is 'many': expected an integer"),
        ("tables: [{path: a, lessons: 9}]\n", "key 'lessons' of a table is now called 'pseudo_labels'"),
        ("tables: [{path: a, experts: [x]}]\n", "key 'experts' of a table is now called 'surrogates'"),
        ("tables: [{path: a}]\nby_group: 1\n", "by_group is 1: expected true or false"),
        ("tables: [{path: a}]\nstart: 3\n", "start is 3: expected a text"),
        ("tables: [{path: 3}]\n", r"tables\[0\].path is 3: expected a text"),
        ("tables: [{path: a}]\nclip: .inf\n", "clip is inf: expected a finite number"),
        ("tables: [{path: a}]\nstatements: -1\n", "statements is -1: expected at least 0"),
        ("tables: [{path: a}]\nlearning_rate: true\n", "learning_rate is True: expected a number"),
        ("tables: [{path: a}]\nlearning_rate: 1e-3\n", "learning_rate is '1e-3': expected a number"),
        ("tables: [{path: a}]\n1: 2\n", "expected a text as the key"),
        ("tables: {path: a}\n", "tables is .*: expected a list"),
        ("tables: []\n", "has no tables"),
        ("size: 4\n", "is not a recipe"),
        ("tables: [a]\n", r"tables\[0\] is 'a': expected a mapping"),
        ("tables: [}\n", "is not YAML"),
    ],
)
def test_bad_recipes(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as error:
        read_recipe(written(tmp_path / "r.yaml", text))
    assert "\n" not in str(error.value)


def test_recipes_made_in_python_are_checked():
    for values in ({"size": 0}, {"epochs": "3"}, {"epoch": 3}, {"tables": ({"rows": 3},)}):
        with pytest.raises(ValueError, match=next(iter(values))):
            Recipe(**{"tables": (TableRecipe("a"),), **values})
    recipe = Recipe((TableRecipe("a"),), learning_rate=1)
    with pytest.raises(ValueError, match="epochs"):
        replace(recipe, epochs=0)
    with pytest.raises(ValueError, match="expected neither start nor tokenizer"):
        replace(recipe, start="nas", encoder="minilm")
    assert pickle.loads(pickle.dumps(recipe)) == recipe and hash(recipe) == hash(replace(recipe))


def test_a_recipe_that_does_not_exist():
    with pytest.raises(FileNotFoundError, match="expected a YAML file or one of: nas,"):
        read_recipe("nass")


def test_the_shipped_tokenizer_recipe_covers_the_spaces():
    recipe = read_tokenizer_recipe("tokenizer")
    assert {s.name for s in recipe.spaces} >= {"fbnet", "inception", "nasbench201", "nds_darts", "snas"}
    assert recipe.vocab_size == 8192


def test_a_tokenizer_recipe(tmp_path):
    path = written(
        tmp_path / "t.yaml", "spaces: [{name: snas, networks: 5, copies: 0.5}]\ntables: [a.parquet]\n"
    )
    expected = TokenizerRecipe(spaces=(SpaceTexts("snas", 5, 0.5),), tables=("a.parquet",))
    assert read_tokenizer_recipe(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vocab_size: 300", "no texts"),
        ("spaces: snas", "spaces is 'snas': expected a list"),
        ("spaces: [{name: snas, networks: 0}]", r"spaces\[0\].networks is 0: expected at least 1"),
        ("spaces: [{name: snas, network: 3}]", "did you mean networks"),
        ("foreign: [bert]\nvocab: 3", "did you mean vocab_size"),
        ("foreign: [bert]\nseed: zero", "seed is 'zero': expected an integer"),
        ("spaces: [{name: snas}]", r"spaces\[0\].networks is missing"),
        ("spaces: [snas]", r"spaces\[0\] is 'snas': expected a mapping"),
    ],
)
def test_a_bad_tokenizer_recipe_gets_a_clear_error(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_tokenizer_recipe(written(tmp_path / "t.yaml", text))
