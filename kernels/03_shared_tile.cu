// 03 shared_tile: reuse through shared memory.
//
// What changed: the block fetches a 32 x 32 tile of A and one of B into shared memory, together, each thread one
// element of each; then every thread reads the tiles instead of global memory. The tiles march along K.
//
// What it saves: a tile element is fetched from global memory once and used by 32 threads, so a result costs
// 2K / 32 = K / 16 global loads instead of 2K. It costs two barriers per tile, and still 2K loads per result: they
// have moved to shared memory, which is nearer and faster, not gone away.

constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles: columns of A and rows of B per step along K
static_assert(BM * BN <= 1024, "A block has one thread per element of its tile, and at most 1024 threads.");
static_assert(BK == BN && BK == BM, "Each thread fetches one element of each tile, so all three must be BM x BN.");

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void shared_tile(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                                       int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * BM + ty;
    const int col = blockIdx.x * BN + tx;  // x runs along the columns

    // A thread beyond the last row or column fetches that row or column instead; it keeps no result.
    const float* a_next = A + size_t(min(row, M - 1)) * lda + tx;
    const float* b_next = B + size_t(ty) * ldb + min(col, N - 1);
    const int a_left = K - tx;  // how far a_next and b_next are from the end of K
    const int b_left = K - ty;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        // Beyond K the tiles hold zeros, which add nothing: K need not be a multiple of 32.
        As[ty][tx] = k0 < a_left ? *a_next : 0;
        Bs[ty][tx] = k0 < b_left ? *b_next : 0;
        __syncthreads();  // both tiles are complete before anyone reads them

        for (int k = 0; k < BK; k++) {
            const float a = As[ty][k];
            const float b = Bs[k][tx];
            sum += a * b;
        }
        __syncthreads();  // everyone has finished reading before anyone overwrites
        a_next += BK;  // BK columns to the right
        b_next += size_t(BK) * ldb;  // BK rows down
    }

    if (row >= M || col >= N) return;  // not before the barriers: every thread of the block must reach them
    float& c = C[size_t(row) * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta == 0 must not read C: it may hold NaN
}
