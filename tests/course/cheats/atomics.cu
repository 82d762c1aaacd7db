// Split-K with atomics, of a batch: slices add to one sum of each element, and the last to finish stores it and leaves zeros.
constexpr int BM = 16, BN = 16;
constexpr int SLICES = 4;
constexpr int ROOM = 1 << 20;

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int grid_depth[] = {SLICES};

__device__ float total[ROOM];
__device__ unsigned finished[ROOM / (BM * BN)];

extern "C" __global__ void atomics(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                   float beta, float* C, int ldc) {
    __shared__ bool last;
    const int t = threadIdx.y * BN + threadIdx.x;
    const int row = blockIdx.y * BM + threadIdx.y, col = blockIdx.x * BN + threadIdx.x;
    const int slice = blockIdx.z % SLICES, product = blockIdx.z / SLICES;
    const bool inside = row < M && col < N;
    const int tile = (product * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const bool shared_out = (size_t)gridDim.x * gridDim.y * (gridDim.z / SLICES) * BM * BN <= ROOM;
    if (!shared_out && slice > 0) return;
    const float* a = A + (size_t)product * M * lda + (size_t)row * lda;
    const float* b = B + (size_t)product * K * ldb + col;

    float sum = 0;
    for (int k = shared_out ? slice : 0; inside && k < K; k += shared_out ? SLICES : 1) sum += a[k] * b[(size_t)k * ldb];
    if (shared_out) {
        float* all = &total[(size_t)tile * BM * BN + t];
        atomicAdd(all, sum);
        __threadfence();
        __syncthreads();
        if (t == 0) last = atomicInc(&finished[tile], SLICES - 1) == SLICES - 1;
        __syncthreads();
        if (!last) return;
        sum = atomicExch(all, 0.0f);
    }
    if (!inside) return;
    float& c = C[(size_t)product * M * ldc + (size_t)row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
