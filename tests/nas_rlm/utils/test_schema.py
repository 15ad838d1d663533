from dataclasses import dataclass

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from nas_rlm.utils.schema import (
    NO_OTHER_KEYS,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    message,
)


@dataclass
class Entry:
    size: PositiveInt
    __pydantic_config__ = NO_OTHER_KEYS


@checked_dataclass(config=NO_OTHER_KEYS)
class Example:
    entries: tuple[Entry, ...] = ()
    count: NonNegativeInt = 0
    rate: PositiveFloat = 1.0
    noise: NonNegativeFloat = 0.0
    fraction: Fraction = 0.5


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"count": -1}, "count is -1: expected at least 0"),
        ({"count": True}, "count is True: expected an integer"),
        ({"count": 2.0}, "count is 2.0: expected an integer"),
        ({"count": "2"}, "count is '2': expected an integer"),
        ({"rate": 0}, "rate is 0: expected a number above 0"),
        ({"noise": float("inf")}, "noise is inf: expected a finite number"),
        ({"fraction": 1}, "fraction is 1: expected a number below 1"),
        ({"entries": [{"size": 1}, {"size": 0}]}, "entries[1].size is 0: expected at least 1"),
        ({"entries": [{}]}, "entries[0].size is missing"),
        ({"entries": [{"sise": 1}]}, "unknown key 'entries[0].sise'; did you mean size?"),
        ({"entries": "x" * 200}, f"entries is '{'x' * 79}: expected a list"),
        ({"entries": [3]}, "entries[0] is 3: expected a mapping of keys to values"),
        ([], "it is []: expected a mapping of keys to values"),
    ],
)
def test_a_message_names_the_key_the_value_and_what_would_be_right(content, expected):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Example).validate_python(content)
    assert message(error.value, ("entries", "count", "size")) == expected


def test_integers_are_valid_numbers_and_lists_are_valid_tuples():
    assert TypeAdapter(Example).validate_python({"rate": 2, "entries": [{"size": 3}]}) == Example(
        (Entry(3),), rate=2.0
    )


def test_numbers_of_numpy_are_valid():
    example = Example(count=np.int64(3), rate=np.float32(0.5), noise=np.int32(1))
    assert example == Example(count=3, rate=0.5, noise=1.0)
    assert [type(value) for value in (example.count, example.rate, example.noise)] == [int, float, float]
    with pytest.raises(ValidationError):
        Example(count=np.float64(3.0))


def test_without_valid_keys_none_is_suggested():
    with pytest.raises(ValidationError) as error:
        Example(counts=1)
    assert message(error.value) == "unknown key 'counts'"
