import sys

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.search.objectives import ObjectivePredictor, load_function
from nas_rlm.text import from_architectures

SPACE = search_spaces.get("nasbench201")
CELLS = [SPACE.sample(np.random.default_rng(i)) for i in range(6)]


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def skips(cell):
    return str(cell).count("skip_connect")


def test_exact_objectives_functions_and_model_predictions_are_combined(rlm):
    predictor = ObjectivePredictor(rlm, {"skips": skips})
    names = ["params", "accuracy", "skips", "flops"]
    values = predictor.predict(SPACE, CELLS, names, (0.1, 0.5, 0.9))
    assert values.shape == (6, 4, 3)
    predicted = rlm.predict(SPACE, CELLS, ["accuracy"], (0.1, 0.5, 0.9))
    assert (values[:, 1] == predicted[:, 0]).all()
    for k, exact in ((0, SPACE.params), (2, skips), (3, SPACE.flops)):
        assert (values[:, k] == np.array([exact(c) for c in CELLS])[:, None]).all()
    samples = predictor.sample(SPACE, CELLS, names, 8, seed=1)
    assert samples.shape == (6, 8, 4)
    assert (samples[:, :, [0, 2, 3]] == values[:, None, [0, 2, 3], 1]).all()
    assert (samples[:, :, [1]] == rlm.sample(SPACE, CELLS, ["accuracy"], 8, seed=1)).all()


def test_exact_objectives_of_texts_are_computed(rlm):
    texts = from_architectures(SPACE, CELLS)
    values = ObjectivePredictor(rlm).predict_text(texts, ["params", "accuracy", "flops"], (0.5,))[:, :, 0]
    assert values[:, 0].tolist() == [SPACE.params(c) for c in CELLS]
    assert values[:, 2].tolist() == [SPACE.flops(c) for c in CELLS]
    assert (values[:, 1] == rlm.predict_text(texts, ["accuracy"])[:, 0]).all()


def test_a_function_is_called_once_for_each_architecture(rlm):
    called = []

    def count_call(cell):
        called.append(str(cell))
        return 1.0

    predictor = ObjectivePredictor(rlm, {"mine": count_call})
    for some in (CELLS[:4], CELLS):
        assert (predictor.predict(SPACE, some, ["mine"]) == 1).all()
    predictor.predict(SPACE, [str(c) for c in CELLS], ["mine"])
    predictor.sample(SPACE, CELLS, ["mine"])
    assert called == [str(c) for c in CELLS]


def test_a_text_is_parsed_once(rlm, monkeypatch):
    parse, parsed = type(SPACE).parse, []
    monkeypatch.setattr(type(SPACE), "parse", lambda self, text: parsed.append(text) or parse(self, text))
    predictor, names = ObjectivePredictor(rlm), [str(c) for c in CELLS]
    values = [predictor.predict(SPACE, names, ["flops"]).tolist() for _ in range(3)]
    assert values[0] == values[1] == values[2]
    assert parsed == names


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda cell: float("nan"),
            "mine of .* failed: ValueError: it returned nan, expected a finite",
        ),
        (lambda cell: "fast", "mine of .* failed: ValueError: could not convert"),
        (lambda cell: sys.exit(0), "mine of .* failed: SystemExit: 0"),
        (lambda cell: 1 / 0, "mine of .* failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_failing_function_is_named(rlm, function, message):
    with pytest.raises(ValueError, match=message):
        ObjectivePredictor(rlm, {"mine": function}).predict(SPACE, CELLS, ["mine"])


def test_taken_unknown_and_repeated_names_are_refused(rlm):
    for name in ("flops", "accuracy"):
        with pytest.raises(ValueError, match=f"there is an objective '{name}' already"):
            ObjectivePredictor(rlm, {name: skips})
    predictor = ObjectivePredictor(rlm, {"skips": skips})
    predictor.check(["skips", "accuracy", "params"])
    predictor.check(["skips"])
    with pytest.raises(ValueError, match="unknown objective 'skip'; did you mean skips"):
        predictor.check(["skip"])
    for name in ("accuracy", "flops", "skips"):
        with pytest.raises(ValueError, match=f"'{name}' is given more than once"):
            predictor.check([name, name])


def test_functions_come_from_files_and_modules(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def energy(cell):\n    return 3\n")
    name, energy = load_function(f"energy={path}:energy")
    assert (name, energy(None)) == ("energy", 3)
    assert load_function("root=math:sqrt")[1](9) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("energy", "'energy' is not NAME=FILE.py:FUNCTION: try energy=mine.py:energy"),
        ("energy=mine.py", "is not NAME=FILE.py:FUNCTION"),
        ("=mine.py:energy", "is not NAME=FILE.py:FUNCTION"),
        ("a<b=mine.py:energy", "'a<b' is not an objective's name"),
        ("energy=none.py:energy", "there is no file none.py"),
        ("energy=no_such_module:energy", "no_such_module cannot be run: ModuleNotFoundError"),
        ("energy={broken}:energy", "cannot be run: ZeroDivisionError: division by zero"),
        ("energy={good}:enrgy", "has no function 'enrgy'; did you mean energy"),
        ("energy={good}:number", "has no function 'number'"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(tmp_path, text, message):
    good, broken = tmp_path / "good.py", tmp_path / "broken.py"
    good.write_text("number = 3\n\ndef energy(cell):\n    return 3\n")
    broken.write_text("1 / 0\n")
    with pytest.raises(ValueError, match=message):
        load_function(text.format(good=good, broken=broken))
