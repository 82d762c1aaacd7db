"""Which stages are under way at the same time, by places in the order of execution."""

from types import SimpleNamespace

import pytest

from helpers.course.comparing import variants
from helpers.course.lesson import reference
from helpers.sim.counting.stages import Fill, at_a_time, fills


def fill(begin, *ends):
    return Fill(0, 0, 1, 16, begin, begin + 1, tuple((4 * i, begin + 2, end) for i, end in enumerate(ends)))


@pytest.mark.parametrize(
    ("found", "most"),
    [
        ([fill(0, 5)], 1), ([fill(0, 5), fill(5, 9)], 1), ([fill(0, 6), fill(5, 9)], 2), ([fill(0, 4, 6), fill(5, 9)], 2),
        ([fill(0, 5), fill(1, 6), fill(2, 9), fill(7, 12)], 3), ([fill(0, None), fill(5, 9), fill(10, 12)], 2), ([fill(0), fill(5)], 2),
    ],
)  # fmt: skip
def test_a_stage_is_under_way_until_its_last_reader_has_left(found, most):
    assert at_a_time(tuple(found)) == most


def test_without_bulk_copies_there_are_no_stages():
    assert fills(SimpleNamespace(moves=[])) is None


@pytest.mark.slow
def test_the_first_block_shows_how_many_stages_a_kernel_fills_ahead():
    shipped = reference("tma_wgmma")
    made = variants(shipped, {"three": {"STAGES": 3}, "waits": {"wgmma_wait<1>();": "wgmma_wait<0>();"}})
    for kernel, most in ((shipped, 4), (made["three"], 3), (made["waits"], 3)):
        run = kernel.gemm(128, 256, 320, on="cpu", trace=True, counters=False, findings=False)
        block, found = fills(run.trace)
        assert block == 0 and len(found) == 5 and at_a_time(found) == most
