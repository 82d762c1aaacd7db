"""A small GEMM kernel fed by tensor maps: bfloat16 in, float32 out, multiplied on CUDA cores, one stage.

Its result is stored through map_C where that can be, else by the threads. Blocks of a cluster lie side by side in N and share their tile
of A, which the first of them copies to all. A persistent block takes every gridDim.x-th place.
"""

from __future__ import annotations

TEXT = r"""
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
namespace ptx = cuda::ptx;
constexpr int BM = 32, BN = 32, BK = 32, THREADS = 128, CLUSTER = @CLUSTER@;
constexpr bool PERSISTENT = @PERSISTENT@;
extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int box_A[] = {BM, BK, 64};
extern "C" __device__ constexpr int box_B[] = {BK, BN, 0};
extern "C" __device__ constexpr int box_C[] = {BM, BN, 0};
@STATED@

__global__ void @DECLARED@ __launch_bounds__(THREADS)
tma_gemm(int M, int N, int K, float alpha, const __nv_bfloat16* A, int lda, const __nv_bfloat16* B, int ldb, float beta, float* C, int ldc,
         const __grid_constant__ CUtensorMap map_A, const __grid_constant__ CUtensorMap map_B, const __grid_constant__ CUtensorMap map_C) {
    __shared__ alignas(1024) unsigned char As[BM * BK * 2];
    __shared__ alignas(128) __nv_bfloat16 Bs[BK][BN];
    __shared__ alignas(128) float Cs[BM][BN];
    __shared__ uint64_t arrived;
    const int rank = blockIdx.x % CLUSTER;
    auto together = [] {
        if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
        else __syncthreads();
    };
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&arrived, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    together();
    const int across = (N + BN * CLUSTER - 1) / (BN * CLUSTER), places = across * ((M + BM - 1) / BM);  // in clusters
    const int first = PERSISTENT ? blockIdx.x / CLUSTER : blockIdx.y * across + blockIdx.x / CLUSTER;
    const bool mapped = beta == 0 && ((unsigned long long)C | 4ull * ldc | 4ull * N) % 16 == 0;  // @mapped
    int phase = 0;
    for (int place = first; place < places; place += PERSISTENT ? gridDim.x / CLUSTER : places) {
        const int row0 = place / across * BM, column0 = (place % across * CLUSTER + rank) * BN;
        float sums[8] = {};
        const int column = threadIdx.x % BN, row = threadIdx.x / BN * 8;
        for (int k0 = 0; k0 < K; k0 += BK, phase ^= 1) {
            if (threadIdx.x == 0) {
                const int corner_a[2] = {k0, row0}, corner_b[2] = {column0, k0};
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived, sizeof(As) + sizeof(Bs));
                if (CLUSTER == 1) ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, As, &map_A, corner_a, &arrived);
                else if (rank == 0)
                    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, As, &map_A, corner_a, &arrived, uint16_t((1 << CLUSTER) - 1));
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, Bs, &map_B, corner_b, &arrived);
            }
            while (!ptx::mbarrier_try_wait_parity(&arrived, phase)) {}
            for (int k = 0; k < BK; k++)
                for (int i = 0; i < 8; i++) {  // the 16-byte chunks of row r lie at their number XOR r / 2 % 4
                    const int byte = 2 * k ^ ((row + i) / 2 % 4) << 4;
                    sums[i] += float(*(const __nv_bfloat16*)(As + (row + i) * 64 + byte)) * float(Bs[k][column]);
                }
            together();
        }
        if (mapped) {
            for (int i = 0; i < 8; i++) Cs[row + i][column] = alpha * sums[i];
            ptx::fence_proxy_async(ptx::space_shared);
            __syncthreads();
            if (threadIdx.x == 0 && column0 < N) {
                const int corner[2] = {column0, row0};
                ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map_C, corner, Cs);
                ptx::cp_async_bulk_commit_group();
                ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
            }
            __syncthreads();
        } else
            for (int i = 0; i < 8; i++)
                if (row0 + row + i < M && column0 + column < N) {
                    float& c = C[(size_t)(row0 + row + i) * ldc + column0 + column];
                    c = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * c;
                }
    }
}
"""


def source(persistent: int | None = None, cluster: int = 1) -> str:
    """The kernel. persistent: blocks per multiprocessor, None for one block per tile. cluster: blocks per cluster, along N."""
    filled = {
        "@CLUSTER@": str(cluster),
        "@PERSISTENT@": str(persistent is not None).lower(),
        "@STATED@": f'extern "C" __device__ constexpr int persistent[] = {{{persistent}}};' if persistent else "",
        "@DECLARED@": f"__cluster_dims__({cluster}, 1, 1)" if cluster > 1 else "",
    }
    text = TEXT
    for name, value in filled.items():
        text = text.replace(name, value)
    return text
