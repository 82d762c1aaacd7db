//! kind: diagnose
//! title: One value per row
//! task: Diagnose this one: nearly all shapes fail, and there is a finding too. Which shape passes, and why? How many
//!     values does the bias have? Repair it.
//! hint: In a fully connected layer a row of C is a sample and a column is a neuron. Which of them has a bias of its own?
//! hint: bias has N values. Nothing stops row at N.
//! hint: bias[col].
//! expect: global loads per result <= 1/16 K + 1
//! after: In a layer stored the other way round, with samples in columns, bias[row] would be right. Libraries ask which.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = max(0, alpha * A * B + beta * C + bias), row-major: A is M x K, B is K x N, C is M x N; bias has one value per
// column of C; lda, ldb, ldc are the row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    bias_of_the_row(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
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
    const float v = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    //[solution
    c = v + bias[col] < 0 ? 0 : v + bias[col];
    //[starter
    //|c = v + bias[row] < 0 ? 0 : v + bias[row];
    //]
}
