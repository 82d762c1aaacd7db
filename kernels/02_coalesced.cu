// 02 coalesced: swap the fast thread index.
//
// What changed: threadIdx.x, the index that runs along a warp, now runs along the columns of C instead of down its
// rows. Same threads, same loads, same arithmetic, dealt out the other way round.
//
// What it saves: the 32 threads of a warp share one row, so each load of A is one address for the whole warp, and
// each load of B is 32 neighbours in memory: four full sectors, all of them used, where step 01 moved 32 to use an
// eighth of each.

constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
static_assert(BM * BN <= 1024, "A block has one thread per element of its tile, and at most 1024 threads.");

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void coalesced(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                     float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.y;
    const size_t col = blockIdx.x * BN + threadIdx.x;  // x runs along the columns
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
