"""What whole warps do, in both engines: shuffles, votes, matches, reductions, warp barriers.

Tests of: helpers.sim.isa.warps
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.errors import RunError
from helpers.sim import simulate
from helpers.toolchain.compile import compile_source
from tests.sim.native.test_native import both

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


SYNCED = """
extern "C" __global__ void k(const float* in, float* out) {
    __shared__ float s[4][33], all[128];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    s[warp][lane] = in[t];
    __syncwarp();
    float x = s[warp][lane ^ 5] + s[warp][0];            // many lanes read one word
    for (int d = 16; d; d /= 2) {
        __syncwarp();
        if (lane < d) s[warp][lane] += s[warp][lane + d];
    }
    __syncwarp();
    all[t] = x + s[warp][0];
    __syncthreads();
    out[t] = all[127 - t];
}
"""


def test_barriers_of_warps_order_their_lanes():
    data = np.random.default_rng(4).standard_normal(128).astype(np.float32)
    assert both(compile_source(SYNCED), (1, 1, 1), (128, 1, 1), [data, np.zeros(128, np.float32)]).findings == []


def test_rare_instructions_are_asked_of_the_numpy_machine():
    """Approximations, packed halves, byte permutations: straight-line code outside of loops."""
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void k(const float* in, float* out, half2* halves, unsigned* bits) {
        int t = blockIdx.x * blockDim.x + threadIdx.x; float x = in[t];
        out[t] = __expf(x) + tanhf(x * 0.1f) + __sinf(x) * rsqrtf(fabsf(x) + 1) + __fdividef(x, 3.0f) + __log2f(fabsf(x));
        halves[t] = __hfma2(halves[t], __float2half2_rn(x), __floats2half2_rn(x, 1.5f));
        bits[t] = __byte_perm(bits[t], t, 0x3175) + __dp4a((int)bits[t], 0x01020304, 7) + __brev(t) + __ffs(bits[t]);
    }"""
    rng = np.random.default_rng(5)
    args = [rng.standard_normal(128).astype(np.float32), np.zeros(128, np.float32), rng.standard_normal(256).astype(np.float16),
            rng.integers(0, 2**32, 128, dtype=np.uint32)]  # fmt: skip
    both(compile_source(source), (2, 1, 1), (64, 1, 1), args)


def test_local_memory():
    """Arrays that are indexed by what is known only when it happens, of every width."""
    source = """
    extern "C" __global__ void k(const int* in, int* out, double* wide) {
        int a[24]; short b[9]; double d[5]; signed char c[7];
        int t = blockIdx.x * blockDim.x + threadIdx.x, sum = 0; double s = 0;
        for (int i = 0; i < 24; i++) a[i] = in[t] * i;
        for (int i = 0; i < 9; i++) b[(i * 2 + t) % 9] = in[t] - i;
        for (int i = 0; i < 5; i++) d[(i + in[t]) % 5] = i * 0.5 + t;
        for (int i = 0; i < 7; i++) c[(i + t) % 7] = t * i;
        if (t % 3) a[in[t] % 24] += 5;
        for (int i = 0; i < in[t] % 16; i++) { sum += a[(i * in[t]) % 24] + b[(i + in[t]) % 9] + c[i % 7]; s += d[(sum & 1023) % 5]; }
        out[t] = sum; wide[t] = s;
    }"""
    values = np.random.default_rng(6).integers(0, 100, 160).astype(np.int32)
    compiled = compile_source(source)
    assert ".local" in compiled.ptx
    both(compiled, (2, 1, 1), (80, 1, 1), [values, np.zeros(160, np.int32), np.zeros(160)])


def test_barriers_of_some_threads_are_left_to_the_numpy_machine():
    compiled = compile_source("""extern "C" __global__ void k(int* out) { __shared__ int s[128]; int t = threadIdx.x; s[t] = t;
        asm volatile("bar.sync 1, 128;" ::: "memory"); out[t] = s[127 - t]; }""")
    with pytest.raises(RunError, match="a barrier of some threads"):
        simulate(compiled, (1, 1, 1), (128, 1, 1), [np.zeros(128, np.int32)], engine="native")
