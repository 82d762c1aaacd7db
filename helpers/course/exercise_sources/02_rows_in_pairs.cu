//! kind: write
//! title: One above the other
//! task: Write the body. Each thread computes two elements of one column, so that a value of B serves both. The block is 32
//!     threads wide and 8 high. At most 3/2 K loads per result, no load or store with more than 4 sectors.
//! hint: threadIdx.x should run along the columns, threadIdx.y along the upper 8 rows of the tile. The second element of a
//!     thread may lie 8 rows below its first.
//! hint: One loop, two sums: for each k one value of B and two of A.
//! hint: The upper element may lie in C and the lower one below its edge. A row of A that does not exist must not be read either.
//! expect: sectors per load of A <= 4
//! expect: sectors per load of B <= 4
//! expect: sectors per store of C <= 4
//! expect: global loads per result <= 3/2 K
//! after: A quarter of the loads is gone, and nothing is shared yet but within one thread. Step 04 takes this further.
constexpr int BM = 16;  // rows of C per block, two per thread
constexpr int BN = 32;  // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {BN, BM / 2, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void rows_in_pairs(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                                         int ldb, float beta, float* C, int ldc) {
    //[solution
    const size_t upper = blockIdx.y * BM + threadIdx.y, lower = upper + BM / 2;
    const size_t col = blockIdx.x * BN + threadIdx.x;
    if (upper >= M || col >= N) return;
    const bool both = lower < M;

    float sum0 = 0, sum1 = 0;
    for (int k = 0; k < K; k++) {
        const float b = B[size_t(k) * ldb + col];
        sum0 += A[upper * lda + k] * b;
        if (both) sum1 += A[lower * lda + k] * b;
    }

    float* c = C + upper * ldc + col;
    *c = alpha * sum0 + (beta == 0 ? 0 : beta * *c);
    if (!both) return;
    c = C + lower * ldc + col;
    *c = alpha * sum1 + (beta == 0 ? 0 : beta * *c);
    //[starter
    //|// Yours: two elements of one column of C, one loop over k, two stores.
    //]
}
