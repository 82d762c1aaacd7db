"""Matrix products fed by the tensor memory accelerator: a warp that only copies, stages between mbarriers.

SOURCE multiplies float32 or bfloat16 on CUDA cores and has the result stored by a bulk copy; any M, N and K such that rows
are multiples of 16 bytes. WARPGROUPS multiplies bfloat16 by wgmma from swizzled shared memory, B given as its transpose.
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
_ACCUMULATORS = ", ".join(f"%{i}" for i in range(32)), ", ".join(f'"+f"(d[{i}])' for i in range(32))
WARPGROUPS = r"""
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
namespace ptx = cuda::ptx;
constexpr int BM = 128, BN = 64, BK = 64, STAGES = 3, CONSUMERS = 256;
constexpr int A_TILE = BM * BK * 2, B_TILE = BN * BK * 2;

// K-major tiles of 128-byte rows, swizzled by 128 bytes: groups of 8 rows lie 1024 bytes apart.
__device__ uint64_t descriptor(const void* tile) {
    const uint64_t address = __cvta_generic_to_shared(tile);
    return (address & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {ACC}, %32, %33, 1, 1, 1, 0, 0;" : OPS : "l"(a), "l"(b));
}
__global__ void __launch_bounds__(CONSUMERS + 128) gemm(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
                                                        int M, int N, int K, float* C) {
    extern __shared__ __align__(1024) unsigned char smem[];
    unsigned char *As = smem, *Bs = smem + STAGES * A_TILE;
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int steps = (K + BK - 1) / BK, row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            ptx::mbarrier_init(&full[s], 1);
            ptx::mbarrier_init(&empty[s], CONSUMERS / 128);
        }
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != CONSUMERS) return;
        for (int t = 0; t < steps; t++) {
            const int s = t % STAGES, corner_a[2] = {t * BK, row0}, corner_b[2] = {t * BK, column0};
            while (!ptx::mbarrier_try_wait_parity(&empty[s], (t / STAGES & 1) ^ 1)) {}
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], A_TILE + B_TILE);
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, As + s * A_TILE, &A, corner_a, &full[s]);
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, Bs + s * B_TILE, &B, corner_b, &full[s]);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = threadIdx.x / 128;
    float d[32] = {};
    for (int t = 0; t < steps; t++) {
        const int s = t % STAGES;
        while (!ptx::mbarrier_try_wait_parity(&full[s], t / STAGES & 1)) {}
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < BK / 16; k++)
            multiply(d, descriptor(As + s * A_TILE + group * 8192 + 32 * k), descriptor(Bs + s * B_TILE + 32 * k));
        asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory");
        if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(&empty[s]);
    }
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, row = row0 + group * 64 + warp * 16 + lane / 4;
    for (int j = 0; j < 8; j++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 2; i++) {
                const int r = row + 8 * half, c = column0 + 8 * j + lane % 4 * 2 + i;
                if (r < M && c < N) C[r * N + c] = d[4 * j + 2 * half + i];
            }
}
""".replace("{ACC}", f"{{{_ACCUMULATORS[0]}}}").replace("OPS", _ACCUMULATORS[1])
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


def launch_warpgroups(m: int, n: int, k: int, on: str, source: str = WARPGROUPS, **more):
    """The same for WARPGROUPS: C = A B' of A [m, k] and B [n, k], k a multiple of 8."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32)
    args = [helpers.tensor_map(a, (128, 64), "128B"), helpers.tensor_map(b, (64, 64), "128B"), m, n, k, c]
    run = helpers.compile(source, arch="sm_90a").launch((-(-n // 64), -(-m // 128)), 384, args, 3 * (128 + 64) * 128, on=on, **more)
    return run, c, a.astype(np.float64) @ b.astype(np.float64).T
