import json
import random

import numpy as np
import pytest

import search_spaces
from search_spaces.notation import abbreviated, is_int_between, read_json

JUNK = (
    *(None, True, False, 0, -1, 3, 2.0, 2.5, 1e308, 10**30, "", "3", "conv3x3", "é", "٣"),
    *([], {}, [[2]], {"a": 1}, [1.0, 2.0, 0.5], [-1, -2, 4]),
)
TEXTS = (
    *("", " ", "null", "[]", "{}", "NaN", "[1e400]", "1" * 5000, "[" * 5000, '{"a":' * 3000, "é", "\x00"),
    *("[" * 200_000, "Genotype()", "Genotype(*[1])", "Genotype(normal=range(10**9))", "(" * 3000),
    *("w٣2_s3_c2_m2.0_r1|conv_3x3:0", "w32_s3_c2_m2..0_r1|conv_3x3:0", "w32_s3_c2_m2.0_r1|conv_3x3:٠"),
)


def test_json():
    assert read_json('{"a": [1, 2.5]}', "JSON") == {"a": [1, 2.5]}
    for text in ("{", "NaN", "[-Infinity]", "1e999", "[" * 10_000, "1" * 30_000):
        with pytest.raises(ValueError, match=r"is not a list of numbers$"):
            read_json(text, "a list of numbers")


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match=r"has the unknown key 'c', not one of a, b; expected JSON"):
        read_json('{"a": [{"b": 1, "c": 2}]}', "JSON", ("a", "b"))
    with pytest.raises(ValueError, match=r"has the duplicate key 'a'; expected JSON"):
        read_json('{"a": 1, "a": 2}', "JSON")


@pytest.mark.parametrize("name", ["nasbench101", "two_path", "inception", "ofa_mbv3", "ofa_resnet50"])
def test_architecture_with_an_additional_key_is_refused(name):
    space = search_spaces.get(name)
    content = json.loads(str(space.sample(np.random.default_rng(0))))
    place = content
    while not isinstance(place, dict):
        place = place[0]
    place["depth"] = 3
    with pytest.raises(ValueError, match=r"has the unknown key 'depth'"):
        space.parse(json.dumps(content))


def test_long_texts_are_abbreviated():
    assert abbreviated("abc") == "'abc'"
    assert len(abbreviated("a" * 100_000)) < 600


def test_integers_in_a_range():
    assert is_int_between(3, 1, 3)
    assert not any(is_int_between(v, 0, 3) for v in (True, 4, -1, 2.0, "2", None))


@pytest.mark.parametrize("name", search_spaces.names())
def test_other_objects_than_architectures_raise_a_value_error(name):
    space = search_spaces.get(name)
    for text in TEXTS:
        with pytest.raises(ValueError, match=r"."):
            space.parse(text)


@pytest.mark.parametrize(
    "name",
    [n for n in search_spaces.names() if n.startswith(("gpt", "nds", "ofa", "two", "inc", "nasbench101"))],
)
def test_changed_values_are_refused_or_kept(name):
    space, rng = search_spaces.get(name), random.Random(0)
    for seed in range(3):
        content = json.loads(str(space.sample(np.random.default_rng(seed))))
        for path in rng.choices(list(_paths(content)), k=8):
            for junk in JUNK:
                text = json.dumps(_with(content, path, junk))
                try:
                    architecture = space.parse(text)
                except ValueError as error:
                    assert len(str(error)) > 20
                    continue
                assert space.parse(str(architecture)) == architecture
                assert len(space.encode(architecture)) == len(space.genes)
                assert 0 < space.params(architecture) < 1e12


def _paths(content, path=()):
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, key))


def _with(content, path, value):
    copy = json.loads(json.dumps(content))
    part = copy
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return copy
