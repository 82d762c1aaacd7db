"""Which tile each block stores to, against where its stores went in the SIMT machine."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim.counting import machine_code

SOURCE = """extern "C" __global__ void backwards(float* C, int width, const int* from) {
    const int block = gridDim.x * gridDim.y - 1 - (blockIdx.y * gridDim.x + blockIdx.x);
    const int row = block / gridDim.x * 8 + threadIdx.y, col = block % gridDim.x * 32 + threadIdx.x;
    if (block != 5) C[row * width + col FROM] = block;
}
"""
BASE, WIDTH, GRID, BLOCK = 1 << 40, 128, (4, 3, 1), (32, 8, 1)
MATRIX = machine_code.StoredMatrix(BASE, WIDTH * 4, 4, (8, 32), 4, 24)


@pytest.fixture(scope="module")
def backwards():
    return helpers.compile(SOURCE.replace("FROM", ""))


def test_the_tile_of_each_block(backwards):
    first, last = machine_code.stored_tiles(backwards.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX)
    assert [*last] == [11, 10, 9, 8, 7, 6, -1, 4, 3, 2, 1, 0]
    assert [*np.delete(first, 6)] == [*np.delete(last, 6)]


def test_the_first_lane_says_the_same_where_it_stores_to_all_that_its_warp_does(backwards):
    by_warp = machine_code.stored_tiles(backwards.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX)
    alone = machine_code.stored_tiles(backwards.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX, lanes=1)
    np.testing.assert_array_equal(by_warp, alone)


@pytest.mark.parametrize("cross", ["__shfl_xor_sync(~0u, col, 1)", "__popc(__ballot_sync(~0u, threadIdx.x > 2)) + col - 29"])
def test_the_first_lane_alone_does_not_say_what_comes_of_others(cross):
    kernel = helpers.compile(SOURCE.replace("FROM", "").replace("width + col", f"width + ({cross})"))
    assert machine_code.stored_tiles(kernel.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX) is not None
    assert machine_code.stored_tiles(kernel.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX, lanes=1) is None


def test_the_elements_of_some_blocks_are_those_that_the_machine_stores(backwards):
    stored = np.full((24, WIDTH), -1, np.float32)
    backwards.launch(GRID, BLOCK, [stored, WIDTH, np.zeros(1, np.int32)], on="cpu")
    found = machine_code.stored_elements(backwards.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX, [0, 3, 6])
    for block, mine in zip((0, 3, 6), found, strict=True):
        assert [*mine] == [*(4 * np.flatnonzero(stored.reshape(-1) == 11 - block))] if block != 6 else not mine.size


def test_addresses_that_depend_on_data_are_not_told():
    kernel = helpers.compile(SOURCE.replace("FROM", "+ from[0]"))
    assert machine_code.stored_tiles(kernel.compiled, GRID, BLOCK, [BASE, WIDTH, 0], MATRIX) is None
