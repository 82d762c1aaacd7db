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


# Lanes with different masks answer among themselves: halves of a warp, and lanes with the same value, who find each other.
GROUPS = """
extern "C" __global__ void k(const int* in, int* out) {
    int t = threadIdx.x, x = in[t], same;
    const unsigned half = t % 32 < 16 ? 0xffffu : 0xffff0000u, alike = __match_any_sync(0xffffffffu, x);
    int* row = out + t;
    for (unsigned mask : {half, alike}) {
        row[0] = __any_sync(mask, t % 32 == 3), row[64] = __all_sync(mask, x < 3), row[128] = __ballot_sync(mask, t & 4);
        row[192] = __match_any_sync(mask, t / 8), row[256] = __match_all_sync(mask, x < 2, &same), row[320] = same;
        row[384] = __reduce_add_sync(mask, x), row[448] = __reduce_max_sync(mask, t), row[512] = __shfl_sync(mask, t, __ffs(mask) - 1);
        if (__any_sync(mask, x == 5)) row[576] = 100 + x;
        __syncwarp(mask);
        row += 640;
    }
}
"""


def groups_apart(x: np.ndarray) -> np.ndarray:
    """What GROUPS writes, of 64 threads with these numbers."""
    thread, bit = np.arange(64), np.uint32(1) << (np.arange(64, dtype=np.uint32) % 32)
    out = np.zeros((2, 10, 64), np.int32)
    for table, key in zip(out, (thread % 32 // 16, x), strict=True):
        for t in thread:
            mine = (thread // 32 == t // 32) & (key == key[t])

            def mask(chosen, mine=mine):
                return np.bitwise_or.reduce(bit[mine & chosen], initial=np.uint32(0)).view(np.int32)

            same = len(set(x[mine] < 2)) == 1
            table[:, t] = (
                (mine & (thread % 32 == 3)).any(), (x[mine] < 3).all(), mask(thread & 4 != 0), mask(thread // 8 == t // 8),
                mask(mine) if same else 0, same, x[mine].sum(), thread[mine].max(), thread[mine].min(), 100 + x[t] if 5 in x[mine] else 0,
            )  # fmt: skip
    return out.reshape(-1)


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_lanes_with_different_masks_answer_among_themselves(engine):
    x, out = np.random.default_rng(6).integers(0, 6, 64).astype(np.int32), np.zeros(1280, np.int32)
    outcome = simulate(compile_source(GROUPS), (1, 1, 1), (64, 1, 1), [x, out], engine=engine)
    assert outcome.findings == []
    np.testing.assert_array_equal(out, groups_apart(x))


def test_tiles_of_cooperative_groups_answer_apart():
    source = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void k(const int* x, int* y) {
        int v = x[threadIdx.x];
        auto tile = cg::tiled_partition<16>(cg::this_thread_block());
        auto alike = cg::labeled_partition(cg::coalesced_threads(), v);
        y[threadIdx.x] = tile.any(v == 1), y[64 + threadIdx.x] = cg::reduce(tile, v, cg::plus<int>()), y[128 + threadIdx.x] = alike.size();
        y[192 + threadIdx.x] = cg::reduce(alike, (int)threadIdx.x, cg::greater<int>());
    }"""
    thread = np.arange(64)
    x, y = np.where(thread < 32, thread // 8, 1).astype(np.int32), np.zeros(256, np.int32)
    assert simulate(compile_source(source), (1, 1, 1), (64, 1, 1), [x, y]).findings == []
    np.testing.assert_array_equal(y[:64], thread // 16 != 1)
    np.testing.assert_array_equal(y[64:128], np.repeat(x.reshape(4, 16).sum(axis=1), 16))
    np.testing.assert_array_equal(y[128:192], np.where(thread < 32, 8, 32))
    np.testing.assert_array_equal(y[192:], np.where(thread < 32, thread // 8 * 8 + 7, 63))


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
