//! kind: diagnose
//! title: ReLU too early
//! task: Diagnose this one. Some shapes pass, others fail, and there is no finding. What do those that fail have in common?
//!     The formula: C = max(0, alpha A B + beta C + bias).
//! hint: check() names alpha and beta of the shapes that fail.
//! hint: They are those with beta other than 0. Is the old C inside the maximum?
//! hint: Add beta * c to the product first, then the bias, and apply ReLU last.
//! expect: global loads per result <= 1/16 K + 1
//! after: A layer trained and run with beta = 0 would never have shown it. That is why check() varies alpha and beta.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = max(0, alpha * A * B + beta * C + bias), row-major: A is M x K, B is K x N, C is M x N; bias has one value per
// column of C; lda, ldb, ldc are the row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    relu_too_early(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                   int ldc, const float* bias) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        __syncthreads();

        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    //[solution
    const float v = (beta == 0 ? alpha * sum : alpha * sum + beta * c) + bias[col];
    c = v < 0 ? 0 : v;
    //[starter
    //|const float v = alpha * sum + bias[col];
    //|const float out = v < 0 ? 0 : v;
    //|c = beta == 0 ? out : out + beta * c;
    //]
}
