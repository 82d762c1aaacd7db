"""What whole warps do, in both engines: shuffles, votes, matches, reductions, warp barriers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.compiler import compile_source
from helpers.errors import RunError
from helpers.sim import simulate
from test_native import both, own_cache  # noqa: F401 - a fixture

EXCHANGE = """
extern "C" __global__ void k(const int* in, int* out, float* floats, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, x = in[t], sum = 0;
    const unsigned all = 0xffffffffu;
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(all, x, d) * d;
    sum += __shfl_up_sync(all, x, 3) - __shfl_down_sync(all, x, 5, 8) + __shfl_sync(all, x, lane / 4, 16);
    sum ^= __shfl_sync(all, x, x & 31) + __shfl_down_sync(all, x, x & 3, 16) + __shfl_up_sync(all, sum, n) + __shfl_xor_sync(all, sum, n, 8);
    float f = floats[t];
    for (int d = 1; d < 32; d *= 2) { float y = __shfl_up_sync(all, f, d); if (lane >= d) f += y; }
    floats[t] = f;
    unsigned votes = __ballot_sync(all, x > 50) ^ (__any_sync(all, x > n) << 3) ^ (__all_sync(all, x >= 0) << 5);
    votes += __match_any_sync(all, x % 5) * 3;
    int same; votes += __match_all_sync(all, x / 1000, &same); votes += same;
    votes += __reduce_add_sync(all, x) ^ __reduce_min_sync(all, x) * 3 ^ __reduce_max_sync(all, (unsigned)x) ^ __reduce_xor_sync(all, x);
    votes ^= __reduce_and_sync(all, x) + __reduce_or_sync(all, x) + __activemask() + (unsigned)__match_any_sync(all, (long long)x << 40);
    __syncwarp();
    if (__ballot_sync(all, x > n) != 0) votes += 7;     // the same way for the whole warp
    out[t] = sum + votes;
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_exchange_in_a_warp(arch):
    values = np.random.default_rng(0).integers(0, 100, 256).astype(np.int32)
    values[64:96] = 7
    floats = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    floats[5] = np.nan
    both(compile_source(EXCHANGE, arch=arch), (2, 1, 1), (128, 1, 1), [values, np.zeros(256, np.int32), floats, 30])


def test_a_warp_that_is_alone_in_a_branch():
    source = """
    extern "C" __global__ void k(const float* in, float* out) {
        __shared__ float sums[8];
        int t = threadIdx.x; float x = in[t];
        for (int d = 16; d; d /= 2) x += __shfl_down_sync(0xffffffffu, x, d);
        if (t % 32 == 0) sums[t / 32] = x;
        __syncthreads();
        if (t < 32) {
            x = t < blockDim.x / 32 ? sums[t] : 0;
            for (int d = 4; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
            if (t == 0) out[blockIdx.x] = x;
        }
    }"""
    data = np.random.default_rng(2).standard_normal(256).astype(np.float32)
    assert both(compile_source(source), (3, 1, 1), (256, 1, 1), [data, np.zeros(3, np.float32)]).findings == []


@pytest.mark.parametrize("body", [
    "out[t] = t < 16 ? __shfl_xor_sync(0xffffu, t, 1) : __shfl_xor_sync(0xffff0000u, t, 2);",  # parts of a warp
    "if (t >= 20) return; out[t] = __shfl_xor_sync(0xffffffffu, t, 16);",     # lanes that have ended
    "out[t] = __ballot_sync(0xffu, t & 1);",                                  # a mask that leaves callers out
])  # fmt: skip
def test_what_is_left_to_the_numpy_machine(body):
    compiled = compile_source(f'extern "C" __global__ void k(int* out) {{ int t = threadIdx.x; {body} }}')
    with pytest.raises(RunError, match="native engine cannot run"):
        simulate(compiled, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.int32)], engine="native")
    found = []
    for engine in (None, "numpy"):
        out = np.zeros(32, np.int32)
        found.append((simulate(compiled, (1, 1, 1), (32, 1, 1), [out], engine=engine).findings, out.tobytes()))
    assert found[0] == found[1]
