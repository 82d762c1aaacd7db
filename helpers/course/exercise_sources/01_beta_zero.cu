//! kind: diagnose
//! title: Nought times not-a-number
//! task: This author begins the sum with beta times the old C, so that the store has nothing left to do, and check() fails. Find the
//!     case and repair it. The rule of every BLAS library: when beta is 0, C is only written, never read.
//! hint: check() fills C with NaN before a run with beta = 0, as fresh memory may be. What is 0 * NaN?
//! hint: 0 * NaN is NaN: multiplying by 0 does not remove the old value. Only not reading it does.
//! hint: Choose what the sum begins with: 0 when beta is 0, otherwise beta times the old element.
//! after: Not reading C also saves M * N loads in the most common case.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {BM, BN, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void beta_zero(int M, int N, int K, float alpha, const float* A, int lda,
                                     const float* B, int ldb, float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.x;
    const size_t col = blockIdx.x * BN + threadIdx.y;
    if (row >= M || col >= N) return;

    float& c = C[row * ldc + col];
    //[solution
    float sum = beta == 0 ? 0 : beta * c;
    //[starter
    //|float sum = beta * c;
    //]
    for (int k = 0; k < K; k++) {
        const float a = A[row * lda + k];
        const float b = B[size_t(k) * ldb + col];
        sum += alpha * a * b;
    }

    c = sum;
}
