// A batch: one product for each z of the grid.
constexpr int BM = 16, BN = 16, BK = 16;

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int grid_depth[] = {1};

extern "C" __global__ void batch(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                 float beta, float* C, int ldc) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    A += (size_t)blockIdx.z * M * lda;
    B += (size_t)blockIdx.z * K * ldb;
    C += (size_t)blockIdx.z * M * ldc;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * lda + k0 + tx] : 0;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row >= M || col >= N) return;
    float& c = C[(size_t)row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
