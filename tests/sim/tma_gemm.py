"""A matrix product fed by the tensor memory accelerator: a warp that only copies, stages between mbarriers, FMA on CUDA cores,
the result stored by a bulk copy. For float32 and bfloat16, any M; N and K such that rows are multiples of 16 bytes.

Run by test_bulk.py in the machine and by tests/gpu/test_tensor_map.py on a GPU.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import helpers

SOURCE = r"""
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
namespace ptx = cuda::ptx;

constexpr int BM = 64, BN = 64, STAGES = 3, CONSUMERS = 128;
constexpr int ROW = 128;                // bytes of a row of A's tile: the span of the swizzle
constexpr int TILE = 64 * ROW;          // bytes of a tile of A, and of one of B

template <typename T>
__global__ void __launch_bounds__(CONSUMERS + 32) gemm(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
                                                       const __grid_constant__ CUtensorMap C, int K) {
    constexpr int BK = ROW / sizeof(T);
    extern __shared__ __align__(1024) unsigned char smem[];
    unsigned char *As = smem, *Bs = smem + STAGES * TILE;
    float* Cs = (float*)(smem + 2 * STAGES * TILE);
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int steps = (K + BK - 1) / BK, row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            ptx::mbarrier_init(&full[s], 1);
            ptx::mbarrier_init(&empty[s], CONSUMERS / 32);
        }
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {     // the warp that copies: one thread of it
        if (threadIdx.x > CONSUMERS) return;
        for (int t = 0; t < steps; t++) {
            const int s = t % STAGES, corner_a[2] = {t * BK, row0}, corner_b[2] = {column0, t * BK};
            while (!ptx::mbarrier_try_wait_parity(&empty[s], (t / STAGES & 1) ^ 1)) {}  // @empty
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 2 * TILE);
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, As + s * TILE, &A, corner_a, &full[s]);  // @load A
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, Bs + s * TILE, &B, corner_b, &full[s]);
        }
        return;
    }
    float sums[4][8] = {};
    const int ty = threadIdx.x / 8 * 4, tx = threadIdx.x % 8;
    for (int t = 0; t < steps; t++) {
        const int s = t % STAGES;
        while (!ptx::mbarrier_try_wait_parity(&full[s], t / STAGES & 1)) {}  // @full
        const unsigned char* a = As + s * TILE;
        const T* b = (const T*)(Bs + s * TILE);
        for (int k = 0; k < BK; k++) {
            float x[4], y[8];
            for (int i = 0; i < 4; i++) {  // the 16-byte chunks of row r lie at their number XOR r % 8
                const int row = ty + i, byte = k * sizeof(T);
                x[i] = float(*(const T*)(a + row * ROW + (byte ^ (row & 7) << 4)));
            }
            for (int j = 0; j < 8; j++) y[j] = float(b[k * BN + tx + 8 * j]);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 8; j++) sums[i][j] += x[i] * y[j];
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[s]);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++) Cs[(ty + i) * BN + tx + 8 * j] = sums[i][j];
    ptx::fence_proxy_async(ptx::space_shared);  // @fence
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
        const int corner[2] = {column0, row0};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &C, corner, Cs);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
"""
SHARED = 2 * 3 * 8192 + 64 * 64 * 4
TYPES = {"float": np.float32, "__nv_bfloat16": ml_dtypes.bfloat16}


def launch(kind: str, m: int, n: int, k: int, on: str, source: str = SOURCE, **more):
    """(the Run, the result, what NumPy gives) of random matrices."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(shape).astype(TYPES[kind]) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    per_row = 128 // a.itemsize
    maps = [helpers.tensor_map(a, (64, per_row), "128B"), helpers.tensor_map(b, (per_row, 64)), helpers.tensor_map(c, (64, 64))]
    kernel = helpers.compile(source, entry=f"gemm<{kind}>")
    run = kernel.launch((-(-n // 64), -(-m // 64)), 160, [*maps, k], SHARED, on=on, **more)
    return run, c, a.astype(np.float64) @ b.astype(np.float64)
