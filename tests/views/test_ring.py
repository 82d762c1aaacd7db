"""Stages, phases and products as the machine executed them."""

import pytest

from helpers.course.comparing import variants
from helpers.course.lesson import reference
from helpers.views import ring
from helpers.views.canvas import NothingToSee
from helpers.views.ring import fills, results
from tests.views.view_builders import one_load


def run(kernel):
    return kernel.gemm(128, 256, 320, on="cpu", trace=True, counters=False, findings=False)


def test_a_stage_is_filled_waited_for_and_read_in_this_order():
    block, found = fills(run(reference("tma_wgmma")).trace)
    assert block == 0 and [fill.number for fill in found] == [0, 0, 0, 0, 1] and {fill.nbytes for fill in found} == {49152}
    for fill in found:
        assert fill.copies == 5 and [warp for warp, *_ in fill.reads] == [0, 4]
        assert all(fill.begin < fill.arrived < begin < end for _, begin, end in fill.reads)


def test_groups_overlap_unless_all_are_waited_for():
    kernel = reference("tma_wgmma")
    eager = variants(kernel, {"eager": {"wgmma_wait<1>();": "wgmma_wait<0>();"}})["eager"]

    def overlaps(kernel):
        _, found = fills(run(kernel).trace)
        return found[0].reads[0][2] > found[1].reads[0][1]

    assert overlaps(kernel) and not overlaps(eager)
    assert "4 stages, filled 5 times; block (0, 0), in the order of execution; a fill is 49,152 bytes" in ring(run(kernel)).alt


def test_the_producer_is_a_ring_ahead_while_results_leave():
    made = reference("warp_specialized").gemm(256, 512, 320, on="cpu", trace=True, multiprocessors=2, counters=False, findings=False)
    _, found = fills(made.trace)
    first, other, *later = results(made.trace)
    assert (first.warp, other.warp, first.copies, other.copies, len(later)) == (0, 4, 4, 4, 2)
    assert max(fill.reads[0][2] for fill in found[:5]) < first.begin < first.end < later[0].begin
    assert sum(fill.begin < first.begin for fill in found) == 5 + 4  # this tile's five, and a ring of the next one's
    ax = ring(made)
    assert "warps 0 to 3 store their results by 4 bulk copies, the first when 9 fills have begun" in ax.alt
    assert [label.get_text() for label in ax.get_yticklabels()][-1] == "to C" and "events" not in ax.alt


def test_without_bulk_copies_there_is_no_ring():
    with pytest.raises(NothingToSee, match="No bulk copy"):
        fills(one_load(range(0, 128, 4)).trace)
