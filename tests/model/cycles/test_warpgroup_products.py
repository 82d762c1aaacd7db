"""A tensor core that takes products of warpgroups while their warps do something else."""

import pytest

from helpers.model.cycles.warpgroup_products import TensorCore


def test_products_of_a_warp_follow_each_other():
    core, group = TensorCore(), [0.0, False]
    assert core.until == 0
    for _ in range(4):
        assert core.add("a", 64, group, 10, 40) == []
    assert group[0] == 10 + 4 * 64 + 40 and core.until == 10 + 4 * 64


def test_what_a_warp_adds_goes_before_what_is_not_begun_of_another():
    """So of two warpgroups one is ahead, and the other's products are later than it thought."""
    core, first, second = TensorCore(), [0.0, False], [0.0, False]
    core.add("a", 64, first, 0, 40)
    assert core.add("b", 64, second, 0, 40) == []
    assert second[0] == 64 + 64 + 40
    assert core.add("a", 64, first, 10, 40) == ["b"]
    assert first[0] == 2 * 64 + 40 and second[0] == 3 * 64 + 40


@pytest.mark.parametrize("later", [65, 500])
def test_who_comes_when_all_is_done_begins_at_once(later):
    core, group = TensorCore(), [0.0, False]
    core.add("a", 64, [0.0, False], 0, 40)
    core.add("b", 64, group, later, 40)
    assert group[0] == later + 64 + 40
