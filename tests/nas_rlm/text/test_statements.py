from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.model.batching import pad
from nas_rlm.text.statements import group_by_length, order_after_grouping, pad_statements, split_statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

# Tokens 4, 5, 8 and 9 are names, 6 ends a statement, 7 a statement and a scope.
TOKEN_FLAGS = np.zeros(10, dtype=np.uint8)
NAMES = 4, 5, 8, 9
TOKEN_FLAGS[[*NAMES]] = IDENTIFIER
TOKEN_FLAGS[[6, 7]] = ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT
MAX_TOKENS = 6
TEXTS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=90), min_size=1, max_size=5)


@pytest.fixture(autouse=True, scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nas_rlm.text.statements.MAX_STATEMENT_TOKENS", MAX_TOKENS)
        yield


def decoded(cut, row):
    """Return the tokens without names, and the names, of each statement of a text."""
    return [
        (np.frombuffer(cut.unique[p], dtype=np.int64).tolist(), [name for name in names if name != PAD])
        for p, names in zip(cut.unique_index[row], cut.names[row].tolist(), strict=True)
        if p >= 0
    ]


def split_plainly(text, max_length, *kinds):
    """Split a text after tokens of these kinds and where a piece is too long, in plain Python."""
    found = [[]]
    for token in text:
        if found[-1] and (len(found[-1]) == max_length or TOKEN_FLAGS[found[-1][-1]] in kinds):
            found.append([])
        found[-1].append(token)
    return found


def expected_statements(text):
    """Return the statements of a text as `decoded` does, in plain Python."""
    found = []
    for scope in split_plainly(text, len(text), TOKEN_FLAGS[7]):
        if len(scope) <= MAX_TOKENS:
            found.append((scope, []))
            continue
        times, chains = Counter(scope), []
        for piece in split_plainly(scope, MAX_TOKENS, TOKEN_FLAGS[6], TOKEN_FLAGS[7]):
            rest, names = [t for t in piece if t not in NAMES], [t for t in piece if t in NAMES]
            if len(names) == 2 and times[names[1]] == 2 and chains and chains[-1][1][:1] == names[1:]:
                before, (_, *inputs) = chains[-1]
                if len(before) + len(rest) <= MAX_TOKENS:
                    chains[-1] = before + rest, [names[0], *inputs]
                    continue
            chains.append((rest, names))
        found += chains
    return found


@given(TEXTS)
def test_statements_cover_the_text_and_are_unique(texts):
    cut = split_statements(pad(texts), TOKEN_FLAGS)
    assert len(set(cut.unique)) == len(cut.unique)
    assert [decoded(cut, row) for row in range(len(texts))] == list(map(expected_statements, texts))
    assert not cut.names[cut.unique_index < 0].any()


def test_statements_that_differ_only_in_names_are_equal():
    cut = split_statements(pad([[4, 1, 6, 5, 1, 6, 3, 6], [5, 1, 5, 6, 4, 1, 6]]), TOKEN_FLAGS)
    assert cut.unique == [np.array(row).tobytes() for row in ([1, 6], [3, 6])]
    assert cut.unique_index.tolist() == [[0, 0, 1], [0, 0, -1]]
    assert cut.names.tolist() == [[[4, 0], [5, 0], [0, 0]], [[5, 5], [4, 0], [0, 0]]]


def test_chain_is_one_statement_unless_it_is_long_or_branches():
    chain = [4, 1, 8, 6, 5, 2, 4, 6]  # 4 is made of 8, and 5 of 4
    cut = split_statements(
        pad([[*chain, 9, 3, 5, 8, 6], [*chain, 9, 3, 4, 6], [*chain, 9, 1, 1, 5, 6]]), TOKEN_FLAGS
    )
    assert [len(decoded(cut, row)) for row in range(3)] == [2, 3, 2]
    assert decoded(cut, 0) == [([1, 6, 2, 6], [5, 8]), ([3, 6], [9, 5, 8])]
    assert decoded(cut, 2) == [([1, 6, 2, 6], [5, 8]), ([1, 1, 6], [9, 5])]


def test_short_function_keeps_its_names():
    function, network = [4, 1, 5, 7], [4, 1, 6, 5, 2, 4, 4, 7]
    cut = split_statements(pad([[*network, *function], [*function, *network]]), TOKEN_FLAGS)
    assert decoded(cut, 0) == [([1, 6], [4]), ([2, 7], [5, 4, 4]), (function, [])]
    assert decoded(cut, 1) == [(function, []), ([1, 6], [4]), ([2, 7], [5, 4, 4])]
    assert sorted(zip(*np.nonzero(cut.sources), strict=True)) == [(0, 1, 0), (1, 2, 1)]


@given(TEXTS)
def test_statements_do_not_depend_on_the_batch(texts):
    together = split_statements(pad(texts), TOKEN_FLAGS)
    for row, text in enumerate(texts):
        alone = split_statements(pad([text]), TOKEN_FLAGS)
        assert decoded(alone, 0) == decoded(together, row)
        size = alone.unique_index.shape[1]
        assert np.array_equal(alone.sources[0], together.sources[row, :size, :size])
        assert not together.sources[row, size:].any() and not together.sources[row, :, size:].any()


def test_sources_of_names():
    text = [4, 1, 6, 5, 2, 4, 6, 1, 5, 4, 7, 4, 5, 6, 3, 3, 4, 6]
    sources = split_statements(pad([text]), TOKEN_FLAGS).sources[0]
    assert sorted(zip(*np.nonzero(sources), strict=True)) == [(1, 0), (2, 0), (2, 1), (4, 3)]


def test_lengths_and_tokens_of_statements():
    ids = [[1] * n for n in (1, 2, 3, 4, 5, 32, 0)]
    unique = [np.array(row).tobytes() for row in ids]
    assert group_by_length(unique) == {1: [0, 6], 2: [1], 4: [2, 3], 8: [4], 32: [5]}
    assert pad_statements(unique[2:4], 4, min_rows=3).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_order_after_grouping_by_length(lengths):
    unique = [bytes(8 * n) for n in lengths]
    groups = group_by_length(unique)
    assert all(length / 2 < lengths[i] <= length for length, group in groups.items() for i in group)
    one_after_the_other = [i for group in groups.values() for i in group]
    assert [one_after_the_other[place] for place in order_after_grouping(groups)] == list(range(len(lengths)))
