"""Outputs are what they were when `python -m tests.golden.record` wrote tests/golden/*.json.

By default numbers may differ as they do between processors. With NAS_RLM_GOLDEN=exact and OMP_NUM_THREADS=1,
on the machine and with the packages of the record, everything is equal to the last bit.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tests.golden.cases import CASES, output, recorded

pytestmark = pytest.mark.usefixtures("whole_fits", "quick_processes")
EXACT = os.environ.get("NAS_RLM_GOLDEN") == "exact"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    if EXACT and os.environ.get("OMP_NUM_THREADS") != "1":
        pytest.fail("NAS_RLM_GOLDEN=exact needs OMP_NUM_THREADS=1, as the record was made with")


def difference(found: Any, expected: Any, path: str = "") -> str:
    """Where two outputs first differ, and how; empty if they are equal."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(found, dict) and isinstance(expected, dict) and list(found) == list(expected):
        pairs = [(key, found[key], expected[key]) for key in found]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [(i, *pair) for i, pair in enumerate(zip(found, expected, strict=True))]
    elif found != expected:
        return f"{path}: {found!r}, recorded {expected!r}"
    return next(filter(None, (difference(f, e, f"{path}/{key}") for key, f, e in pairs)), "")


def without_numbers(value: Any) -> Any:
    """The same with all floats as zeros."""
    if isinstance(value, dict):
        return {key: without_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_numbers(one) for one in value]
    return 0.0 if isinstance(value, float) else value


def floats(value: Any) -> list[float]:
    """All floats, in order."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [one for part in inner for one in floats(part)]
    return [value] if isinstance(value, float) else []


def check(found: Any, expected: Any, most: float, close: float = 0.01, share: float = 0.0) -> None:
    """All but the floats are equal, these within relative `most`, and a share of them within `close`."""
    assert not difference(without_numbers(found), without_numbers(expected))
    ours, theirs = np.array(floats(found)), np.array(floats(expected))
    errors = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-12)
    if len(errors):
        worst = int(errors.argmax())
        assert errors[worst] <= most, f"{ours[worst]}, recorded {theirs[worst]}"
        assert (errors <= close).mean() >= share


def check_predictions(found: Any, expected: Any, scale: float = 1.0) -> None:
    """Medians agree, most quantiles and draws agree: a digit may be another where it nearly was before."""
    check(found.get("medians"), expected.get("medians"), most=0.02 * scale)
    check(found["quantiles"], expected["quantiles"], most=0.1 * scale, close=0.01 * scale, share=0.85)
    check(found.get("samples"), expected.get("samples"), most=np.inf, close=0.01 * scale, share=0.8)


def names(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", CASES[part])


@pytest.mark.parametrize("part", CASES)
def test_each_case_is_recorded(part):
    assert list(recorded(part)) == list(CASES[part])


@names("spaces")
def test_texts_of_spaces(name, tmp_path):
    assert not difference(output("spaces", name, tmp_path), recorded("spaces")[name])


@names("foreign")
def test_texts_of_other_networks(name, tmp_path):
    assert not difference(output("foreign", name, tmp_path), recorded("foreign")[name])


@names("predictions")
def test_predictions(name, tmp_path):
    found, expected = output("predictions", name, tmp_path), recorded("predictions")[name]
    if EXACT:
        assert not difference(found, expected)
    assert list(found) == list(expected)
    for key in expected:
        check_predictions(found[key], expected[key])


@names("commands")
def test_commands(name, tmp_path):
    found, expected = output("commands", name, tmp_path), recorded("commands")[name]
    if EXACT:
        assert not difference(found, expected)
    check(found, expected, most=0.1, share=0.85)


@names("searches")
def test_searches(name, tmp_path):
    found, expected = output("searches", name, tmp_path), recorded("searches")[name]
    if EXACT:
        assert not difference(found, expected)
    assert found["objectives"] == expected["objectives"]
    assert found["front"]["header"] == expected["front"]["header"]
    ours, theirs = found["generations"], expected["generations"]
    assert [len(g["architectures"]) for g in ours] == [len(g["architectures"]) for g in theirs]
    every = [a for g in ours for a in g["architectures"]]
    assert len(every) == len(set(every))
    is_same = True  # a generation depends on all predictions before, and on nothing else
    for mine, recalled in zip(ours, theirs, strict=True):
        if is_same:
            assert mine["architectures"] == recalled["architectures"]
            check(mine["quantiles"], recalled["quantiles"], most=0.1, share=0.85)
        is_same = is_same and mine["quantiles"] == recalled["quantiles"]
    if is_same:
        assert not difference(found["front"], expected["front"])
    best = [
        np.sort([q[0][1] for g in one for q in g["quantiles"]])[-10:].mean() for one in (ours, theirs)
    ]  # medians of accuracy
    assert best[0] == pytest.approx(best[1], rel=0.01)


@names("finetuning")
def test_finetuning(name, tmp_path):
    found, expected = output("finetuning", name, tmp_path), recorded("finetuning")[name]
    if EXACT:
        assert not difference(found, expected)
    assert list(found) == list(expected)
    for key in expected:
        if key == "training":
            check(found[key], expected[key], most=0.25)
        else:
            check_predictions(found[key], expected[key], scale=3)
    ranks = [np.argsort(np.argsort(np.ravel(one["tuned"]["medians"]))) for one in (found, expected)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9
