"""The swizzle of shared memory against the tables of the CUDA C++ Programming Guide, as permutations."""

import numpy as np
import pytest

from helpers.sim.layouts.swizzle import BITS, PERIOD, SPAN, swizzle


def test_rows_of_the_128_byte_swizzle():
    """Row r of eight chunks of 16 bytes: chunk c lies where chunk c ^ r would."""
    for row in range(8):
        chunks = [swizzle(row * 128 + chunk * 16, "128B") // 16 % 8 for chunk in range(8)]
        assert chunks == [chunk ^ row for chunk in range(8)]


def test_the_narrow_swizzles_change_fewer_bits():
    """64 bytes: pairs of rows of 64 bytes share a pattern; 32 bytes: groups of four rows of 32."""
    assert [swizzle(row * 64, "64B") // 16 % 4 for row in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [swizzle(row * 32, "32B") // 16 % 2 for row in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("mode", BITS)
def test_a_permutation_of_each_span_that_undoes_itself(mode):
    offsets = np.arange(4096)
    moved = swizzle(offsets, mode)
    assert np.array_equal(swizzle(moved, mode), offsets)
    assert np.array_equal(moved % 16, offsets % 16)
    if mode is None:
        assert np.array_equal(moved, offsets)
        return
    assert np.array_equal(moved // SPAN[mode], offsets // SPAN[mode])
    assert np.array_equal(moved[PERIOD[mode] :], moved[: -PERIOD[mode]] + PERIOD[mode])
    assert len(set((moved - offsets)[: PERIOD[mode]].tolist())) > 1
