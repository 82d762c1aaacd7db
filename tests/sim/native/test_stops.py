"""What ends a whole launch costs native code nothing until it is executed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

import helpers
from helpers.errors import RunError

KERNEL = """#include <cassert>
__device__ __noinline__ float root(float x) { assert(x >= 0); return sqrtf(x); }
__global__ void k(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    STOP
    y[i] = root(x[i]) + i % 3;
}"""
STOPS = {
    "if (x[i] > 900) __trap();": "line 6: the kernel stopped itself",
    "if (x[i] > 900) { for (int j = 0; j < i; j++) if (j == 5) __trap(); }": "line 6: the kernel stopped itself",
    "assert(x[i] < 900);": "line 6: the assertion `x[i] < 900` does not hold for thread (37, 0, 0) of block (2, 0, 0)",
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_launch_that_does_not_stop_is_native_and_one_that_does_says_why(stop):
    kernel = helpers.compile(KERNEL.replace("STOP", stop))
    x, y = np.arange(600, dtype=np.float32), np.zeros(600, np.float32)
    run = kernel.launch(5, 128, (x, y, np.int32(590)), on="cpu")
    assert run.outcome.engine == "native" and run.findings == []
    np.testing.assert_array_equal(y, np.where(x < 590, np.sqrt(x) + np.arange(600) % 3, 0).astype(np.float32))
    x[2 * 128 + 37] = 901
    with pytest.raises(RunError) as caught:
        kernel.launch(5, 128, (x, y, np.int32(590)), on="cpu")
    assert str(caught.value).startswith(STOPS[stop])


def test_an_assertion_of_a_called_function():
    kernel = helpers.compile(KERNEL.replace("STOP", ""))
    x = np.arange(600, dtype=np.float32)
    x[300] = -1
    with pytest.raises(RunError, match=r"line 2: the assertion `x >= 0` does not hold for thread \(44, 0, 0\) of block \(2, 0, 0\)"):
        kernel.launch(5, 128, (x, np.zeros(600, np.float32), np.int32(590)), on="cpu")
