import itertools
import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.model.numbers import DigitTree, NumberScheme

SCHEME = NumberScheme()
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def leaves(scheme: NumberScheme, prefix: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The tokens of all numbers of a scheme, in the order of the tree."""
    if len(prefix) == scheme.length:
        return [prefix]
    return [leaf for token in scheme.children(prefix) for leaf in leaves(scheme, (*prefix, token))]


@cache
def numbers_below(scheme: NumberScheme) -> dict[tuple[int, ...], list[float]]:
    """For each prefix, the numbers that start with it, in the order of the tree."""
    by_prefix: dict[tuple[int, ...], list[float]] = {}
    for leaf in leaves(scheme):
        number = scheme.decode(leaf)
        for k in range(scheme.length + 1):
            by_prefix.setdefault(leaf[:k], []).append(number)
    return by_prefix


def test_the_example_of_the_paper():
    scheme = NumberScheme(mantissa_digits=3)
    assert scheme.format_tokens(scheme.encode(72.5)) == "<+><-><1><7><2><5>"
    assert scheme.decode(scheme.encode(72.5)) == 72.5


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0.0, "<+><-><9><0><0><0><0>"),
        (-0.0, "<+><-><9><0><0><0><0>"),
        (1.0, "<+><-><3><1><0><0><0>"),
        (9999.6, "<+><+><1><1><0><0><0>"),
        (-0.012341, "<-><-><5><1><2><3><4>"),
        (4e-7, "<+><-><9><0><0><0><0>"),
        (6e-7, "<+><-><9><1><0><0><0>"),
        (1e300, "<+><+><9><9><9><9><9>"),
        (-math.inf, "<-><+><9><9><9><9><9>"),
        (93.04888, "<+><-><2><9><3><0><5>"),
    ],
)
def test_golden_tokens(value, tokens):
    assert SCHEME.format_tokens(SCHEME.encode(value)) == tokens


def test_nan_is_rejected():
    with pytest.raises(ValueError, match="NaN"):
        SCHEME.encode(math.nan)


@given(st.floats(1e-6, 9.999e12), st.sampled_from([1, -1]))
def test_round_trip_is_within_half_a_unit_of_the_last_digit(value, sign):
    back = SCHEME.decode(SCHEME.encode(sign * value))
    assert abs(back - sign * value) <= 0.5001e-3 * 10 ** math.floor(math.log10(value) + 1e-12)


@given(st.floats(1e-6, 9.9994e12), st.integers(1, 6))
def test_rounding_is_that_of_exact_decimal_arithmetic(value, digits):
    scheme = NumberScheme(exponent_digits=2, mantissa_digits=digits)
    exact = Context(prec=digits, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(value))
    assert scheme.decode(scheme.encode(value)) == float(exact)


@given(FINITE, FINITE)
def test_encoding_preserves_order(a, b):
    low, high = (SCHEME.decode(SCHEME.encode(v)) for v in sorted((a, b)))
    assert low <= high


@given(FINITE)
def test_encoding_is_stable(value):
    tokens = SCHEME.encode(value)
    assert SCHEME.is_valid(tokens)
    assert SCHEME.encode(SCHEME.decode(tokens)) == tokens


def test_rounds_half_to_even_and_never_truncates():
    assert SCHEME.decode(SCHEME.encode(1000.5)) == 1000
    assert SCHEME.decode(SCHEME.encode(1001.5)) == 1002
    assert SCHEME.decode(SCHEME.encode(1.9999)) == 2.0


@pytest.mark.parametrize("scheme", [NumberScheme(1, 1), NumberScheme(1, 2), NumberScheme(2, 1)])
def test_the_tree_lists_each_number_once_in_ascending_order(scheme):
    values = [scheme.decode(leaf) for leaf in leaves(scheme)]
    assert all(a < b for a, b in itertools.pairwise(values))
    mantissas = 9 * 10 ** (scheme.mantissa_digits - 1)
    assert len(values) == 2 * mantissas * (2 * scheme.max_exponent + 1) + 1


def test_invalid_tokens_are_rejected():
    with pytest.raises(ValueError, match="is not a number"):
        SCHEME.decode(SCHEME.encode(1.0)[:-1])
    with pytest.raises(ValueError, match="is not a number"):
        SCHEME.decode([0, 0, 2, 2, 3, 3, 3])


@given(st.lists(st.integers(0, 9), min_size=7, max_size=7))
def test_the_tables_agree_with_the_scheme(choices):
    tree = DigitTree(SCHEME)
    prefix: list[int] = []
    state = 0
    for position, choice in enumerate(choices):
        children = [c for c in tree.children[position, state] if c >= 0]
        assert children == SCHEME.children(prefix)
        token = int(children[choice % len(children)])
        state = tree.next_states[position, state, token]
        prefix.append(token)


def test_arrays_of_numbers_are_decoded():
    values = np.array([[1.0, -2.5], [0.0, 1e5]])
    tokens = np.array([[SCHEME.encode(v) for v in row] for row in values])
    assert np.array_equal(SCHEME.decode_array(tokens), values)


@pytest.mark.parametrize("scheme", [NumberScheme(1, 1), NumberScheme(1, 2)])
def test_edges_lie_between_the_numbers_of_adjacent_children(scheme):
    tree, by_prefix = DigitTree(scheme), numbers_below(scheme)
    for prefix in by_prefix:
        if len(prefix) == scheme.length:
            continue
        state = 0
        for k, token in enumerate(prefix):
            state = tree.next_states[k, state, token]
        edges = tree.edges(np.array([prefix], dtype=int).reshape(1, len(prefix)), np.array([state]))[0]
        below = [by_prefix[(*prefix, c)] for c in scheme.children(prefix)]
        assert edges[0] == below[0][0]
        for k, (left, right) in enumerate(itertools.pairwise(below)):
            assert edges[k + 1] == pytest.approx((left[-1] + right[0]) / 2)
        assert (edges[len(below) :] == below[-1][-1]).all()
        assert (np.diff(edges) >= 0).all()


@given(st.floats(allow_nan=False), st.sampled_from([(1, 4), (2, 6), (3, 16)]))
def test_infinity_is_a_number_of_its_own_and_finite_numbers_stay_finite(value, digits):
    scheme = NumberScheme(*digits, has_infinity=True)
    tokens = scheme.encode(value)
    assert scheme.is_valid(tokens)
    if math.isinf(value):
        assert scheme.decode(tokens) == value
    else:
        assert math.isfinite(scheme.decode(tokens))


@given(FINITE)
def test_a_scheme_of_enough_digits_writes_any_number_within_its_rounding(value):
    scheme = NumberScheme(3, 8, has_infinity=True)
    assert math.isclose(scheme.decode(scheme.encode(value)), value, rel_tol=1e-7)


def test_edges_separate_infinity_from_all_finite_numbers():
    scheme = NumberScheme(1, 1, has_infinity=True)
    tree, prefix = DigitTree(scheme), scheme.encode(math.inf)[:2]
    states = np.zeros(1, dtype=np.int64)
    for position, token in enumerate(prefix):
        states = tree.next_states[position, states, token]
    edges = tree.edges(np.array([prefix]), states)[0]
    assert (np.diff(edges) >= 0).all()
    assert edges[-1] == math.inf
    assert np.isfinite(edges[:-1]).all()
