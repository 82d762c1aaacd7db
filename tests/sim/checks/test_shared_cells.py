"""Names of shared variables in messages."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim.checks.shared_cells import plain_name


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
