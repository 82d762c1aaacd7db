//! kind: diagnose
//! title: Two columns per thread
//! task: Each thread computes two elements of a row, so that one load of A serves two multiply-adds. The author had read that a thread should
//!     not stride through B, and gave every thread two neighbouring columns. Diagnose what that costs, and deal the columns out so that a
//!     load of B touches 4 sectors again, and a store of C as well.
//! hint: Look at one load across the warp, not at one thread: lanes 0, 1, 2, 3 read columns 0, 2, 4, 6. Half of
//!     every sector is fetched and not used.
//! hint: For one load, neighbouring lanes should read neighbouring columns. The second column of a thread can be
//!     anywhere.
//! hint: First column: threadIdx.x. Second column: BN / 2 to the right of it, not 1.
//! expect: sectors per load of B <= 4
//! expect: sectors per store of C <= 4
//! expect: global loads per result <= 3/2 K
//! after: Coalescing is about one instruction across the warp. What one thread reads next to what it read before is
//!     another question (and one that step 07 answers, with wider loads).
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 64;  // columns of C per block, two per thread

extern "C" __device__ constexpr int block_shape[] = {BN / 2, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void two_columns(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.y;
    //[solution
    const size_t col0 = blockIdx.x * BN + threadIdx.x;
    const size_t col1 = col0 + BN / 2;
    //[starter
    //|const size_t col0 = blockIdx.x * BN + 2 * threadIdx.x;
    //|const size_t col1 = col0 + 1;
    //]
    if (row >= M || col0 >= N) return;
    const bool both = col1 < N;  // the second column may stick out over the edge where the first does not

    float sum0 = 0, sum1 = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[row * lda + k];
        const float* b = B + size_t(k) * ldb;
        sum0 += a * b[col0];
        if (both) sum1 += a * b[col1];
    }

    float* c = C + row * ldc;
    c[col0] = beta == 0 ? alpha * sum0 : alpha * sum0 + beta * c[col0];
    if (both) c[col1] = beta == 0 ? alpha * sum1 : alpha * sum1 + beta * c[col1];
}
