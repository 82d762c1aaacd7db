"""Learners take turns, however many kernels each has waiting."""

import pytest

from helpers.errors import LaunchError
from helpers.run.shared_gpu.turns import Turns


def test_who_floods_waits_behind_the_others():
    turns = Turns(5)
    for number in range(5):
        turns.add("flood", f"flood {number}")
    first = turns.next()
    turns.add("ada", "ada 0")
    turns.add("bob", "bob 0")
    turns.add("ada", "ada 1")
    assert turns.before("ada 0") == 0 and turns.before("flood 4") == 6
    order = [first, *iter(turns.next, None)]
    assert order == ["flood 0", "ada 0", "bob 0", "flood 1", "ada 1", "flood 2", "flood 3", "flood 4"]


def test_who_has_just_been_served_is_not_next_because_nobody_else_waited():
    turns = Turns(5)
    turns.add("flood", 0)
    assert turns.next() == 0 and turns.next() is None
    turns.add("flood", 1)
    turns.add("ben", 2)
    assert (turns.before(2), turns.before(1), turns.next(), turns.next()) == (0, 1, 2, 1)


def test_a_learner_may_have_so_many_waiting_and_take_them_back():
    turns = Turns(2)
    turns.add("ada", 1)
    turns.add("ada", 2)
    with pytest.raises(LaunchError, match="You have 2 kernels waiting"):
        turns.add("ada", 3)
    turns.remove(1)
    turns.add("ada", 3)
    assert (turns.next(), turns.next(), turns.next(), len(turns)) == (2, 3, None, 0)


def test_one_kernel_is_one_kernel():
    turns = Turns(1)
    turns.add("a", 1)
    with pytest.raises(LaunchError, match="You have 1 kernel waiting"):
        turns.add("a", 2)
