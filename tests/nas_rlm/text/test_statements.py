from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.model.batching import pad
from nas_rlm.text.statements import by_length, in_order, read, statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD

# 1 to 3 are plain, 4, 5, 8 and 9 names, 6 ends a statement, 7 a scope too.
KINDS = np.zeros(10, dtype=np.uint8)
NAMES = 4, 5, 8, 9
KINDS[[*NAMES]] = IDENTIFIER
KINDS[[6, 7]] = ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT
LONGEST = 6
TEXTS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=90), min_size=1, max_size=5)


@pytest.fixture(autouse=True, scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nas_rlm.text.statements.LONGEST", LONGEST)
        yield


def told(cut, row):
    """The tokens of a text's statements but for names, and these."""
    return [
        (np.frombuffer(cut.different[p], dtype=np.int64).tolist(), [name for name in names if name != PAD])
        for p, names in zip(cut.places[row], cut.names[row].tolist(), strict=True)
        if p >= 0
    ]


def parts(text, longest, *kinds):
    """A text in plain Python, cut after tokens of such kinds, and where a part is too long."""
    found = [[]]
    for token in text:
        if found[-1] and (len(found[-1]) == longest or KINDS[found[-1][-1]] in kinds):
            found.append([])
        found[-1].append(token)
    return found


def parted(text):
    """Statements of a text, in plain Python: tokens but for names, and names; functions with theirs."""
    found = []
    for scope in parts(text, len(text), KINDS[7]):
        if len(scope) <= LONGEST:
            found.append((scope, []))
            continue
        times, chains = Counter(scope), []
        for part in parts(scope, LONGEST, KINDS[6], KINDS[7]):
            rest, names = [t for t in part if t not in NAMES], [t for t in part if t in NAMES]
            if len(names) == 2 and times[names[1]] == 2 and chains and chains[-1][1][:1] == names[1:]:
                before, (_, *read) = chains[-1]
                if len(before) + len(rest) <= LONGEST:
                    chains[-1] = before + rest, [names[0], *read]
                    continue
            chains.append((rest, names))
        found += chains
    return found


@given(TEXTS)
def test_statements_are_the_text_and_each_different_one_is_there_once(texts):
    cut = statements(pad(texts), KINDS)
    assert len(set(cut.different)) == len(cut.different)
    assert [told(cut, row) for row in range(len(texts))] == list(map(parted, texts))
    assert not cut.names[cut.places < 0].any()


def test_statements_that_differ_in_names_alone_are_one():
    cut = statements(pad([[4, 1, 6, 5, 1, 6, 3, 6], [5, 1, 5, 6, 4, 1, 6]]), KINDS)
    assert cut.different == [np.array(row).tobytes() for row in ([1, 6], [3, 6])]
    assert cut.places.tolist() == [[0, 0, 1], [0, 0, -1]]
    assert cut.names.tolist() == [[[4, 0], [5, 0], [0, 0]], [[5, 5], [4, 0], [0, 0]]]


def test_a_chain_is_one_statement_until_it_is_long_or_read_by_others():
    chain = [4, 1, 8, 6, 5, 2, 4, 6]  # 4 is made of 8, and 5 of 4
    cut = statements(pad([[*chain, 9, 3, 5, 8, 6], [*chain, 9, 3, 4, 6], [*chain, 9, 1, 1, 5, 6]]), KINDS)
    assert [len(told(cut, row)) for row in range(3)] == [2, 3, 2]
    assert told(cut, 0) == [([1, 6, 2, 6], [5, 8]), ([3, 6], [9, 5, 8])]
    assert told(cut, 2) == [([1, 6, 2, 6], [5, 8]), ([1, 1, 6], [9, 5])]


def test_a_short_function_is_read_with_its_names():
    function, network = [4, 1, 5, 7], [4, 1, 6, 5, 2, 4, 4, 7]
    cut = statements(pad([[*network, *function], [*function, *network]]), KINDS)
    assert told(cut, 0) == [([1, 6], [4]), ([2, 7], [5, 4, 4]), (function, [])]
    assert told(cut, 1) == [(function, []), ([1, 6], [4]), ([2, 7], [5, 4, 4])]
    assert sorted(zip(*np.nonzero(cut.sources), strict=True)) == [(0, 1, 0), (1, 2, 1)]


@given(TEXTS)
def test_a_text_is_cut_alike_whatever_it_is_with(texts):
    together = statements(pad(texts), KINDS)
    for row, text in enumerate(texts):
        alone = statements(pad([text]), KINDS)
        assert told(alone, 0) == told(together, row)
        size = alone.places.shape[1]
        assert np.array_equal(alone.sources[0], together.sources[row, :size, :size])
        assert not together.sources[row, size:].any() and not together.sources[row, :, size:].any()


def test_a_statement_knows_where_its_names_come_from():
    text = [4, 1, 6, 5, 2, 4, 6, 1, 5, 4, 7, 4, 5, 6, 3, 3, 4, 6]
    sources = statements(pad([text]), KINDS).sources[0]
    assert sorted(zip(*np.nonzero(sources), strict=True)) == [(1, 0), (2, 0), (2, 1), (4, 3)]


def test_lengths_and_tokens_of_statements():
    ids = [[1] * n for n in (1, 2, 3, 4, 5, 32, 0)]
    different = [np.array(row).tobytes() for row in ids]
    assert by_length(different) == {1: [0, 6], 2: [1], 4: [2, 3], 8: [4], 32: [5]}
    assert read(different[2:4], 4, rows=3).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_groups_by_length_are_put_in_order_again(lengths):
    different = [bytes(8 * n) for n in lengths]
    groups = by_length(different)
    assert all(length / 2 < lengths[i] <= length for length, group in groups.items() for i in group)
    one_after_the_other = [i for group in groups.values() for i in group]
    assert [one_after_the_other[place] for place in in_order(groups)] == list(range(len(lengths)))
