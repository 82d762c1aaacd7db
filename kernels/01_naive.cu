// 01 naive: one thread computes one element of C.
//
// The first step, so nothing came before it. Every thread walks the whole of K and does K multiply-adds for
// 2K loads from global memory: as direct a translation of the sum as CUDA allows.
//
// The 32 threads of a warp take 32 rows of one column. Each load of A therefore touches 32 rows of A, and with them
// 32 separate 32-byte sectors, to use four bytes of each; each load of B is one address for the whole warp.

constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
static_assert(BM * BN <= 1024, "A block has one thread per element of its tile, and at most 1024 threads.");

extern "C" __device__ constexpr int block_shape[] = {BM, BN, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void naive(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                 float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.x;  // x runs down the rows
    const size_t col = blockIdx.x * BN + threadIdx.y;
    if (row >= M || col >= N) return;  // the last blocks stick out over the edge of C

    float sum = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[row * lda + k];
        const float b = B[size_t(k) * ldb + col];
        sum += a * b;
    }

    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta == 0 must not read C: it may hold NaN
}
