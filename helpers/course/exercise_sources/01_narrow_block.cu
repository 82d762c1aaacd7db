//! kind: change
//! title: A block of another shape
//! task: The order of the threads stays as it is: x runs down the rows. Choose another BM so that one load of A
//!     touches at most 8 sectors instead of 32, and one load of B still touches a single sector.
//! hint: A warp is 32 threads with consecutive numbers, and threadIdx.x counts fastest. When the block is narrower
//!     than 32 along x, a warp takes several values of y as well.
//! hint: With BM threads along x, a warp covers BM rows and 32 / BM columns. Each row of A is one sector. How many
//!     columns of B fit into one sector of 32 bytes?
//! hint: BM = 8: 8 rows, 8 sectors of A. The 4 columns are 16 neighbouring bytes of B: one sector.
//! expect: sectors per load of A <= 8
//! expect: sectors per load of B <= 1
//! expect: global loads per result <= 2 K
//! expect: threads of a warp down a column of C >= 4
//! after: Each warp now requests BM + 1 sectors per multiply-add instead of 32 + 1, and only the shape of the block
//!     has changed. Both 8 and 4 will do: try the other one as well, and remember the result for step 02.
//[solution
constexpr int BM = 8;   // rows of C per block
//[starter
//|constexpr int BM = 32;  // rows of C per block: change this
//]
constexpr int BN = 32;  // columns of C per block
static_assert(BM * BN <= 1024, "A block has one thread per element of its tile, and at most 1024 threads.");

extern "C" __device__ constexpr int block_shape[] = {BM, BN, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void narrow_block(int M, int N, int K, float alpha, const float* A, int lda,
                                        const float* B, int ldb, float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.x;  // x runs down the rows
    const size_t col = blockIdx.x * BN + threadIdx.y;
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
