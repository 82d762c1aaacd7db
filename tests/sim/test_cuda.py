"""CUDA features beyond plain loads and stores, each in a kernel compiled from source and checked against NumPy.

Tests of: helpers.sim.isa.async_copies, helpers.sim.isa.atomic, helpers.sim.isa.calls
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim import Budget, Collect, simulate
from helpers.toolchain.compile import compile_source

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100")


def run(source, grid, block, args, arch="sm_90", options=(), **more):
    more = {"engine": "numpy", "budget": Budget(seconds=20), **more}
    return simulate(compile_source(source, None, arch, options), (grid, 1, 1), (block, 1, 1), args, **more)


def line_of(source, mark):
    return next(number for number, text in enumerate(source.split("\n"), 1) if mark in text)


# --- warps -----------------------------------------------------------------------------------------------------------

SHUFFLE = """
extern "C" __global__ void f(const int* in, int* out) {
    int t = threadIdx.x, x = in[t];
    out[t] = __shfl_sync(~0u, x, t * 7 + 3);
    out[64 + t] = __shfl_up_sync(~0u, x, 3);
    out[128 + t] = __shfl_down_sync(~0u, x, 5, 8);
    out[192 + t] = __shfl_xor_sync(~0u, x, 9, 16);
    if (t & 1) out[256 + t] = __shfl_sync(0xaaaaaaaau, x, 5);
}"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
def test_shuffles(arch):
    x = np.random.default_rng(1).integers(0, 1000, 64).astype(np.int32)
    out = np.zeros(320, np.int32)
    run(SHUFFLE, 1, 64, [x, out], arch)
    w, lane = x.reshape(2, 32), np.arange(32)
    t = np.arange(64).reshape(2, 32)
    assert np.array_equal(out[:64].reshape(2, 32), np.take_along_axis(w, (t * 7 + 3) % 32, 1))
    assert np.array_equal(out[64:128].reshape(2, 32), w[:, np.where(lane < 3, lane, lane - 3)])
    assert np.array_equal(out[128:192].reshape(2, 32), w[:, np.where(lane % 8 + 5 > 7, lane, lane + 5)])
    # xor 9 leaves a segment of 16 never
    assert np.array_equal(out[192:256].reshape(2, 32), w[:, lane ^ 9])
    assert np.array_equal(out[256:].reshape(2, 32)[:, 1::2], np.repeat(w[:, 5:6], 16, axis=1))


VOTES = """
extern "C" __global__ void f(const int* in, unsigned* out) {
    int t = threadIdx.x, x = in[t];
    out[t] = __ballot_sync(~0u, x > 4);
    out[32 + t] = __all_sync(~0u, x >= 0) + 2 * __any_sync(~0u, x == 1000) + 4 * __any_sync(~0u, x == in[3]);
    out[64 + t] = __match_any_sync(~0u, x);
    if (x > 4) out[96 + t] = __activemask();
    out[128 + t] = __reduce_add_sync(~0u, x);
    out[160 + t] = __reduce_max_sync(~0u, x) * 100 + __reduce_min_sync(~0u, x);
    out[192 + t] = __reduce_xor_sync(~0u, (unsigned)x);
    int pred; out[224 + t] = __match_all_sync(~0u, t / 32, &pred) + pred;
}"""


def test_votes_matches_and_reductions():
    x = np.random.default_rng(2).integers(0, 10, 32).astype(np.int32)
    out = np.zeros(256, np.uint32)
    run(VOTES, 1, 32, [x, out])
    big = sum(1 << i for i in range(32) if x[i] > 4)
    assert (out[:32] == big).all() and (out[32:64] == 5).all()
    assert out[64:96].tolist() == [sum(1 << j for j in range(32) if x[j] == x[i]) for i in range(32)]
    assert out[96:128].tolist() == [big if x[i] > 4 else 0 for i in range(32)]
    assert (out[128:160] == x.sum()).all() and (out[160:192] == x.max() * 100 + x.min()).all()
    assert (out[192:224] == np.bitwise_xor.reduce(x)).all() and (out[224:] == 0).all()  # 0xffffffff + 1


def test_partial_warp_and_reduction_tree():
    source = """
    extern "C" __global__ void f(const float* in, float* out) {
        __shared__ float part[32];
        float v = in[blockIdx.x * blockDim.x + threadIdx.x];
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x == 0) { float s = 0; for (int i = 0; i < blockDim.x / 32; i++) s += part[i]; out[blockIdx.x] = s; }
    }"""
    x = np.random.default_rng(1).integers(0, 100, (5, 256)).astype(np.float32)
    out = np.zeros(5, np.float32)
    assert run(source, 5, 256, [x, out]).findings == []
    assert np.array_equal(out, x.sum(axis=1))


# --- atomics ---------------------------------------------------------------------------------------------------------

ATOMICS = """
extern "C" __global__ void f(const int* in, int* sum, unsigned* other, float* fsum, double* dsum, int* old, unsigned long long* wide) {
    __shared__ int counts[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    if (threadIdx.x < 8) counts[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&counts[x & 7], 1);
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&sum[threadIdx.x], counts[threadIdx.x]);
    atomicMax((int*)&other[0], x); atomicMin((int*)&other[1], x); atomicOr(&other[2], 1u << (x & 31)); atomicXor(&other[3], x);
    atomicInc(&other[4], 6); atomicDec(&other[5], 6); atomicExch(&other[6], 77);
    atomicAdd(fsum, 0.5f); atomicAdd(dsum, 0.25);
    old[i] = atomicAdd(&sum[8], 1);
    atomicAdd(wide, (unsigned long long)x << 32);
    unsigned assumed, seen = other[7];  // a compare-and-swap loop
    do { assumed = seen; seen = atomicCAS(&other[7], assumed, assumed + x); } while (assumed != seen);
}"""


def test_atomics():
    x = np.random.default_rng(2).integers(0, 1000, 256).astype(np.int32)
    total, other = np.zeros(9, np.int32), np.array([0, 2000, 0, 0, 0, 0, 0, 0], np.uint32)
    fsum, dsum, old, wide = np.zeros(1, np.float32), np.zeros(1), np.zeros(256, np.int32), np.zeros(1, np.uint64)
    outcome = run(ATOMICS, 2, 128, [x, total, other, fsum, dsum, old, wide])
    assert outcome.findings == []
    assert np.array_equal(total[:8], np.bincount(x & 7, minlength=8)) and total[8] == 256
    assert other[0] == x.max() and other[1] == x.min() and other[3] == np.bitwise_xor.reduce(x) and other[6] == 77
    assert other[2] == np.bitwise_or.reduce(np.uint32(1) << (x & 31).astype(np.uint32))
    inc = dec = 0
    for _ in range(256):
        inc = 0 if inc >= 6 else inc + 1
        dec = 6 if dec == 0 or dec > 6 else dec - 1
    assert other[4] == inc and other[5] == dec and other[7] == x.sum()
    assert fsum[0] == 128 and dsum[0] == 64 and sorted(old) == list(range(256)) and wide[0] == int(x.sum()) << 32


def test_half_atomics():
    source = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void f(__half* h, __half2* h2, __nv_bfloat162* b2) {
        atomicAdd(h, __float2half(1.0f)); atomicAdd(h2, __floats2half2_rn(1.0f, 2.0f)); atomicAdd(b2, __floats2bfloat162_rn(1.0f, 0.5f));
    }"""
    h, h2, b2 = np.zeros(2, np.float16), np.zeros(2, np.float16), np.zeros(2, np.uint16)
    run(source, 1, 64, [h, h2, b2])
    assert h[0] == 64 and h2.tolist() == [64, 128]
    assert (b2.astype(np.uint32) << 16).view(np.float32).tolist() == [64, 32]


@pytest.mark.slow
def test_lock_and_flag_between_blocks():
    source = """
    extern "C" __global__ void f(int* lock, volatile int* value, volatile int* flag, int* out) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) { int v = *value; *value = v + 1; __threadfence(); atomicExch(lock, 0); done = true; }
        }
        if (threadIdx.x == 0) {  // blocks go on in turn, the last one first
            while (*flag != gridDim.x - 1 - blockIdx.x) ;
            out[blockIdx.x] = *flag; __threadfence(); *flag = *flag + 1;
        }
    }"""
    lock, value, flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(4, np.int32)
    run(source, 4, 64, [lock, value, flag, out])
    assert value[0] == 256 and out.tolist() == [3, 2, 1, 0]


# --- functions, printing, memory spaces ------------------------------------------------------------------------------

SPACES = """
__constant__ float coefficients[4] = {1.f, 2.f, 3.f, 4.f};
__device__ int counter = 3;
__device__ float table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ __noinline__ float twice(float x, int n) { float s = 0; for (int i = 0; i < n; i++) s += x; return s; }
__device__ __noinline__ void swap(float* a, float* b) { float t = *a; *a = *b; *b = t; }
struct P { int a; float b[3]; char c; };
extern __shared__ float dynamic[];
extern "C" __global__ void f(const int* in, float* out, P p) {
    int t = threadIdx.x;
    float local[16];
    for (int i = 0; i < 16; i++) local[i] = i * t;
    dynamic[t] = local[in[t] & 15] + coefficients[t & 3];
    __syncthreads();
    float x = dynamic[t ^ 1], y = table[t & 1][t % 3];
    if (t & 4) swap(&x, &y);
    out[t] = twice(x, t & 7) + 100 * y + p.b[t % 3] + p.a + p.c;
    if (t == 0) counter += 1;
    if (t == 1) out[64] = sizeof(P);
}"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_spaces_and_calls(arch):
    x = np.random.default_rng(4).integers(0, 16, 64).astype(np.int32)
    out = np.zeros(65, np.float32)
    p = np.array([7], np.int32).tobytes() + np.array([1.5, 2.5, 3.5], np.float32).tobytes() + b"\x05\0\0\0"
    outcome = run(SPACES, 1, 64, [x, out, p], arch, shared=256)
    t = np.arange(64)
    shared = x * t + np.array([1, 2, 3, 4])[t & 3]
    a, b = shared[t ^ 1].astype(float), np.array([[1, 2, 3], [4, 5, 6]])[t & 1, t % 3].astype(float)
    a, b = np.where(t & 4, b, a), np.where(t & 4, a, b)
    expected = a * (t & 7) + 100 * b + np.array([1.5, 2.5, 3.5])[t % 3] + 12
    assert np.array_equal(out[:64], expected.astype(np.float32)) and out[64] == 20
    assert outcome.findings == []


def test_switch_with_a_jump_table():
    cases = "\n".join(f"case {i}: x = x * {i + 3} + {i}; break;" for i in range(12))
    source = f'extern "C" __global__ void f(const int* in, int* out) {{ int t = threadIdx.x, x = t; switch (in[t]) {{ {cases} default: x = -1; }} out[t] = x; }}'
    x = np.arange(64, dtype=np.int32) % 15
    out = np.zeros(64, np.int32)
    run(source, 1, 64, [x, out])
    assert out.tolist() == [t * (c + 3) + c if c < 12 else -1 for t, c in enumerate(x)]


def test_jump_table_instruction():
    from tests.sim.ptx_text import kernel

    body = """
    .reg .b32 %r<4>; .reg .b64 %d<3>;
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r1, 4, %d1;
    ts: .branchtargets A, B, C, D;
    brx.idx %r2, ts;
    A: mov.u32 %r3, 10; bra E;
    B: mov.u32 %r3, 11; bra E;
    C: mov.u32 %r3, 12; bra E;
    D: mov.u32 %r3, 13;
    E: st.global.u32 [%d2], %r3; ret;"""
    out = np.zeros(32, np.int32)
    simulate(kernel(body), (1, 1, 1), (32, 1, 1), [out], engine="numpy")
    assert out.tolist() == [10 + t % 4 for t in range(32)]


def test_printf(capsys):
    source = r"""
    extern "C" __global__ void f(int n) {
        if (threadIdx.x < n) printf("thread %d of %u: %5.2f|%-4s|%c %llx %%\n", threadIdx.x, blockDim.x, threadIdx.x * 0.5, "ab", 'z', 1ull << 40);
    }"""
    outcome = run(source, 1, 32, [2])
    expected = "thread 0 of 32:  0.00|ab  |z 10000000000 %\nthread 1 of 32:  0.50|ab  |z 10000000000 %\n"
    assert outcome.printed == expected and capsys.readouterr().out == expected


def test_assert_names_the_condition_and_the_thread():
    source = '#include <assert.h>\nextern "C" __global__ void f(int n) {\n    assert(threadIdx.x < n);\n}'
    run(source, 1, 32, [32])
    with pytest.raises(RunError, match=r"threadIdx.x < n.*thread \(20, 0, 0\)") as caught:
        run(source, 1, 32, [20])
    assert caught.value.line == 3


def test_trap():
    with pytest.raises(RunError, match="trap"):
        run('extern "C" __global__ void f() { __trap(); }', 1, 32, [])


def test_recursion_is_refused_with_a_sentence():
    source = """
    __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) * 3; }
    extern "C" __global__ void f(int* out) { out[0] = fib(out[1]); }"""
    with pytest.raises(RunError, match="calls itself"):
        run(source, 1, 1, [np.zeros(2, np.int32)])


# --- barriers and asynchronous copies --------------------------------------------------------------------------------


def test_named_barriers_with_producers_and_consumers():
    source = """
    extern "C" __global__ void f(const float* in, float* out, int n) {
        __shared__ float s[2][64];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (warp < 2) {
            for (int i = 0; i < n; i++) {
                asm volatile("bar.sync %0, 128;" :: "r"(1 + (i & 1)) : "memory");  // wait until the slot is free
                s[i & 1][threadIdx.x] = in[i * 64 + threadIdx.x];
                asm volatile("bar.arrive %0, 128;" :: "r"(3 + (i & 1)) : "memory");
            }
        } else {
            int t = threadIdx.x - 64;
            float sum = 0;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
            asm volatile("bar.arrive 2, 128;" ::: "memory");
            for (int i = 0; i < n; i++) {
                asm volatile("bar.sync %0, 128;" :: "r"(3 + (i & 1)) : "memory");
                sum += s[i & 1][63 - t];
                if (i + 2 < n) asm volatile("bar.arrive %0, 128;" :: "r"(1 + (i & 1)) : "memory");
            }
            out[t] = sum;
        }
    }"""
    x = np.random.default_rng(6).integers(0, 9, (7, 64)).astype(np.float32)
    out = np.zeros(64, np.float32)
    outcome = run(source, 1, 128, [x, out, 7])
    assert np.array_equal(out, x[:, ::-1].sum(axis=0)) and outcome.findings == []


TURNS = """
extern "C" __global__ void f(int* out, int n) {
    __shared__ int turn;
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    if (warp == 1) asm volatile("bar.arrive 1, 64;" ::: "memory");  // warp 0 begins
    for (int i = 0; i < n; i++) {
        asm volatile("bar.sync %0, 64;" :: "r"(1 + warp) : "memory");
        if (threadIdx.x % 32 == 0) out[2 * i + warp] = turn++;
        asm volatile("bar.arrive %0, 64;" :: "r"(2 - warp) : "memory");
    }
}"""


def test_the_last_arrival_of_two_that_take_turns_is_waited_for_by_nobody():
    out = np.full(10, -1, np.int32)
    assert run(TURNS, 1, 64, [out, 5]).findings == []
    assert out.tolist() == list(range(10))


def test_who_waits_for_an_arrival_that_was_used_up_is_stuck():
    first = 'asm volatile("bar.arrive 1, 64;" ::: "memory");  // warp 0 begins'
    with pytest.raises(RunError, match="32 of 64 threads of block .* wait at barrier 1, for 64 threads, that the others never reach"):
        run(
            TURNS.replace(f"if (warp == 1) {first}", f"if (warp == 1) {{ {first.split('//')[0]} {first.split('//')[0]} }}"),
            1,
            64,
            [np.zeros(10, np.int32), 5],
        )


COPY = """
#include <cuda_pipeline.h>
extern "C" __global__ void f(const float* in, float* out) {
    __shared__ __align__(16) float s[2][128];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[0][4 * t], &in[4 * t], 16);  // first
    __pipeline_commit();
    __pipeline_memcpy_async(&s[1][4 * t], &in[128 + 4 * t], 16, t == 3 ? 8 : 0);  // second
    __pipeline_commit();
    WAIT
    BARRIER
    out[t] = s[0][127 - t];  // read
    __pipeline_wait_prior(0);
    __syncthreads();
    out[32 + t] = s[1][t];
}"""


@pytest.mark.parametrize(
    ("wait", "barrier", "kinds"),
    [
        ("__pipeline_wait_prior(1);", "__syncthreads();", []),
        ("", "__syncthreads();", ["missing-wait"]),
        ("__pipeline_wait_prior(2);", "__syncthreads();", ["missing-wait"]),
        ("__pipeline_wait_prior(1);", "", ["race"]),
    ],
)
def test_asynchronous_copies_land_when_waited_for(wait, barrier, kinds):
    source = COPY.replace("WAIT", wait).replace("BARRIER", barrier)
    x = np.arange(1, 257, dtype=np.float32)
    out = np.zeros(64, np.float32)
    outcome = run(source, 1, 32, [x, out])
    assert [finding.kind for finding in outcome.findings] == kinds
    landed = "1" in wait
    assert np.array_equal(out[:32], x[127 - np.arange(32)] if landed else np.zeros(32))
    expected = x[128:160].copy()
    expected[14:16] = 0  # thread 3 filled its last 8 bytes with zeros
    assert np.array_equal(out[32:], expected)
    if kinds:
        assert outcome.findings[0].line == line_of(source, "// read") and outcome.findings[0].other_line == line_of(source, "// first")


GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void f(const float* in, float* out) {
    extern __shared__ float s[];
    auto g = cg::this_thread_block();
    auto w = cg::tiled_partition<32>(g);
    auto four = cg::tiled_partition<4>(g);
    cg::memcpy_async(g, s, in, sizeof(float) * 256);
    cg::wait(g);
    float v = s[255 - g.thread_rank()];
    out[threadIdx.x] = cg::reduce(w, v, cg::plus<float>());
    out[256 + threadIdx.x] = four.shfl(v, 2);
    if (threadIdx.x & 1) { auto c = cg::coalesced_threads(); out[512 + threadIdx.x] = c.size() * 100 + c.thread_rank(); }
    g.sync();
}"""


@pytest.mark.parametrize("arch", ARCHS)
def test_cooperative_groups(arch):
    x = np.random.default_rng(7).integers(0, 50, 256).astype(np.float32)
    out = np.zeros(768, np.float32)
    outcome = run(GROUPS, 1, 256, [x, out], arch, shared=1024)
    v = x[::-1]
    assert np.array_equal(out[:256], np.repeat(v.reshape(8, 32).sum(axis=1), 32))
    assert np.array_equal(out[256:512], np.repeat(v.reshape(64, 4)[:, 2], 4))
    assert np.array_equal(out[512:][1::2], np.tile(1600 + np.arange(16), 8)) and outcome.findings == []


PIPELINE = """
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void f(const float* in, float* out, int n) {
    __shared__ float s[2][128];
    auto block = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    pipe.producer_acquire(); cuda::memcpy_async(block, s[0], in, sizeof(float) * 128, pipe); pipe.producer_commit();
    for (int i = 1; i <= n; i++) {
        if (i < n) { pipe.producer_acquire(); cuda::memcpy_async(block, s[i & 1], in + i * 128, sizeof(float) * 128, pipe); pipe.producer_commit(); }
        pipe.consumer_wait(); sum += s[(i - 1) & 1][127 - threadIdx.x]; pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}"""

BARRIER = """
#include <cuda/barrier>
extern "C" __global__ void f(const float* in, float* out, int n) {
    __shared__ float s[128];
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n; i++) {
        s[threadIdx.x] = in[i * 128 + threadIdx.x];
        auto token = bar.arrive(); bar.wait(std::move(token));
        sum += s[127 - threadIdx.x];
        bar.arrive_and_wait();
    }
    out[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", [PIPELINE, BARRIER], ids=["pipeline", "barrier"])
def test_pipeline_and_barrier_headers(source, arch):
    x = np.random.default_rng(8).integers(0, 9, (4, 128)).astype(np.float32)
    out = np.zeros(128, np.float32)
    outcome = run(source, 1, 128, [x, out, 4], arch)
    assert np.array_equal(out, x[:, ::-1].sum(axis=0))
    assert outcome.findings == []


def test_mbarrier_that_never_completes():
    source = """
    #include <cuda/barrier>
    extern "C" __global__ void f() {
        using barrier = cuda::barrier<cuda::thread_scope_block>;
        __shared__ barrier bar;
        if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
        __syncthreads();
        bar.arrive_and_wait();  // one arrival is missing
    }"""
    with pytest.raises(RunError, match="never completed") as caught:
        run(source, 1, 32, [])
    assert caught.value.line == line_of(source, "one arrival is missing")


def test_grid_of_blocks_that_wait_for_each_other():
    source = """
    extern "C" __global__ void f(volatile int* arrived, int* count, int* out) {
        __shared__ int s;
        if (threadIdx.x == 0) { __threadfence(); atomicAdd(count, 1); while (*(volatile int*)count < gridDim.x) ; s = *count; }
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = s;
    }"""
    count, out = np.zeros(1, np.int32), np.zeros(64 * 300, np.int32)
    run(source, 300, 64, [np.zeros(1, np.int32), count, out])
    assert (out == 300).all()


# --- packed halves ---------------------------------------------------------------------------------------------------


def test_half2_arithmetic():
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void f(const __half2* a, const __half2* b, __half2* c) {
        int i = threadIdx.x;
        c[i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
        c[32 + i] = __hmax2(a[i], b[i]);
        c[64 + i] = __hmul2(a[i], __hneg2(b[i]));
        c[96 + i] = h2sqrt(__habs2(a[i]));
    }"""
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(64).astype(np.float16) for _ in range(2))
    c = np.zeros(256, np.float16)
    run(source, 1, 32, [a, b, c])
    wide = a.astype(np.float64) * b.astype(np.float64) + (a + b).astype(np.float64)
    assert np.array_equal(c[:64], wide.astype(np.float16))
    assert np.array_equal(c[64:128], np.maximum(a, b)) and np.array_equal(c[128:192], -(a * b))
    assert np.allclose(c[192:].astype(float), np.sqrt(np.abs(a.astype(float))), rtol=2e-3)


def test_flush_to_zero_flag():
    source = 'extern "C" __global__ void f(float* x) { x[threadIdx.x] = x[threadIdx.x] * 0.5f + 0.0f; }'
    x = np.array([1e-38, -1e-38, 1.2e-38, 4.0], np.float32)
    kept, flushed = x.copy(), x.copy()
    run(source, 1, 4, [kept])
    run(source, 1, 4, [flushed], options=("-ftz=true",))
    assert np.array_equal(kept, x * np.float32(0.5))
    assert flushed.tolist() == [0.0, 0.0, 0.0, 2.0]


def test_counters_can_be_left_out():
    out = np.zeros(320, np.int32)
    outcome = run(SHUFFLE, 1, 64, [np.arange(64, dtype=np.int32), out], collect=Collect(counters=False, findings=False))
    assert outcome.counters == {} and outcome.findings == []


def test_pairs_of_float_in_one_register():
    source = """
    extern "C" __global__ void f(const unsigned long long* a, unsigned long long* d) {
        int i = threadIdx.x;
        asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(d[i]) : "l"(a[i]), "l"(a[32 + i]), "l"(a[64 + i]));
    }"""
    x = np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32)
    out = np.zeros(64, np.float32)
    run(source, 1, 32, [x.reshape(-1).view(np.uint64), out.view(np.uint64)], "sm_100")
    exact = x[0].astype(np.longdouble) * x[1].astype(np.longdouble) + x[2].astype(np.longdouble)
    assert np.array_equal(out, exact.astype(np.float32))


def test_addresses_as_inline_assembly_writes_them():
    source = """
    extern "C" __global__ void f(float* x) {
        asm volatile("{ .reg.f32 a; .reg .b64 p; add.u64 p, %0, 8; ld.global.f32 a, [ p + 4 ]; st.global.f32 [p+-8], a; st.global.f32 [%0 + 0x4], a; }" :: "l"(x) : "memory");
    }"""
    x = np.array([1, 2, 3, 4], np.float32)
    run(source, 1, 1, [x])
    assert x.tolist() == [4, 4, 3, 4]


def test_a_named_barrier_that_gets_too_few_says_how_many_it_is_for():
    """Whoever writes bar.sync has no __syncthreads() to move."""
    source = '__global__ void k(int* o) { if (threadIdx.x < 64) asm volatile("bar.sync 1, 96;" ::: "memory"); o[threadIdx.x] = 1; __syncthreads(); }'
    with pytest.raises(
        RunError, match="64 of 128 threads of block .* wait at barrier 1, for 96 threads, that the others never reach"
    ) as told:
        run(source, 1, 128, [np.zeros(128, np.int32)])
    assert "__syncthreads" not in told.value.findings[-1].advice
