import json
from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import coverage, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.programs.fitting import fit_program_surrogates
from nas_rlm.surrogates.registry import from_saved


def programs(n, seed=0, problems=40):
    """Programs in two languages, whose memory depends on the problem and on the size of an array."""
    rng = np.random.default_rng(seed)
    effects = np.random.default_rng(99).normal(size=1000)
    rows = []
    for i in range(n):
        problem, size = int(rng.integers(problems)) + 500 * (seed > 0), int(rng.integers(1, 9))
        code = f"solve{'abcdefghij'[problem % 10]}{'klmnopqrst'[problem // 10 % 10]}Problem{problem}"
        is_java = bool(rng.integers(2))
        source = (
            f"class S {{ public int {code}() {{ int[] a = new int[{10**size}]; return {i}; }} }}"
            if is_java
            else f"def {code}(x):\n    a = [0] * {10**size}\n    return {i}\n"
        )
        value = float(np.exp(0.5 * effects[problem] + size + 5 * is_java))
        space = "Judge/Java" if is_java else "Judge/Python"
        rows.append(Row(space, "", {"memory": value}, source, f"r{i}", group=f"p{problem}"))
    return rows


@pytest.fixture(scope="module")
def surrogates():
    return fit_surrogates(programs(700), ["memory"])


def predictions(surrogate, rows):
    return surrogate.predict(surrogate.transform([row.input for row in rows]), "memory")


def test_languages_are_learnt_together_and_have_their_own_scale(surrogates):
    assert set(surrogates) == {"Judge/Java", "Judge/Python"}
    (java,), (python,) = surrogates["Judge/Java"], surrogates["Judge/Python"]
    assert java.shared is python.shared
    source = "def solveXProblem(x):\n    a = [0] * 10000\n"
    medians = [float(predictions(s, [Row("", "", {}, source)]).median[0]) for s in (java, python)]
    assert medians[0] > 20 * medians[1]


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_are_those_of_known_or_of_new_problems(surrogates, seed):
    rows = [row for row in programs(1000, seed)[700 if seed == 0 else 0 :] if row.space == "Judge/Python"]
    (surrogate,) = surrogates["Judge/Python"]
    found, true = predictions(surrogate, rows), np.array([row.targets["memory"] for row in rows])
    assert spearman(found.median, true) > 0.9
    low, high = found.quantiles((0.1, 0.9)).T
    assert 0.65 < coverage(low, high, true) < 0.95
    assert (np.mean(found.network_weight) > 0.5) == (seed == 0)


def test_saved_surrogates_predict_the_same_and_share_their_file(surrogates, tiny_checkpoint, tmp_path):
    rlm = replace(RLM.load(tiny_checkpoint).with_objectives(["memory"]), surrogates=surrogates)
    rlm.save(tmp_path / "both")
    again = RLM.load(tmp_path / "both").surrogates
    rows = programs(20, 3)
    for space in surrogates:
        pair = [predictions(group[space][0], rows) for group in (surrogates, again)]
        assert pair[0].median == pytest.approx(pair[1].median, rel=1e-5)
    rlm.surrogates = {"Judge/Java": surrogates["Judge/Java"]}
    rlm.save(tmp_path / "one")
    sizes = [(tmp_path / name / "surrogates.safetensors").stat().st_size for name in ("both", "one")]
    assert sizes[0] < 1.1 * sizes[1]


def test_each_language_says_how_well_left_out_programs_are_predicted(surrogates):
    (surrogate,) = surrogates["Judge/Python"]
    found = surrogate.held_out["memory"]
    assert 300 < found.programs < 400 and 1 > found.known > found.new > 0.7
    assert str(found).startswith(
        f"Spearman on {found.programs} labelled programs {found.known:.3f} without a"
    )
    description = json.loads(json.dumps(surrogate.description()))
    assert from_saved(surrogate.tensors(), description).held_out == surrogate.held_out
    del description["held_out"]  # as in older checkpoints
    assert from_saved(surrogate.tensors(), description).held_out == {}
    (for_new,) = fit_surrogates(programs(200), ["memory"], by_group=True)["Judge/Python"]
    assert for_new.held_out["memory"].known is None and for_new.held_out["memory"].new > 0.5


def test_damaged_surrogates_are_refused(surrogates):
    (surrogate,) = surrogates["Judge/Java"]
    tensors, description = surrogate.tensors(), surrogate.description()
    with pytest.raises(ValueError, match="error factor or a temperature"):
        from_saved(tensors, description | {"error_factors": {"memory": -1.0}})
    with pytest.raises(ValueError, match=r"projections is .*, expected torch\.int8"):
        from_saved({**tensors, "projections": tensors["projections"].float()}, description)
    with pytest.raises(ValueError, match="not distinct names"):
        from_saved(tensors, description | {"objectives": []})


def test_languages_with_few_labels_are_left_out():
    rows = programs(80)
    few = [row for row in rows if row.space == "Judge/Java"][: MIN_LABELS - 1]
    many = [row for row in rows if row.space == "Judge/Python"]
    assert set(fit_surrogates(few + many, ["memory"])) == {"Judge/Python"}
    assert fit_program_surrogates([], [], {}) == {}


def test_a_language_of_which_no_program_was_left_out_has_the_errors_of_all(monkeypatch):
    for module in ("programs.fitting", "programs.left_out"):
        monkeypatch.setattr(f"nas_rlm.surrogates.{module}.MAX_STACKED_PROGRAMS", 20)
    rows = programs(800)
    rare = [replace(row, space="Judge/Rare") for row in rows if row.space == "Judge/Java"][:MIN_LABELS]
    rows = [row for row in rows if row.space == "Judge/Python"] + rare
    ((surrogate,),) = [found for space, found in fit_surrogates(rows, ["memory"]).items() if "Rare" in space]
    assert not surrogate.held_out
    assert surrogate.error_factors == {"memory": 1.0}


def test_programs_without_problems_are_learnt():
    rows = [replace(row, group="") for row in programs(200)]
    (surrogate,) = fit_surrogates(rows, ["memory"])["Judge/Python"]
    own = [row for row in rows if row.space == "Judge/Python"]
    found = predictions(surrogate, own)
    assert spearman(found.median, np.array([row.targets["memory"] for row in own])) > 0.9
    assert surrogate.without(["memory"]) is None


@pytest.mark.parametrize("num_problems", [1, 3, 30])
def test_labels_that_programs_do_not_explain_are_not_predicted(num_problems):
    """Programs that differ in a constant alone; their labels are random."""
    rng = np.random.default_rng(0)
    sources = [f"def f(n):\n    return [0] * (n * {rng.integers(1, 10**6)})\n" for _ in range(130)]
    values = rng.uniform(1, 2, 130)
    groups = [str(i % num_problems) for i in range(30)]
    surrogate = fit_program_surrogates(sources[:30], ["mine"] * 30, {"memory": values[:30]}, groups)["mine"]
    found = surrogate.held_out["memory"]
    assert found.known < 0.35
    assert (found.new is None) == (num_problems in (1, 30))
    assert found.new is None or found.new < 0.35
    low, high = surrogate.predict(surrogate.transform(sources[30:]), "memory").quantiles([0.1, 0.9]).T
    assert ((values[30:] >= low) & (values[30:] <= high)).mean() > 0.6


def test_trees_of_many_programs_read_labels_and_a_saved_surrogate_knows_it(monkeypatch):
    rows = programs(120)
    monkeypatch.setattr("nas_rlm.surrogates.programs.fitting.FEW_PROGRAMS", 100)
    many, few = (fit_surrogates(part, ["memory"])["Judge/Python"][0] for part in (rows, rows[:90]))
    assert many.shared.models["memory"].trees_read_labels
    assert not few.shared.models["memory"].trees_read_labels
    texts = [row.input for row in programs(20, seed=1)]
    for surrogate in (many, few):
        again = from_saved(surrogate.tensors(), json.loads(json.dumps(surrogate.description())))
        expected = surrogate.predict(surrogate.transform(texts), "memory").mean
        assert again.predict(again.transform(texts), "memory").mean == pytest.approx(expected, abs=1e-3)
