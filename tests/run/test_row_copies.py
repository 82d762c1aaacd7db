"""Copies to rows that TMA can take: the GPU's kernel gives what NumPy gives, at every offset of the old rows."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.run import row_copies
from helpers.run.row_copies import RowCopy, aligned_pitch


@pytest.mark.parametrize(
    ("itemsize", "first", "columns", "pitch"), [(2, 0, 37, 41), (2, 1, 3, 3), (4, 0, 70, 71), (1, 5, 100, 101), (4, 0, 4, 5)]
)
def test_the_kernel_copies_as_numpy_does(itemsize, first, columns, pitch):
    rows, width = 5, columns * itemsize
    random = np.random.default_rng(columns).integers(1, 256, first * itemsize + rows * pitch * itemsize, np.uint8)
    source = random[first * itemsize :]
    made = [np.full((rows, aligned_pitch(width)), fill, np.uint8) for fill in (0, 255)]
    by_numpy, by_kernel = (RowCopy(source, pitch * itemsize, target, target.shape[1], rows, width) for target in made)
    by_numpy.make()
    run = helpers.compile(row_copies.KERNEL).launch(by_kernel.grid, row_copies.THREADS, by_kernel.arguments, on="cpu")
    assert run.findings == [] and np.array_equal(*made)
    assert np.array_equal(made[0][:, :width], source.reshape(rows, -1)[:, :width]) and not made[0][:, width:].any()
