"""The picture of factors: one for each block, where it lies."""

import numpy as np
import pytest

from helpers.run.block_scales import quantized
from helpers.views import block_factors


@pytest.mark.parametrize("along, across", [(128, 1), (0, 1), (64, 32)])
def test_each_map_has_a_factor_for_each_number_where_it_lies(along, across):
    random = np.random.default_rng(0)
    a, b = random.standard_normal((96, 300)).astype(np.float32), random.standard_normal((300, 40)).astype(np.float32)
    a[:, 7] *= 1000
    left, right = quantized(a, along, across), quantized(b.T, along, across)
    ax = block_factors(left, right)
    maps = [image.get_array() for inset in ax.child_axes for image in inset.images][:2]
    assert [one.shape for one in maps] == [a.shape, b.shape]
    for matrix, item, one in ((a, left, maps[0]), (b.T, right, maps[1].T)):
        for row, k in ((0, 0), (5, 7), (39, 299)):
            factor = item.factors[k // item.along, row // item.across]
            assert one[row, k] == np.log2(factor)
            assert item.restored()[row, k] == pytest.approx(matrix[row, k], rel=2**-4, abs=float(factor) * 2**-9)
    assert f"{left.factors.size} factors" in ax.child_axes[0].get_title(loc="left") and "2^" in ax.alt


def test_blocks_are_parted_by_lines_where_there_is_room():
    """Of a matrix without outliers all factors are nearly the same: without lines it is a patch of one colour."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((256, 1024)).astype(np.float32), random.standard_normal((1024, 300)).astype(np.float32)
    ax = block_factors(quantized(a, 128, 1), right=quantized(b.T, 128, 128))
    drawn = [[(line.get_xdata()[0], line.get_ydata()[0]) for line in one.lines] for one in ax.child_axes[:2]]
    ends = [128 * i - 0.5 for i in range(1, 8)]
    assert [x for x, _ in drawn[0]] == ends, "between blocks along K; 256 rows have no room"
    assert [y for _, y in drawn[1]][:7] == ends and [x for x, _ in drawn[1]][7:] == [127.5, 255.5]
    one = quantized(np.ones((4, 8), np.float32), 0, 0)
    assert not any(inset.lines for inset in block_factors(one, one).child_axes[:2])


def test_matrices_with_one_factor_have_a_scale_as_well():
    ones = quantized(np.ones((4, 8), np.float32), 0, 0)
    assert block_factors(ones, ones).alt.count("1 factors") == 2


def test_what_are_no_two_such_matrices_is_said():
    wide, narrow = quantized(np.ones((4, 256))), quantized(np.ones((4, 128)))
    for shown in (block_factors(wide), block_factors(3, wide), block_factors(wide, np.ones((4, 256)))):
        assert "two matrices as quantized makes them" in shown.alt
    assert "A has 256 k in a row and B 128 in a column" in block_factors(wide, narrow).alt
