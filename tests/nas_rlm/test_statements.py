import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.batching import pad
from nas_rlm.statements import LONGEST, by_length, in_order, read, statements
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER

# 1 to 3 are plain, 4 and 5 names, 6 ends a statement, 7 a scope too.
KINDS = np.array(
    [0, 0, 0, 0, IDENTIFIER, IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT], dtype=np.uint8
)
TEXTS = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=90), min_size=1, max_size=5)


def told(cut, row):
    """The tokens of a text's statements."""
    return [np.frombuffer(cut.different[p], dtype=np.int64).tolist() for p in cut.places[row] if p >= 0]


@given(TEXTS)
def test_statements_are_the_text_and_each_different_one_is_there_once(texts):
    cut = statements(pad(texts), KINDS)
    assert len(set(cut.different)) == len(cut.different)
    for row, text in enumerate(texts):
        parts = told(cut, row)
        assert [token for part in parts for token in part] == text
        assert all(0 < len(part) <= LONGEST for part in parts)
        assert all(KINDS[token] & ENDS_STATEMENT == 0 for part in parts for token in part[:-1])
        assert all(KINDS[part[-1]] & ENDS_STATEMENT or len(part) == LONGEST for part in parts[:-1])


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
    text = [4, 1, 6, 5, 2, 4, 6, 1, 5, 4, 7, 4, 5, 6, 3, 4, 6]
    sources = statements(pad([text]), KINDS).sources[0]
    assert sorted(zip(*np.nonzero(sources), strict=True)) == [(1, 0), (2, 0), (2, 1), (4, 3)]


def test_lengths_and_tokens_of_statements():
    ids = [[1] * n for n in (1, 2, 3, 4, 5, 32)]
    different = [np.array(row).tobytes() for row in ids]
    assert by_length(different) == {1: [0], 2: [1], 4: [2, 3], 8: [4], 32: [5]}
    assert read(different[2:4], 4, rows=3).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_groups_by_length_are_put_in_order_again(lengths):
    different = [bytes(8 * n) for n in lengths]
    groups = by_length(different)
    assert all(length / 2 < lengths[i] <= length for length, group in groups.items() for i in group)
    one_after_the_other = [i for group in groups.values() for i in group]
    assert [one_after_the_other[place] for place in in_order(groups)] == list(range(len(lengths)))
