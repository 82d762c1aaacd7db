"""What is a whole number, and what a list, among all that a reader may give."""

import numpy as np
import pytest

from helpers.arguments import is_whole, listed


@pytest.mark.parametrize("value", [0, -3, 10**30, np.int64(4), np.uint8(4)], ids=repr)
def test_whole_numbers(value):
    assert is_whole(value)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float32(1), "1", None, [1], np.array(1)], ids=repr)
def test_what_is_no_whole_number(value):
    assert not is_whole(value)


@pytest.mark.parametrize(
    "value, held",
    [([1, 2], (1, 2)), (range(2), (0, 1)), (np.array([3]), (3,)), (iter("ab"), ("a", "b")), ((), ())],
    ids=["a list", "a range", "an array", "an iterator", "nothing"],
)
def test_what_a_list_holds(value, held):
    assert listed(value) == held


@pytest.mark.parametrize("value", [3, None, "ab", b"ab", {1: 2}, np.array(3)], ids=repr)
def test_what_is_no_list(value):
    assert listed(value) is None
