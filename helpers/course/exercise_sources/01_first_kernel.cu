//! kind: write
//! title: A kernel of your own
//! task: Write the body. The 256 threads of a block stand in one row here, x from 0 to 255, and share a tile of 32 rows and 8
//!     columns: one element for each. A load of B may touch one sector and no more, and each result costs 2 K loads.
//! hint: Three parts: which element is mine, the loop over k, the store. Between the first two, those leave who have nothing to do.
//! hint: t % BM runs through the rows and t / BM through the columns. The block's tile begins at row blockIdx.y * BM and column
//!     blockIdx.x * BN.
//! hint: Add A[row * lda + k] * B[k * ldb + col] for all k. Then alpha times the sum, plus beta times the old value, which must not
//!     be read where beta is 0.
//! expect: sectors per load of B <= 1
//! expect: global loads per result == 2 K
//! after: That is all a kernel has to be. Every later step does these multiply-adds; they differ in where the factors come from.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 8;   // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {BM * BN, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void first_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                                        int ldb, float beta, float* C, int ldc) {
    const int t = threadIdx.x;  // [0, 255]
    //[solution
    const size_t row = blockIdx.y * BM + t % BM;
    const size_t col = blockIdx.x * BN + t / BM;
    if (row >= M || col >= N) return;

    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[row * lda + k] * B[size_t(k) * ldb + col];
    float* out = C + row * ldc + col;
    *out = alpha * sum + (beta == 0 ? 0 : beta * *out);
    //[starter
    //|// Yours: the element of thread t, the loop over k, the store.
    //]
}
