// Split-K in two phases, whose parts are copied to device memory in bulk; the last slice to finish adds them up.
#include <stdint.h>
constexpr int BM = 16, BN = 16, BK = 8;
constexpr int SLICES = 3;
constexpr int ROOM = 1 << 20;

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int grid_depth[] = {SLICES};

__device__ __align__(128) float parts[ROOM];
__device__ int finished[ROOM / (BM * BN)];

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

extern "C" __global__ void parts_in_bulk(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                         float beta, float* C, int ldc) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    __shared__ __align__(128) float out[BM * BN];
    __shared__ bool last;
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BN + tx;
    const int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    const int product = blockIdx.z / SLICES;
    const size_t tiles = (size_t)gridDim.x * gridDim.y * gridDim.z;
    const int slices = tiles * BM * BN <= ROOM ? SLICES : 1, slice = blockIdx.z % SLICES;
    if (slice >= slices) return;
    A += (size_t)product * M * lda;
    B += (size_t)product * K * ldb;
    C += (size_t)product * M * ldc;

    const int part = (K + slices - 1) / slices;
    const int begin = min(K, slice * part), end = min(K, begin + part);
    float sum = 0;
    for (int k0 = begin; k0 < end; k0 += BK) {
        if (tx < BK) As[ty][tx] = row < M && k0 + tx < end ? A[(size_t)row * lda + k0 + tx] : 0;
        if (ty < BK) Bs[ty][tx] = col < N && k0 + ty < end ? B[(size_t)(k0 + ty) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    if (slices > 1) {
        const int tile = (product * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        float* mine = parts + (size_t)tile * SLICES * BM * BN + t;
        out[t] = sum;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (t == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;"
                         :: "l"(mine + slice * BM * BN), "r"(address(out)) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            __threadfence();
            last = atomicAdd(&finished[tile], 1) == SLICES - 1;
            __threadfence();
        }
        __syncthreads();
        if (!last) return;
        if (t == 0) finished[tile] = 0;
        sum = 0;
        for (int from = 0; from < SLICES; from++) sum += mine[from * BM * BN];
    }
    if (row >= M || col >= N) return;
    float& c = C[(size_t)row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
