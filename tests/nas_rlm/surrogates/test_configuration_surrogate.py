import json
from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.configuration_surrogate import (
    ConfigurationSurrogate,
    are_configurations,
    split_numbers,
)
from nas_rlm.surrogates.fitting import are_learnt_as_configurations, fit_surrogates
from nas_rlm.surrogates.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.program_fitting import fit_program_surrogates
from nas_rlm.surrogates.program_surrogate import ProgramSurrogate
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


def test_programs_are_split_into_numbers_and_the_rest():
    assert split_numbers("x1 = 10**6 + 1e-3 * a[2_0]") == ("x1 = #**# + # * a[#]", [10, 6, 1e-3, 20])
    assert split_numbers("9" * 400)[1] == [1e100]
    assert split_numbers("3_ 1__2 .5 x.7 a.b1") == ("# # # x.7 a.b1", [3, 12, 0.5])
    programs = configurations(30, 0)[0]
    assert are_configurations(programs) and are_configurations([*programs, "print()"])
    assert not are_configurations([*programs, *(f"print({'x' * k})" for k in range(10))])
    assert not are_configurations(programs[:1] * 30) and not are_configurations([])


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
    zero = [replace(row, targets={"latency/gpu": 0.0}) for row in rows[:1]]
    (with_zero,) = fit_surrogates([*zero, *rows[1:]], ["latency/gpu"])["triton"]
    assert isinstance(with_zero, ProgramSurrogate)
    assert not are_learnt_as_configurations([*zero, *rows[1:]], ["latency/gpu"])
    (for_problems,) = fit_surrogates(rows, ["latency/gpu"], by_group=True)["triton"]
    assert isinstance(for_problems, ProgramSurrogate)
    mixed = [*rows, *(Row("triton", "", {"latency/gpu": 1.0}, f"print({'x' * k})") for k in range(9))]
    (surrogate,) = fit_surrogates(mixed, ["latency/gpu"])["triton"]
    assert isinstance(surrogate, ProgramSurrogate)
