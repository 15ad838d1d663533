import pytest

from nas_rlm.recipe import Recipe, TableRecipe, read_recipe


def written(path, text):
    path.write_text(text)
    return path


def test_a_recipe(tmp_path):
    path = written(tmp_path / "r.yaml", "tables: [{path: a.parquet, rows: 10}]\nsize: 2\nlearning_rate: 1\n")
    expected = Recipe((TableRecipe("a.parquet", rows=10),), size=2, learning_rate=1)
    assert read_recipe(path) == expected


def test_the_shipped_recipe_by_name():
    recipe = read_recipe("nas")
    assert {t.path.split("/")[-1] for t in recipe.tables} == {
        "nasbench101.parquet",
        "nasbench201.parquet",
        "nats_size.parquet",
    }
    assert recipe.validation > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: [{path: a}]\nlearning_rat: 1.0\n", "did you mean learning_rate"),
        ("tables: [{path: a, row: 1}]\n", "did you mean rows"),
        ("tables: [{path: a}]\nsize: four\n", "size is 'four'; expected an integer such as"),
        ("tables: [{path: a}]\nsize: 0\n", "size is 0; expected at least 1"),
        ("tables: [{path: a}]\nvalidation: 1.0\n", "validation is 1.0; expected a share"),
        ("tables: [{path: a}]\nprecision: float8\n", "precision is 'float8'; expected float32"),
        ("tables: [{path: a}]\noptimizer: sgd\n", "optimizer is 'sgd'; expected adamw, adafactor or muon"),
        ("tables: [{path: a}]\nema: 1.0\n", "ema is 1.0; expected a share"),
        ("tables: [{path: a}]\nnoise: -0.1\n", "noise is -0.1; expected 0 or more"),
        ("tables: [{path: a}]\nlearning_rate: 0.0\n", "learning_rate is 0.0; expected more than 0"),
        ("tables: [{path: a}]\nvocab_size: 0\n", "vocab_size is 0; expected at least 1"),
        ("tables: [{path: a}]\nseed: true\n", "seed is True; expected an integer"),
        ("tables: [{path: a, rows: 0}]\n", "rows of 'a' is 0; expected at least 1"),
        ("tables: [{path: a, numbers: many}]\n", "numbers is 'many'; expected an integer"),
        ("tables: []\n", "has no tables"),
        ("size: 4\n", "is no recipe"),
        ("tables: [a]\n", "'a' is no mapping"),
        ("tables: [}\n", "is not YAML"),
    ],
)
def test_bad_recipes(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_recipe(written(tmp_path / "r.yaml", text))


def test_no_such_recipe():
    with pytest.raises(FileNotFoundError, match="expected a YAML file or one of: nas"):
        read_recipe("nass")
