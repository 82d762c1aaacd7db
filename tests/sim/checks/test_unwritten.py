"""Values that nobody has written are told where they decide something, and nowhere else.

Tests of: helpers.sim.code.declarations, helpers.sim.code.doubts, helpers.sim.machine.undefined
"""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim import native
from helpers.sim.checks import unwritten
from helpers.sim.code.doubts import Ways

SEVERAL = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    float a[2], b[2], acc[2][2];
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < 2; i++) { a[i] = A[i * K + k]; b[i] = B[i * K + k]; }
        for (int i = 0; i < 4; i++)
            acc[i / 2][i % 2] += a[i / 2] * b[i % 2];
    }
    for (int i = 0; i < 4; i++)
        if (threadIdx.y < 4) C[(threadIdx.y * 16 + threadIdx.x) * 4 + i] = acc[i / 2][i % 2];
}"""
NAIVE = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    int row = threadIdx.y, column = threadIdx.x;
    float sum;
    for (int k = 0; k < K; k++)
        sum += A[row * K + k] * B[k * 16 + column];
    C[row * 16 + column] = sum;
}"""
TILE = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    int row = threadIdx.y, column = threadIdx.x;
    float As[16];
    float sum = 0;
    for (int k = 0; k < K; k += 16) {
        As[column] = A[row * K + k + column];
        __syncthreads();
        for (int i = 0; i < 16; i++)
            sum += As[i] * B[(k + i) * 16 + column];
        __syncthreads();
    }
    C[row * 16 + column] = sum;
}"""
PARTLY = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    float acc[4];
    for (int i = 0; i < 3; i++) acc[i] = 0;
    for (int k = 0; k < K; k++)
        for (int i = 0; i < 4; i++)
            acc[i] += A[4 * threadIdx.y % 16 * K + k] * B[k];
    for (int i = 0; i < 4; i++)
        if (threadIdx.y < 4) C[(threadIdx.y * 16 + threadIdx.x) * 4 + i] = acc[i];
}"""
BRANCH = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    int at;
    for (int k = 0; k < K; k++)
        if (A[k] > 100) at = k;
    if (at > 3) C[threadIdx.y * 16 + threadIdx.x] = B[0];
}"""
SOME_THREADS = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    float x;
    if (threadIdx.x < 7) x = A[threadIdx.x];
    __syncthreads();
    C[threadIdx.y * 16 + threadIdx.x] = x;
}"""
THROUGH_SHARED = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    __shared__ float s[16];
    float x;
    if (threadIdx.x < 7) x = A[threadIdx.x];
    __syncthreads();
    if (threadIdx.y == 0) s[threadIdx.x] = x;
    __syncthreads();
    if (threadIdx.x < 7) C[threadIdx.y * 16 + threadIdx.x] = s[threadIdx.x + MORE];
}"""
# Right: what is not written is copied, computed with, exchanged or stored, and then not used.
IF_TWICE = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    bool inside = threadIdx.x < 7;
    float x;
    if (inside) x = A[threadIdx.x];
    __syncthreads();
    float y = __shfl_xor_sync(0xffffffff, x * 2 + 1, 8);
    float4 packed = {x, y, 1, 2};
    if (inside && x > 0) C[threadIdx.y * 16 + threadIdx.x] = x;
    if (threadIdx.x > 8 && threadIdx.x < 15) C[threadIdx.y * 16 + threadIdx.x] = y + packed.z;
}"""
NEXT_TILE = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    float next[2], sum = 0;
    for (int k = 0; k < K; k++) {
        if (k > 0) sum += next[0] * next[1];
        if (k + 1 < K) { next[0] = A[k + 1]; next[1] = B[k + 1]; }
    }
    C[threadIdx.y * 16 + threadIdx.x] = sum;
}"""
LOCAL = """extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    float a[16];
    for (int i = 0; i < K / 2; i++) a[i] = A[i];
    float sum = 0;
    for (int i = 0; i < K / 2; i++) sum += a[(i * 5 + 3) % (K / 2)] * B[i];
    C[threadIdx.y * 16 + threadIdx.x] = sum;
}"""
HALVES = """#include <cuda_fp16.h>
extern "C" __global__ void f(const float* A, const float* B, float* C, int K) {
    __half2 pair;
    pair.x = __float2half(A[threadIdx.x]);
    if (threadIdx.x < 7) pair.y = __float2half(B[threadIdx.x]);
    int bits = *reinterpret_cast<int*>(&pair);
    __half2 other;
    *reinterpret_cast<int*>(&other) = __shfl_sync(0xffffffff, bits, 9);
    C[threadIdx.y * 16 + threadIdx.x] = __half2float(__low2half(other)) + (threadIdx.x < 7 ? __half2float(pair.y) : 0.0f);
}"""


PRODUCT = """extern "C" __global__ void f(float* C, int more) {
    __shared__ __align__(1024) unsigned short s[64 * 16];
    for (int i = threadIdx.x; i < 64 * 16; i += 128) s[i] = 0x3c00;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    float d[4];
    unsigned long long at = (__cvta_generic_to_shared(s) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0;"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(at), "r"(more));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) C[threadIdx.x * 4 + i] = d[i];
}"""


def launched(source: str, K: int = 16):
    A, B = (np.arange(16 * K, dtype=np.float32) % 5 + 1 for _ in range(2))
    return helpers.compile(source).launch(1, (16, 16), (A, B, np.zeros(256, np.float32), np.int32(K)), on="cpu", counters=False)


@pytest.fixture(params=["as usual", "numpy"])
def engine(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native.engine, "available", lambda: False)


@pytest.mark.parametrize(
    "source, line, other, name, advice",
    [
        (NAIVE, 5, 6, "`sum`", "(line 3), for example `= 0`"),
        (TILE, 9, 12, "`As`", "__shared__"),
        (PARTLY, 6, 8, "`acc`", "`acc[4] = {}`"),
        (SEVERAL, 6, 9, "uses `acc` before", "`acc[2][2] = {}`"),
        (BRANCH, 5, None, "`at`", "`= 0`"),
        (SOME_THREADS, 5, None, "`x`", "(line 2)"),
        (THROUGH_SHARED.replace("MORE", "1"), 6, 8, "`x`", "(line 3)"),
    ],
)
def test_what_nobody_wrote_is_told_at_its_lines(source, line, other, name, advice, engine):
    (finding,) = launched(source).findings
    assert (finding.kind, finding.line, finding.other_line) == ("uninitialized", line, other)
    assert name in finding.message and advice in finding.advice


@pytest.mark.parametrize("source", [IF_TWICE, NEXT_TILE, LOCAL, HALVES, THROUGH_SHARED.replace("MORE", "0")])
def test_what_is_not_used_is_not_told(source, engine):
    assert launched(source).findings == []


@pytest.mark.parametrize("more, told", [(0, []), (1, ["`d`"])])
def test_a_product_that_does_not_add_needs_no_accumulators(more, told):
    run = helpers.compile(PRODUCT, arch="sm_90a").launch(1, 128, (np.zeros(512, np.float32), np.int32(more)), on="cpu", counters=False)
    assert [finding.message.split()[3] for finding in run.findings] == told


UNSET = "float u; if (n > 100) u = x[t];"
COPY = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;" ::"r"(AT(s + t)), "l"(x + t) : "memory");'
MATRIX = 'asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(AT(s + 4 * (t % 8))), "r"(__float_as_int(VALUE)) : "memory");'


@pytest.mark.parametrize(("body", "found"), [
    ("((float4*)s)[t] = make_float4(u, 1, 1, 1); __syncthreads(); float4 v = ((float4*)s)[31 - t]; y[t] = v.x;", True),
    ("((float4*)s)[t] = make_float4(u, 1, 1, 1); __syncthreads(); float4 v = ((float4*)s)[31 - t]; y[t] = v.y;", False),
    ("s[t] = u; __syncthreads(); float4 v = ((float4*)s)[t % 8]; y[t] = v.y;", True),
    ("((float4*)y)[t] = make_float4(1, 1, u, 1);", True),
    ("s[t] = 0; __syncthreads(); atomicAdd(&s[t], u); __syncthreads(); y[t] = s[31 - t];", True),
    ("s[t] = 0; __syncthreads(); atomicExch(&s[t], u); __syncthreads(); y[t] = s[31 - t];", True),
    ("atomicAdd(&y[t], u);", True),
    (MATRIX.replace("VALUE", "u") + "__syncthreads(); y[t] = s[31 - t];", True),
    # Written over, in each of these ways, nothing of it is left.
    ("s[t] = u; __syncthreads();" + MATRIX.replace("VALUE", "1.0f") + "__syncthreads(); y[t] = s[31 - t];", False),
    ("s[t] = u; __syncthreads(); atomicExch(&s[t], 1.0f); __syncthreads(); y[t] = s[31 - t];", False),
    ("s[t] = u; __syncthreads();" + COPY + "__syncthreads(); y[t] = s[31 - t];", False),
])  # fmt: skip
def test_a_value_is_followed_whatever_carries_it(body, found):
    source = (
        "#define AT(p) (unsigned)__cvta_generic_to_shared(p)\n"
        'extern "C" __global__ void carry(int n, const float* x, float* y) { __shared__ alignas(16) float s[256]; int t = threadIdx.x;\n'
        f"{UNSET} {body} }}"
    )
    run = helpers.compile(source).launch(1, 32, [np.int32(5), np.ones(256, np.float32), np.zeros(256, np.float32)], on="cpu")
    assert [(finding.kind, finding.line) for finding in run.findings] == ([("uninitialized", 3)] if found else [])


def test_where_a_value_comes_from_is_looked_for_once(monkeypatch):
    """A tile that is read before it is written tells of each register in every step along K and in every shape."""
    unwritten._ways.cache_clear()  # other tests have looked at the same program
    unwritten._uses.cache_clear()
    asked: list[tuple] = []
    looked = unwritten._look_for_first_use
    monkeypatch.setattr(unwritten, "_look_for_first_use", lambda m, op, register: asked.append((op, register)) or looked(m, op, register))
    built: list[object] = []
    monkeypatch.setattr(unwritten, "Ways", lambda doubts, ops: built.append(doubts) or Ways(doubts, ops))
    kernel = helpers.compile(SEVERAL)
    for _ in range(2):
        arrays = [np.ones((64, 16), np.float32) for _ in range(3)]
        assert kernel.launch(1, (16, 4), (*arrays, 16), on="cpu").findings
    assert asked and len(asked) == len(set(asked)) and len(built) == 1
