"""The picture of the main loop: every planned cycle is in it once, in rows of equally many FFMAs."""

import pytest

import helpers
from helpers import Problem, gemm, views
from helpers.model.planned_cycles import MULTIPLY_ADD, main_loop
from helpers.run.kernel import compile as compile_kernel
from helpers.views.main_loop import WAIT, row_count, stretches
from tests.course.tiny_kernel import SOURCE


@pytest.mark.parametrize(("ffma", "rows"), [(2048, 16), (1024, 16), (512, 8), (100, 1), (128, 2), (1000, 8), (96, 1)])
def test_rows(ffma, rows):
    assert row_count(ffma) == rows


def test_every_cycle_is_drawn_once():
    kernel = compile_kernel(SOURCE)
    loop = main_loop(kernel.compiled)
    ffma = loop.counts[MULTIPLY_ADD]
    for rows in (1, 2):
        found = stretches(loop.body, rows)
        assert sum(one.right - one.left for one in found) == loop.cycles
        assert sum(one.right - one.left for one in found if one.kind == WAIT) == loop.waits
        for row in range(rows):
            mine = [one for one in found if one.row == row]
            assert [one.left for one in mine] == [0, *(one.right for one in mine[:-1])]
            assert sum(one.right - one.left for one in mine if one.kind == MULTIPLY_ADD) == ffma // rows
    ax = views.main_loop(gemm.run(kernel, Problem(128, 2, 8), on="cpu"))
    assert f"{loop.cycles} cycles" in ax.alt


def test_of_tensor_cores_it_shows_no_other_loop():
    """The loop that scales the sums of step 17 has more FFMAs than the one that multiplies, which has none."""
    run = gemm.count(helpers.reference("warp_specialized"), Problem(256, 256, 256, dtype="bfloat16"))
    assert views.main_loop(run).alt.startswith("This kernel multiplies on tensor cores")
