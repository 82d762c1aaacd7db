//! kind: write
//! title: Thirty-two slices
//! task: For a product with few results and a long K, let a whole warp work on each row: every lane takes every 32nd k, for four columns, and
//!     the lanes' sums are put together without shared memory, without a barrier and without atomic operations. Write it, with at most
//!     5/4 K global loads per result: K of B, and each of A for all four columns.
//! hint: Lane l adds up k = l, l + 32, l + 64, … Then the 32 lanes read 32 neighbours of A: four sectors. One load of A, in front of
//!     the loop over the columns, serves all four: the compiler does not move it there out of an `if`.
//! hint: __shfl_xor_sync(0xffffffff, value, distance) gives each lane the value of the lane whose number differs by `distance` in one bit. All 32
//!     lanes must take part, so none may leave before.
//! hint: For distance 16, 8, 4, 2, 1 add what the other lane has. Then every lane holds the whole sum, and lane j can store column j.
//! expect: sectors per load of A <= 4
//! expect: global loads per result <= 5/4 K
//! expect: shared stores per result == 0
//! expect: barriers per warp == 0
//! expect: global atomic operations == 0
//! after: It is how libraries multiply a matrix by a vector. Lanes add in a fixed order, so the result has the same bits every time.
constexpr int BM = 4;  // rows of C per block, one per warp
constexpr int BN = 4;  // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {32, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32 * BM)
    lanes_share_k(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                  int ldc) {
    const int lane = threadIdx.x;
    const size_t row = blockIdx.y * BM + threadIdx.y;  // the same for all lanes of a warp
    const size_t col = blockIdx.x * BN;                // first of four columns
    if (row >= M) return;

    //[solution
    float sum[BN] = {};
    for (int k = lane; k < K; k += 32) {
        const float a = A[row * lda + k];
        for (int j = 0; j < BN; j++)
            if (col + j < N) sum[j] += a * B[size_t(k) * ldb + col + j];
    }
    for (int j = 0; j < BN; j++) {
        for (int distance = 16; distance > 0; distance /= 2) sum[j] += __shfl_xor_sync(0xffffffff, sum[j], distance);
        if (lane != j || col + j >= N) continue;
        float* out = C + row * ldc + col + j;
        *out = alpha * sum[j] + (beta == 0 ? 0 : beta * *out);
    }
    //[starter
    //|// Yours: each lane's part of four sums, the sums over the lanes, the store.
    //]
}
