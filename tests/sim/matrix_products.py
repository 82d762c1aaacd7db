"""Whole matrix products on tensor cores, from wmma to TMA feeding wgmma: the same for the machine and for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers import tensor_map
from tests.sim.matrix_cases import C_NAMES, INTEGERS, STORED, data


@dataclass(frozen=True)
class Gemm:
    """A whole matrix product: C (m x n) = A (m x k) B, B given as it is or transposed."""

    name: str
    source: str
    symbol: str
    a: str
    d: str
    tile: tuple[int, int]
    threads: int
    step: int  # products that one instruction adds
    transposed: bool = False
    shared: int = 0
    arch: str = "sm_80"

    def arguments(self, m: int, n: int, k: int, seed: int = 0, wild: bool = False) -> list:
        b = data(self.a, (n, k) if self.transposed else (k, n), seed + 1, wild)
        return [m, n, k, data(self.a, (m, k), seed, wild), b, np.zeros((m, n), STORED[self.d])]

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        return n // self.tile[1], m // self.tile[0], 1


WMMA_GEMM = """
#include <mma.h>
using namespace nvcuda;
// 64 x 64 of C per block of four warps; rows of the tiles are 8 elements longer than they need to be.
template <class F, class T, class D, int K1>
__device__ void body(int M, int N, int K, const T* A, const T* B, D* C) {
    constexpr int BK = 32, SKEW = 16 / sizeof(T);
    __shared__ __align__(32) T As[64][BK + SKEW];
    __shared__ __align__(32) T Bs[BK][64 + SKEW];
    const int warp = threadIdx.x / 32, row = blockIdx.y * 64, col = blockIdx.x * 64;
    const int wr = warp / 2 * 32, wc = warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, K1, D> c[2][2];
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) wmma::fill_fragment(c[i][j], D(0));
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < 64 * BK; i += 128) As[i / BK][i % BK] = A[(row + i / BK) * K + k0 + i % BK];
        for (int i = threadIdx.x; i < 64 * BK; i += 128) Bs[i / 64][i % 64] = B[(k0 + i / 64) * N + col + i % 64];
        __syncthreads();
        for (int k = 0; k < BK; k += K1) {
            wmma::fragment<wmma::matrix_a, 16, 16, K1, F, wmma::row_major> a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, K1, F, wmma::row_major> b[2];
            for (int i = 0; i < 2; i++) wmma::load_matrix_sync(a[i], &As[wr + 16 * i][k], BK + SKEW);
            for (int j = 0; j < 2; j++) wmma::load_matrix_sync(b[j], &Bs[k][wc + 16 * j], 64 + SKEW);
            for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) wmma::mma_sync(c[i][j], a[i], b[j], c[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++)
        wmma::store_matrix_sync(&C[(row + wr + 16 * i) * N + col + wc + 16 * j], c[i][j], N, wmma::mem_row_major);
}
"""


def _wmma_gemm(a: str, d: str, k: int) -> Gemm:
    kind = "wmma::precision::tf32" if a == "tf32" else C_NAMES[a]
    t, r = C_NAMES[a], C_NAMES[d]
    source = (
        WMMA_GEMM + f'extern "C" __global__ void f(int M, int N, int K, const {t}* A, const {t}* B, {r}* C) {{ '
        f"body<{kind}, {t}, {r}, {k}>(M, N, K, A, B, C); }}\n"
    )
    return Gemm(f"wmma-{a}", source, "f", a, d, (64, 64), 128, k)


MMA_GEMM = """
// 64 x 64 of C per block of four warps, A and B^T in tiles of 64 rows of 128 bytes. The 16-byte pieces of a row are stored
// SWIZZLE ? exchanged with each other : in order, PITCH bytes from row to row.
#ifndef PITCH
#define PITCH 128
#endif
#ifndef SWIZZLE
#define SWIZZLE 1
#endif
__device__ int place(int row, int piece) { return row * PITCH + 16 * (SWIZZLE ? piece ^ (row & 7) : piece); }
__device__ void load4(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
extern "C" __global__ void f(int M, int N, int K, const unsigned char* A, const unsigned char* B, WORD* C) {
    __shared__ __align__(128) unsigned char As[64 * PITCH], Bs[64 * PITCH];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, row = blockIdx.y * 64, col = blockIdx.x * 64;
    const int wr = warp / 2 * 32, wc = warp % 2 * 32, bytes = K * SIZE;
    const unsigned a0 = (unsigned)__cvta_generic_to_shared(As), b0 = (unsigned)__cvta_generic_to_shared(Bs);
    WORD c[2][4][4] = {};
    for (int k0 = 0; k0 < bytes; k0 += 128) {
        for (int i = t; i < 64 * 8; i += 128) {
            const int r = i / 8, p = i % 8;
            *(uint4*)&As[place(r, p)] = *(const uint4*)&A[(size_t)(row + r) * bytes + k0 + 16 * p];
            *(uint4*)&Bs[place(r, p)] = *(const uint4*)&B[(size_t)(col + r) * bytes + k0 + 16 * p];
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) {
            unsigned a[2][4], b[2][4];
            for (int i = 0; i < 2; i++) load4(a[i], a0 + place(wr + 16 * i + lane % 16, 2 * k + lane / 16));
            for (int j = 0; j < 2; j++) load4(b[j], b0 + place(wc + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) {
                    WORD(&d)[4] = c[i][j];
                    const unsigned *x = a[i], *y = &b[j / 2][j % 2 * 2];
                    asm volatile("mma.sync.aligned." MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3])
                                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
                }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++)
                C[(size_t)(row + wr + 16 * i + lane / 4 + e / 2 * 8) * N + col + wc + 8 * j + lane % 4 * 2 + e % 2] = c[i][j][e];
}
"""


def mma_gemm(a: str, pitch: int = 128, swizzle: int = 1) -> Gemm:
    """The product with ldmatrix and mma.sync, for elements of any type."""
    size = np.dtype(STORED[a]).itemsize
    d = "s32" if a in INTEGERS else "f32"
    k = 32 // size
    defines = {"PITCH": pitch, "SWIZZLE": swizzle, "SIZE": size, "WORD": C_NAMES[d], "MMA": f'"m16n8k{k}.row.col.{d}.{a}.{a}.{d}"',
               "CONSTRAINT(x)": f'"+{"r" if d == "s32" else "f"}"(x)'}  # fmt: skip
    source = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + MMA_GEMM
    arch = "sm_89" if a in ("e4m3", "e5m2") else "sm_80"
    return Gemm(f"mma-{a}-{pitch}-{'swizzled' if swizzle else 'plain'}", source, "f", a, d, (64, 64), 128, k, transposed=True, arch=arch)


def products(n: int, kind: str) -> str:
    """CUDA functions: `multiply(d, da, db)` starts one wgmma of 64 x n with f32 accumulators; its fence, commit, wait, descriptor."""
    count = n // 2
    d = ", ".join(f"%{i}" for i in range(count))
    return f"""
__device__ __forceinline__ void multiply(float (&d)[{count}], unsigned long long da, unsigned long long db) {{
    asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{d}}}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"
        : {", ".join(f'"+f"(d[{i}])' for i in range(count))} : "l"(da), "l"(db));
}}
__device__ __forceinline__ void arrive() {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }}
__device__ __forceinline__ void commit() {{ asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }}
template <int N> __device__ __forceinline__ void wait() {{ asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }}
// Rows of 128 bytes, swizzled; 8 rows are 1024 bytes.
__device__ __forceinline__ unsigned long long describe(unsigned at) {{
    return (at & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}}
"""


WGMMA_GEMM = """
// 128 x 128 of C per block of two warpgroups; K in tiles of 64, STAGES of them in shared memory. LAG: products of how many
// tiles stay in flight. With COPY tiles come by cp.async, else by ordinary stores.
__device__ __forceinline__ int place(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }
extern "C" __global__ void f(int M, int N, int K, const char* A, const char* B, float* C) {
    extern __shared__ __align__(1024) char memory[];
    const int t = threadIdx.x, row = blockIdx.y * 128, col = blockIdx.x * 128, tiles = K / 64;
    const unsigned base = (unsigned)__cvta_generic_to_shared(memory);
    float d[64] = {};
    auto load = [&](int tile) {
        if (tile < tiles)
            for (int i = t; i < 2048; i += 256) {
                const int matrix = i / 1024, r = i / 8 % 128, p = i % 8, to = tile % STAGES * 32768 + matrix * 16384 + place(r, p);
                const char* from = (matrix ? B + (size_t)(col + r) * K * 2 : A + (size_t)(row + r) * K * 2) + tile * 128 + p * 16;
                if (COPY) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + to), "l"(from) : "memory");
                else *(uint4*)(memory + to) = *(const uint4*)from;
            }
        if (COPY) asm volatile("cp.async.commit_group;" ::: "memory");
    };
    constexpr int AHEAD = STAGES - 1 - LAG;
    for (int tile = 0; tile < AHEAD; tile++) load(tile);
    for (int tile = 0; tile < tiles; tile++) {
        if (COPY) asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        if (AHEAD) load(tile + AHEAD);
        const unsigned a = base + tile % STAGES * 32768 + t / 128 * 8192, b = base + tile % STAGES * 32768 + 16384;
        arrive();
        for (int k = 0; k < 4; k++) multiply(d, describe(a + 32 * k), describe(b + 32 * k));
        commit();
        wait<LAG>();
    }
    wait<0>();
    const int r = row + t / 32 * 16 + t % 32 / 4, c = col + t % 4 * 2;
    for (int i = 0; i < 64; i++) C[(size_t)(r + i / 2 % 2 * 8) * N + c + i / 4 * 8 + i % 2] = d[i];
}
"""


def wgmma_gemm(copy: int, stages: int, lag: int) -> Gemm:
    """The product with wgmma, of bf16, B transposed."""
    defines = f"#define COPY {copy}\n#define STAGES {stages}\n#define LAG {lag}\n"
    name = f"wgmma-{'copies' if copy else 'stores'}-{stages}-stages-{lag}-in-flight"
    return Gemm(name, defines + products(128, "bf16") + WGMMA_GEMM, "f", "bf16", "f32", (128, 128), 256, 16, True, stages * 32768, "sm_90a")


TMA_GEMM = """
#include <cuda.h>
// 128 x 128 of C per block of three warpgroups: the first gives its registers away and fetches tiles by TMA, the others multiply.
constexpr int STAGES = 3;
__device__ __forceinline__ unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait_for(unsigned barrier, int parity) {
    asm volatile("{\\n.reg .pred p;\\nagain:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@!p bra again;\\n}"
        ::"r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int k, int row, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
}
extern "C" __global__ void __launch_bounds__(384) f(int N, int K, const __grid_constant__ CUtensorMap A,
                                                    const __grid_constant__ CUtensorMap B, float* C) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
    const int t = threadIdx.x, row = blockIdx.y * 128, col = blockIdx.x * 128, tiles = K / 64;
    if (t == 0)
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(full + i)) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(shared(empty + i)) : "memory");
        }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == 0)
            for (int tile = 0; tile < tiles; tile++) {
                const int s = tile % STAGES;
                wait_for(shared(empty + s), tile / STAGES % 2 ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 32768;" ::"r"(shared(full + s)) : "memory");
                fetch(shared(memory + s * 32768), &A, tile * 64, row, shared(full + s));
                fetch(shared(memory + s * 32768 + 16384), &B, tile * 64, col, shared(full + s));
            }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64] = {};
    const int u = t - 128;
    for (int tile = 0; tile < tiles; tile++) {
        const int s = tile % STAGES;
        wait_for(shared(full + s), tile / STAGES % 2);
        const unsigned a = shared(memory + s * 32768) + u / 128 * 8192, b = shared(memory + s * 32768 + 16384);
        arrive();
        for (int k = 0; k < 4; k++) multiply(d, describe(a + 32 * k), describe(b + 32 * k));
        commit();
        wait<LAG>();
        if (u % 128 == 0 && tile >= LAG)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(empty + (tile - LAG) % STAGES)) : "memory");
    }
    wait<0>();
    const int r = row + u / 32 * 16 + u % 32 / 4, c = col + u % 4 * 2;
    for (int i = 0; i < 64; i++) C[(size_t)(r + i / 2 % 2 * 8) * N + c + i / 4 * 8 + i % 2] = d[i];
}
"""


def tma_gemm(lag: int) -> str:
    """The product of bf16 with TMA, wgmma and one warpgroup that only fetches; LAG tiles' products stay in flight."""
    return f"#define LAG {lag}\n" + products(128, "bf16") + TMA_GEMM


def tma_arguments(m: int, n: int, k: int) -> list:
    """[n, k, map of A, map of B^T, C], and A and B^T."""
    a, b = data("bf16", (m, k), 1), data("bf16", (n, k), 2)
    maps = [tensor_map(matrix, (128, 64), "128B") for matrix in (a, b)]
    return [n, k, *maps, np.zeros((m, n), np.float32)], a, b


WGMMA_GEMMS = (wgmma_gemm(0, 2, 0), wgmma_gemm(1, 3, 0), wgmma_gemm(1, 4, 1))
GEMMS = (
    _wmma_gemm("f16", "f32", 16), _wmma_gemm("f16", "f16", 16), _wmma_gemm("bf16", "f32", 16), _wmma_gemm("tf32", "f32", 8),
    _wmma_gemm("s8", "s32", 16), *(mma_gemm(a) for a in ("f16", "bf16", "tf32", "s8", "e4m3")),
)  # fmt: skip
