import json
from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.configurations.surrogate import (
    ConfigurationSurrogate,
    are_configurations,
)
from nas_rlm.surrogates.fitting import are_learnt_as_configurations, fit_surrogates
from nas_rlm.surrogates.latency.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.programs.fitting import fit_program_surrogates
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate
from nas_rlm.surrogates.registry import from_saved

KERNELS = {
    "add": "# 5 numbers # of x1\nBLOCK, WARPS = {block}, {warps}\nadd[(triton.cdiv(n, {block}),)](x, y)\n",
    "sum": "SIZE, COUNT = {block}, {warps}\nout = total(x, SIZE) * 0.5\n",
}


def configurations(count, seed, kernels=("add",)):
    """Return programs and their times: best for a number of elements of each thread."""
    rng = np.random.default_rng(seed)
    programs, times = [], []
    for name in kernels:
        for block, warps in zip(2 ** rng.integers(5, 14, count), 2 ** rng.integers(0, 5, count), strict=True):
            programs.append(KERNELS[name].format(block=block, warps=warps))
            off = np.log2(block / (32 * warps)) - (2 if name == "add" else 4)
            times.append((10 if name == "add" else 1) * (1 + off**2) * np.exp(0.05 * rng.normal()))
    return programs, np.array(times)


def test_most_programs_are_configurations_of_one_with_several():
    programs = configurations(30, 0)[0]
    assert are_configurations(programs) and are_configurations([*programs, "print()"])
    assert are_configurations(programs[:8]) and not are_configurations(programs[:4])
    assert not are_configurations([*programs, *(f"print({'-' * k}1)" for k in range(15))])
    assert not are_configurations(programs[:1] * 30) and not are_configurations([])
    assert not are_configurations([f"print({'x' * k})" for k in range(1, 9)])  # all words differ


def test_a_few_labels_of_another_program_change_nothing_and_have_its_own_process():
    programs, times = configurations(25, 0)
    others, expected = configurations(60, 1)
    second, second_times = configurations(6, 2, ("sum",))
    alone = ConfigurationSurrogate.fit(programs, {"latency/gpu": times})
    rows = [
        Row("triton", "", {"latency/gpu": t}, p)
        for p, t in zip([*programs, *second], [*times, *second_times], strict=True)
    ]
    (both,) = fit_surrogates(rows, ["latency/gpu"])["triton"]
    assert isinstance(both, ConfigurationSurrogate) and len(both.features) == 2
    found = [spearman(s.predict(s.transform(others), "latency/gpu").median, expected) for s in (alone, both)]
    assert found[1] == pytest.approx(found[0], abs=0.03)
    unlabelled = both.predict(both.transform(configurations(60, 3, ("sum",))[0]), "latency/gpu").median
    assert np.median(unlabelled) < np.median(times) / 2


def test_programs_that_were_learnt_before_stay():
    programs, times = configurations(25, 0)
    second, second_times = configurations(12, 2, ("sum",))
    first = ConfigurationSurrogate.fit(programs, {"latency/gpu": times})
    other = ConfigurationSurrogate.fit(second, {"latency/gpu": second_times, "latency/new": second_times})
    both = other.with_other_programs(first)
    found, expected = (s.predict(s.transform(programs), "latency/gpu") for s in (both, first))
    np.testing.assert_allclose(found.quantiles([0.1, 0.5]), expected.quantiles([0.1, 0.5]), rtol=1e-6)
    assert len(both.processes["latency/new"]) == 1 and len(both.features) == 2
    assert json.dumps(from_saved(both.tensors(), both.description()).description())
    few = ConfigurationSurrogate.fit(programs[:10], {"latency/gpu": times[:10]})
    with pytest.warns(UserWarning, match="10 labels of latency/gpu replace 25 that the model had learnt"):
        few.with_other_programs(first)


def test_a_program_with_few_labels_of_one_objective_keeps_its_features():
    programs, times = configurations(25, 0)
    first = ConfigurationSurrogate.fit(programs, {"latency/a": times})
    flagged = [f"EVICT = {i % 2 > 0}\n{program}" for i, program in enumerate(programs)]
    values = {"latency/a": np.tile(times, 2), "latency/b": np.tile(times, 2)}
    values["latency/a"][4:25] = np.nan  # too few labels of the first program
    new = ConfigurationSurrogate.fit([*programs, *flagged], values)
    with pytest.warns(UserWarning, match="0 labels of latency/a replace 25"):
        both = new.with_other_programs(first)
    found, expected = (s.predict(s.transform(programs), "latency/b").median for s in (both, new))
    np.testing.assert_array_equal(found, expected)
    assert set(both.features) == set(new.features)


def test_flags_are_learnt():
    rng = np.random.default_rng(0)
    programs, times = configurations(60, 0)
    flags = rng.integers(0, 2, 60) > 0
    written = [f"EVICT = {flag}\n{program}" for flag, program in zip(flags, programs, strict=True)]
    slower = np.where(flags, 5.0, 1.0) * times
    surrogate = ConfigurationSurrogate.fit(written[:25], {"latency/gpu": slower[:25]})
    found = surrogate.predict(surrogate.transform(written[25:]), "latency/gpu").median
    assert spearman(found, slower[25:]) > 0.85


def test_a_number_that_was_equal_in_all_labels_makes_the_interval_wide():
    programs, times = configurations(25, 0)
    sized = [f"# rows of 4097\n{program}" for program in programs]
    surrogate = ConfigurationSurrogate.fit(sized, {"latency/gpu": times})
    same, other = surrogate.transform([sized[0], sized[0].replace("4097", "65552")])
    found = surrogate.predict([same, other], "latency/gpu")
    assert found.median[0] == found.median[1] and found.std[1] > 3 * found.std[0]
    assert found.novelty[0] < MAX_NOVELTY < found.novelty[1]
    low, high = found.quantiles([0.1, 0.9])[1]
    assert high > 16 * found.median[1] and low < found.median[1] / 16


def test_configurations_are_ranked_better_than_by_ngrams():
    programs, times = configurations(25, 0)
    others, expected = configurations(200, 1)
    ours = ConfigurationSurrogate.fit(programs, {"latency/gpu": times})
    found = ours.predict(ours.transform(others), "latency/gpu")
    values = {"latency/gpu": times}
    theirs = fit_program_surrogates(programs, ["triton"] * len(programs), values)["triton"]
    by_ngrams = theirs.predict(theirs.transform(others), "latency/gpu")
    assert spearman(found.median, expected) > max(0.8, spearman(by_ngrams.median, expected))
    low, high = found.quantiles([0.1, 0.9]).T
    assert 0.6 <= np.mean((low <= expected) & (expected <= high)) <= 1
    assert ours.held_out["latency/gpu"].known == pytest.approx(spearman(found.median, expected), abs=0.25)


def test_each_program_has_its_own_process_and_others_are_unknown():
    programs, times = configurations(25, 0, ("add", "sum"))
    surrogate = ConfigurationSurrogate.fit(programs, {"latency/gpu": times})
    others, expected = configurations(100, 1, ("sum", "add"))
    found = surrogate.predict(surrogate.transform(others), "latency/gpu").median
    for rows in (slice(100), slice(100, None)):
        assert spearman(found[rows], expected[rows]) > 0.7
    assert np.median(found[100:]) > 3 * np.median(found[:100])
    unknown = surrogate.predict(surrogate.transform(["print(3)", others[0]]), "latency/gpu")
    assert unknown.novelty[0] > MAX_NOVELTY > unknown.novelty[1]
    low, high = unknown.quantiles([0.1, 0.9])[0]
    assert low < times.min() * 2 and high > times.max() / 2


def test_a_saved_surrogate_is_the_same_and_loses_objectives():
    programs, times = configurations(25, 0, ("add", "sum"))
    values = {"latency/a": times, "latency/b": np.where(np.arange(50) < 25, times, np.nan)}
    surrogate = ConfigurationSurrogate.fit(programs, values)
    saved = json.loads(json.dumps(surrogate.description()))
    again = from_saved(surrogate.tensors(), saved)
    assert isinstance(again, ConfigurationSurrogate) and again.held_out == surrogate.held_out
    for name in values:
        found, expected = (s.predict(s.transform(programs), name) for s in (again, surrogate))
        np.testing.assert_allclose(found.quantiles([0.1, 0.5]), expected.quantiles([0.1, 0.5]), rtol=1e-4)
    left = surrogate.without(["latency/a"])
    assert left.objectives == ("latency/b",) and left.without(["latency/b"]) is None
    one = from_saved(left.tensors(), left.description())
    np.testing.assert_allclose(
        one.predict(one.transform(programs), "latency/b").median,
        surrogate.predict(surrogate.transform(programs), "latency/b").median,
        rtol=1e-4,
    )
    with pytest.raises(ValueError, match="missing"):
        from_saved({k: v for k, v in surrogate.tensors().items() if "alpha" not in k}, saved)


def test_tables_of_configurations_get_this_surrogate():
    programs, times = configurations(30, 0)
    rows = [Row("triton", "", {"latency/gpu": t}, p) for p, t in zip(programs, times, strict=True)]
    (surrogate,) = fit_surrogates(rows, ["latency/gpu"])["triton"]
    assert isinstance(surrogate, ConfigurationSurrogate)
    assert are_learnt_as_configurations(rows, ["latency/gpu"])
    assert not are_learnt_as_configurations(
        [*rows[:15], *(replace(r, space="other") for r in rows[15:])], ["latency/gpu"]
    )
    with_zero = [Row("triton", "", {"loss": t}, p) for p, t in zip(programs, [0.0, *times[1:]], strict=True)]
    (surrogate,) = fit_surrogates(with_zero, ["loss"])["triton"]
    assert isinstance(surrogate, ProgramSurrogate)
    assert not are_learnt_as_configurations(with_zero, ["loss"])
    for groups, is_learnt in ((3, True), (30, False)):
        of_groups = [replace(row, group=f"p{i % groups}") for i, row in enumerate(rows)]
        assert are_learnt_as_configurations(of_groups, ["latency/gpu"]) == is_learnt
    (for_problems,) = fit_surrogates(rows, ["latency/gpu"], by_group=True)["triton"]
    assert isinstance(for_problems, ProgramSurrogate)
    mixed = [*rows, *(Row("triton", "", {"latency/gpu": 1.0}, f"print({'-' * k}1)") for k in range(15))]
    (surrogate,) = fit_surrogates(mixed, ["latency/gpu"])["triton"]
    assert isinstance(surrogate, ProgramSurrogate)
