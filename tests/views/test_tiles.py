"""The tile march: which elements each step touches, compared with what the kernels are written to do."""

import dataclasses

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import helpers
from helpers.run import gemm
from helpers.views import tiles
from helpers.views.canvas import BLUE, INK, ORANGE, PICTURES, rgb
from helpers.views.places import element
from helpers.views.tiles import march
from tests.run.column_kernels import plain
from tests.views.view_builders import access_rows, one_load, run_of


def test_shared_tiles_march_along_k(shared_tile_run):
    first, second = (march(shared_tile_run, block=3, step=step) for step in (0, 1))
    assert first.steps == 2
    assert first.a.extent() == (slice(32, 64), slice(0, 32)) and first.b.extent() == (slice(0, 32), slice(32, 64))
    assert second.a.extent() == (slice(32, 64), slice(32, 64)) and second.b.extent() == (slice(32, 64), slice(32, 64))
    assert (first.a.now[32:, :32] == 1).all() and first.a.now.sum() == 1024
    np.testing.assert_array_equal(second.a.before, first.a.now)
    assert first.c.extent() == (slice(32, 64), slice(32, 64)) and (first.c.now[32:, 32:] == 1).all()


def test_naive_goes_one_column_at_a_time_and_loads_each_element_32_times(naive_run):
    seen = march(naive_run, block=1, step=20)
    assert seen.steps == 64
    assert seen.a.extent() == (slice(0, 32), slice(20, 21)) and (seen.a.now[:32, 20] == 32).all()
    assert seen.b.extent() == (slice(20, 21), slice(32, 64)) and (seen.b.now[20, 32:] == 32).all()


def test_a_matrix_by_columns_is_drawn_as_the_product_has_it_and_says_how_it_is_stored(said):
    kernel = helpers.compile(plain(), transb=True)
    run = gemm.run(kernel, gemm.problem_for(kernel, 32, 8, 64), on="cpu", trace=True)
    seen = march(run, block=0, step=5)  # of four k
    assert seen.b.now.shape == (64, 8) and seen.b.extent() == (slice(20, 24), slice(0, 8)) and not seen.a.by_columns
    shown = said(tiles(run, step=5))
    assert "B: 64 × 8,\nstored by columns" in shown and "A: 32 × 64" in shown and "k = 20 to 23" in shown
    home = next(item for item in run.trace.allocations if item.name == "B")
    assert element(run, "global", home.base + 4 * (3 * 64 + 20)) == "B[20, 3]"


def test_a_warp_and_a_thread_touch_their_part(naive_run, coalesced_run):
    warp = march(naive_run, "warp", block=0, warp=3, step=5)
    assert warp.c.extent() == (slice(0, 32), slice(3, 4))  # rows run down the warp
    assert march(coalesced_run, "warp", block=0, warp=3, step=5).c.extent() == (slice(3, 4), slice(0, 32))
    thread = march(naive_run, "thread", block=0, thread=3 * 32 + 7, step=5)
    assert thread.c.extent() == (slice(7, 8), slice(3, 4)) and thread.a.extent() == (slice(7, 8), slice(5, 6))
    assert thread.warp == 3


def test_the_picture_says_steps_reuse_and_loads_per_result(shared_tile_run, naive_run, said):
    shared = said(tiles(shared_tile_run, step=1))
    assert "Step 1 (of 0 to 1): k = 32 to 63" in shared and "1,024 elements of A\nloaded once each" in shared
    assert "4 global = K/16" in shared and "128 shared = 2 K" in shared
    naive = said(tiles(naive_run, step=20))
    assert "Step 20 (of 0 to 63): k = 20" in naive and "32 elements of B\nloaded 32 times each" in naive and "128 global = 2 K" in naive
    assert "shared" not in naive


def test_the_legend_has_the_colours_of_the_matrices_whose_elements_are_loaded(shared_tile_run):
    patches = tiles(shared_tile_run, step=1).get_legend().findobj(Rectangle)
    colours = {tuple(round(part, 3) for part in patch.get_facecolor()[:3]) for patch in patches}
    assert {tuple(round(part, 3) for part in rgb(colour)) for colour in (BLUE, ORANGE)} <= colours
    assert tuple(round(part, 3) for part in rgb(INK)) not in colours and len(colours) == 4


def test_alternative_text_and_controls(shared_tile_run):
    assert "Step 0 (of 0 to 1)" in tiles(shared_tile_run).alt and "block (0, 0)" in tiles(shared_tile_run).alt
    assert [control.name for control in PICTURES["tiles"].controls(shared_tile_run)] == ["level", "block", "step"]
    assert [c.name for c in PICTURES["tiles"].controls(shared_tile_run, level="thread")] == ["level", "block", "thread", "step"]
    assert PICTURES["tiles"].controls(shared_tile_run)[-1].high == 1


def test_wide_accesses_touch_all_their_elements():
    run = one_load(16 * np.arange(32), 16, shape=(8, 128))
    arrays = [run.trace.allocations[0], *(dataclasses.replace(run.trace.allocations[0], name=name, base=base) for name, base in
                                          (("B", 2**20), ("C", 2**21)))]  # fmt: skip
    run.trace = dataclasses.replace(run.trace, allocations=arrays)
    seen = march(run)
    assert seen.a.now.sum() == 128 and (seen.a.now[0] == 1).all()


@pytest.mark.parametrize("level", ["block", "warp", "thread"])
def test_what_is_out_of_range_is_moved_into_it(shared_tile_run, level):
    seen = march(shared_tile_run, level, block=10**6, warp=10**6, thread=10**6, step=10**6)
    assert (seen.block, seen.step) == (3, 1)


def test_a_kernel_without_matrices_is_explained(said):
    assert "matrices A, B and C in global memory" in said(tiles(one_load(4 * np.arange(32))))


def test_a_block_that_loads_nothing_is_explained(naive_run, said):
    only_stores = dataclasses.replace(naive_run.trace, accesses=access_rows([(2, 0, 0, 0)]), addresses=naive_run.trace.addresses[-1:])
    assert "loads nothing from A or B" in said(tiles(run_of(only_stores)))
    nothing = dataclasses.replace(naive_run.trace, accesses=access_rows([])[:0], addresses=np.zeros((0, 32), np.int64))
    assert "No access was recorded" in said(tiles(run_of(nothing)))
