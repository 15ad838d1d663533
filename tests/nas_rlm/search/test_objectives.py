import sys

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.search.objectives import Evaluator, load_function
from nas_rlm.text import from_architectures

SPACE = search_spaces.get("nasbench201")
CELLS = [SPACE.sample(np.random.default_rng(i)) for i in range(6)]


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def skips(cell):
    return str(cell).count("skip_connect")


def test_each_number_is_told_by_who_knows_it(rlm):
    evaluator = Evaluator(rlm, {"skips": skips})
    names = ["params", "accuracy", "skips", "flops"]
    found = evaluator.predict(SPACE, CELLS, names, (0.1, 0.5, 0.9))
    assert found.shape == (6, 4, 3)
    told = rlm.predict(SPACE, CELLS, ["accuracy"], (0.1, 0.5, 0.9))
    assert (found[:, 1] == told[:, 0]).all()
    for k, exact in ((0, SPACE.params), (2, skips), (3, SPACE.flops)):
        assert (found[:, k] == np.array([exact(c) for c in CELLS])[:, None]).all()
    drawn = evaluator.sample(SPACE, CELLS, names, 8, seed=1)
    assert drawn.shape == (6, 8, 4)
    assert (drawn[:, :, [0, 2, 3]] == found[:, None, [0, 2, 3], 1]).all()
    assert (drawn[:, :, [1]] == rlm.sample(SPACE, CELLS, ["accuracy"], 8, seed=1)).all()


def test_costs_of_texts_are_counted(rlm):
    texts = from_architectures(SPACE, CELLS)
    found = Evaluator(rlm).predict_text(texts, ["params", "accuracy", "flops"], (0.5,))[:, :, 0]
    assert found[:, 0].tolist() == [SPACE.params(c) for c in CELLS]
    assert found[:, 2].tolist() == [SPACE.flops(c) for c in CELLS]
    assert (found[:, 1] == rlm.predict_text(texts, ["accuracy"])[:, 0]).all()


def test_a_function_is_called_once_for_each_architecture(rlm):
    called = []

    def noted(cell):
        called.append(str(cell))
        return 1.0

    evaluator = Evaluator(rlm, {"mine": noted})
    for some in (CELLS[:4], CELLS):
        assert (evaluator.predict(SPACE, some, ["mine"]) == 1).all()
    evaluator.predict(SPACE, [str(c) for c in CELLS], ["mine"])
    evaluator.sample(SPACE, CELLS, ["mine"])
    assert called == [str(c) for c in CELLS]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda cell: float("nan"), "mine of .* failed: ValueError: it gave nan, expected a finite number"),
        (lambda cell: "fast", "mine of .* failed: ValueError: could not convert"),
        (lambda cell: sys.exit(0), "mine of .* failed: SystemExit: 0"),
        (lambda cell: 1 / 0, "mine of .* failed: ZeroDivisionError: division by zero"),
    ],
)
def test_functions_that_fail(rlm, function, message):
    with pytest.raises(ValueError, match=message):
        Evaluator(rlm, {"mine": function}).predict(SPACE, CELLS, ["mine"])


def test_names_that_are_taken_and_names_that_nobody_knows(rlm):
    for name in ("flops", "accuracy"):
        with pytest.raises(ValueError, match=f"there is an objective '{name}' already"):
            Evaluator(rlm, {name: skips})
    evaluator = Evaluator(rlm, {"skips": skips})
    evaluator.check(["skips", "accuracy", "params"])
    evaluator.check(["skips"])
    with pytest.raises(ValueError, match="nobody knows the objective 'skip'; did you mean skips"):
        evaluator.check(["skip"])
    for name in ("accuracy", "flops", "skips"):
        with pytest.raises(ValueError, match=f"'{name}' is given more than once"):
            evaluator.check([name, name])


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
        ("a<b=mine.py:energy", "'a<b' is no objective's name"),
        ("energy=none.py:energy", "none.py cannot be run: FileNotFoundError: there is no such file"),
        ("energy=no_such_module:energy", "no_such_module cannot be run: ModuleNotFoundError"),
        ("energy={broken}:energy", "cannot be run: ZeroDivisionError: division by zero"),
        ("energy={good}:enrgy", "has no function 'enrgy'; did you mean energy"),
        ("energy={good}:number", "has no function 'number'"),
    ],
)
def test_functions_that_cannot_be_loaded(tmp_path, text, message):
    good, broken = tmp_path / "good.py", tmp_path / "broken.py"
    good.write_text("number = 3\n\ndef energy(cell):\n    return 3\n")
    broken.write_text("1 / 0\n")
    with pytest.raises(ValueError, match=message):
        load_function(text.format(good=good, broken=broken))
