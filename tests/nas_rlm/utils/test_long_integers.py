import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from nas_rlm.utils.long_integers import MAX_DIGITS, long_integers


def test_the_limit_is_restored_when_the_last_user_has_left():
    before = sys.get_int_max_str_digits()
    with long_integers():
        with pytest.raises(KeyError), long_integers():
            raise KeyError
        assert int("7" * 9131) % 10 == 7
    assert sys.get_int_max_str_digits() == before
    with pytest.raises(ValueError, match="Exceeds the limit"):
        int("7" * (before + 1))


def test_threads_do_not_disturb_one_another():
    @long_integers()
    def digits(length):
        return len(str(int("7" * length)))

    before = sys.get_int_max_str_digits()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(digits, range(5000, 5400))) == list(range(5000, 5400))
    assert sys.get_int_max_str_digits() == before


def test_a_higher_limit_stays():
    before = sys.get_int_max_str_digits()
    try:
        for limit in (0, 2 * MAX_DIGITS):
            sys.set_int_max_str_digits(limit)
            with long_integers():
                assert sys.get_int_max_str_digits() == limit
    finally:
        sys.set_int_max_str_digits(before)
