"""Names of shared variables in messages."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import helpers
from helpers.sim.checks.observer import SharedCheck
from helpers.sim.checks.shared_cells import SharedCells, plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_ZZ4gemmE2As", "As"), ("_ZZN2ns4gemmILi64EEEviE4tile", "tile"), ("_ZN2ns4smemE", "smem"), ("smem", "smem"), ("_ZZ1kvE2As_0", "As")],
)
def test_shared_variables_are_called_what_the_source_calls_them(symbol, name):
    assert plain_name(symbol) == name


def test_a_name_is_not_read_as_a_unit():
    source = """extern "C" __global__ void f(float* y) {
        extern __shared__ __align__(16) float bytes[];
        bytes[threadIdx.x] = 1;
        y[threadIdx.x] = bytes[63 - threadIdx.x];
    }"""
    found = helpers.compile(source).launch(1, 64, (np.zeros(64, np.float32),), shared=256, on="cpu", counters=False).findings
    assert "reads shared memory at offset 252 (in `bytes`), which thread" in found[0].message


def test_an_access_that_tells_the_blocks_apart_makes_rows_before_one_is_written():
    class Known(SharedCheck):
        arrays = ("seen",)

    cells = SharedCells(SimpleNamespace(shared_granule=4), 64)
    check = Known(None, None, cells)
    cells.checks.append(check)

    def touched(m, cells):
        cells.expand(m)
        return SimpleNamespace(cells=np.array([3, 16 + 5]))

    check.put("seen", SimpleNamespace(blocks=2), SimpleNamespace(touched=touched), 7)
    assert check.seen.shape == (2, 16) and np.flatnonzero(check.seen).tolist() == [3, 21]
