//! kind: change
//! title: One index for the whole block
//! task: Many kernels use a block with one dimension and work out row and column themselves. Here thread t of 1024
//!     takes one element of a 32 x 32 tile, in an order that costs 32 sectors per load of A. Change the two lines
//!     so that no load or store touches more than 4.
//! hint: Threads t = 0 to 31 are one warp. Which rows and columns do they have now?
//! hint: t % 32 changes from one lane to the next, t / 32 is the same for a whole warp. Which of row and column
//!     should change from lane to lane?
//! hint: The column: col = ... + t % BN, row = ... + t / BN.
//! given: block and tile
//! expect: sectors per load of A <= 4
//! expect: sectors per load of B <= 4
//! expect: sectors per store of C <= 4
//! expect: global loads per result <= 2 K
//! after: What matters is which element the 32 threads of a warp take, not how the index is written.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {BM * BN, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void flat_block(int M, int N, int K, float alpha, const float* A, int lda,
                                      const float* B, int ldb, float beta, float* C, int ldc) {
    const int t = threadIdx.x;  // [0, 1023]
    //[solution
    const size_t row = blockIdx.y * BM + t / BN;
    const size_t col = blockIdx.x * BN + t % BN;
    //[starter
    //|const size_t row = blockIdx.y * BM + t % BM;
    //|const size_t col = blockIdx.x * BN + t / BM;
    //]
    if (row >= M || col >= N) return;

    float sum = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[row * lda + k];
        const float b = B[size_t(k) * ldb + col];
        sum += a * b;
    }

    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
