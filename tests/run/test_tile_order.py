"""Orders of tiles that leave some out, told from orders that are merely unusual."""

from __future__ import annotations

import math

import numpy as np
import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.course.lesson import reference
from helpers.run import gemm, tile_order

ORDER = "const int block = blockIdx.y * gridDim.x + blockIdx.x;"
SOLUTION = exercise("short_panel").solution


def edited(*edits):
    source = SOLUTION
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return helpers.compile(source)


@pytest.mark.parametrize("period", [2048, 5000, 9000])
def test_an_order_that_begins_again_leaves_tiles_out(period):
    kernel = edited((ORDER, f"const int block = (blockIdx.y * gridDim.x + blockIdx.x) % {period};"))
    problem = tile_order.many_tiles(kernel, 1)
    across, down = gemm.geometry(kernel).tiles(problem.m, problem.n)
    text = tile_order.unreached(kernel, problem)
    assert text and "both store to" in text
    assert f"of {across * down:,} tiles" in text
    report = gemm.check(kernel, on="cpu")
    assert [case.problem.k for case in report.cases if case.message] == [1]


def test_blocks_that_leave_are_named():
    kernel = edited((ORDER, f"{ORDER}\n    if (block > 8999) return;"))
    assert "stores nothing" in tile_order.unreached(kernel, tile_order.many_tiles(kernel, 1))


def test_numbers_of_16_bits_are_cut_where_there_are_more_tiles():
    kernel = edited((ORDER, ORDER.replace("= ", "= (unsigned short)(").replace(";", ");")))
    assert tile_order.unreached(kernel, tile_order.many_tiles(kernel, 1)) == ""
    problem, text = tile_order.taken_twice(kernel, 1)
    assert math.prod(gemm.geometry(kernel).tiles(problem.m, problem.n)) > 1 << 16 and text.startswith("blocks (0, 0) and ")
    assert text in str(gemm.check(kernel, on="cpu", seed=1))


@pytest.mark.parametrize("slug", ["naive", "bank_conflicts", "schedule", "autotune"])
def test_no_two_blocks_of_the_course_take_a_tile(slug):
    assert tile_order.taken_twice(reference(slug), 1) is None


@pytest.mark.parametrize("slug", ["naive", "coalesced", "bank_conflicts", "schedule", "autotune"])
def test_the_course_reaches_every_tile(slug):
    kernel = reference(slug)
    assert tile_order.unreached(kernel, tile_order.many_tiles(kernel, 2)) == ""
    assert tile_order.unreached(kernel, gemm.problem_for(kernel, 1000, 777, 50, beta=1.0, alpha=0.5)) == ""


def test_what_the_machine_code_does_not_tell_is_not_said():
    kernel = edited((ORDER, "const int block = (blockIdx.y * gridDim.x + blockIdx.x + (A[0] > 7)) % 2048;"))
    assert tile_order.unreached(kernel, tile_order.many_tiles(kernel, 1)) is None
    assert tile_order.many_tiles(reference("warp_specialized"), 1) is None  # its blocks walk the tiles


def test_tiles_apart_are_powers_of_two_apart():
    kernel = edited()
    rows, columns = gemm.geometry(kernel).tile
    sample = tile_order.tiles_apart(kernel, gemm.problem_for(kernel, 40 * rows, 30 * columns, 500), 64)
    numbers = np.array([x + 30 * y for x, y in sample.places])
    assert sample.k == 64
    assert [*numbers] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1199]


def test_rows_that_blocks_share_in_another_way_are_no_wrong_order():
    """Rows of C are dealt out to the blocks one by one: a warp of each is in the first tile alone."""
    source = """extern "C" __device__ constexpr int block_shape[] = {32, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {8, 32};
extern "C" __global__ void dealt(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int row = threadIdx.y * gridDim.y + blockIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[(size_t)row * lda + k] * B[(size_t)k * ldb + col];
    float& c = C[(size_t)row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
"""
    kernel = helpers.compile(source)
    assert tile_order.unreached(kernel, tile_order.many_tiles(kernel, 1)) is None


ITEMS, TILES = "item < items; item += clusters", "tile < rows * columns; tile += gridDim.x"


def walking(slug, old, new):
    """A persistent kernel of the course that goes from tile to tile in another way."""
    source = reference(slug).source
    assert old in source
    return helpers.compile(source.replace(old, new), entry=slug, arch="sm_90a")


@pytest.mark.parametrize(
    ("slug", "old", "new", "said"),
    [
        ("warp_specialized", ITEMS, "item < min(items, 4096); item += clusters", "4 blocks should compute 12 tiles"),
        ("warp_specialized", f"{ITEMS}) {{\n                if", "item < min(items, 4096); item += clusters) {\n                if", "whose phase is never completed"),
        ("warp_specialized", "row = (panel * PANEL", "row = (panel % 256 * PANEL", ""),
        ("fp8", TILES, "tile < min(rows * columns, 8192); tile += gridDim.x", "should compute 6 tiles"),
        ("fp8", "const int panel = tile / (PANEL * columns), in_panel = tile % (PANEL * columns);",
         "const int panel = tile / (PANEL * columns), in_panel = (tile & 4095) % (PANEL * columns);", ""),
    ],
)  # fmt: skip
def test_blocks_that_walk_few_of_many_tiles_are_found(slug, old, new, said):
    found = tile_order.unwalked(walking(slug, old, new), 1)
    assert found and said in found[1] and "A product of 24 tiles is right" in found[1]


@pytest.mark.parametrize("slug", ["warp_specialized", "fp8"])
def test_who_walks_all_tiles_is_right(slug):
    assert tile_order.unwalked(reference(slug), 1) is None


@pytest.mark.slow
def test_who_shares_few_tiles_in_another_way_is_not_blamed():
    """Half of the tiles are nobody's: it is wrong for few tiles too, which other shapes say, and nothing is said of many."""
    kernel = walking("fp8", TILES, "tile < rows * columns; tile += 2 * gridDim.x")
    assert tile_order._walked(kernel, tile_order.thin(kernel, 1)[0])
    assert tile_order.unwalked(kernel, 1) is None


def test_a_check_asks_blocks_that_walk_the_tiles():
    kernel = walking("fp8", TILES, "tile < min(rows * columns, 8192); tile += gridDim.x")
    case = gemm._unreached_tiles(kernel, 1, 60.0)
    assert case and "should compute 6 tiles" in case.message and case.problem.k == 1
