"""A GEMM kernel that compiles quickly and has constants to vary."""

# Quick to compile: every thread adds up TM x TN sums, straight from global memory.
SOURCE = """constexpr int TM = 2, TN = 2;   // tile per thread
constexpr int THREADS = 64;
constexpr int HOLD = 0;         // floats of shared memory to waste
static_assert(TM % 2 == 0, "TM must be even");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {TM * THREADS, TN};
extern "C" __device__ constexpr int dynamic_shared[] = {HOLD * 4};

extern "C" __global__ void __launch_bounds__(THREADS)
tiny(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
     int ldc) {
    const int row = (blockIdx.y * THREADS + threadIdx.x) * TM, col = blockIdx.x * TN;
    float sum[TM][TN] = {};
    for (int k = 0; k < K; k++)
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TN; j++)
                sum[i][j] += (row + i < M ? A[size_t(row + i) * lda + k] : 0) *
                             (col + j < N ? B[size_t(k) * ldb + col + j] : 0);
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            if (row + i < M && col + j < N) {
                float& c = C[size_t(row + i) * ldc + col + j];
                c = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * c;
            }
}
"""
