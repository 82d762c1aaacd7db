//! kind: write
//! title: One copy for each k
//! task: A thread brings eight floats of a pair of tiles, and start(stage, k0, n) starts the copy of the n-th, n from 0 to 7, of the tiles that begin
//!     at k0. The tiles are 8 deep. Write the pipeline: in the loop never two copies without a multiply-add in between, and between a copy and
//!     its wait at least the 128 multiply-adds of one turn, on average.
//! hint: Before the loop there is nothing to spread them over: start all eight copies of each of the first STAGES - 1 pairs, a group for each pair.
//! hint: In a turn: wait, barrier, then for each k one copy for the tiles STAGES - 1 turns ahead and the 16 products of this k.
//! hint: The group can be closed only behind the loop over k. At the wait there are STAGES - 1 groups under way, and this turn needs the oldest.
//! expect: copies at a time <= 1
//! expect: multiply-adds between a copy and its wait >= 128
//! expect: barriers per warp <= 1/8 K
//! expect: shared stores per result == 0
//! expect: shared loads per result <= 1/2 K
//! expect: global loads per result <= 1/16 K
//! after: Which copies a group has, and when it is closed, are two questions. The group only has to be closed before somebody waits for it.
constexpr int BM = 32, BN = 32, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int STAGES = 3;                // pairs of tiles in shared memory
constexpr int THREADS = BM / TM * (BN / TN);

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// Start to copy one float from global to shared memory; write zero instead if not `inside` the matrix.
__device__ void copy(float* to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    spread_the_copies(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                      float* C, int ldc) {
    __shared__ __align__(16) float As[STAGES][BK][BM + 4];  // transposed
    __shared__ __align__(16) float Bs[STAGES][BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 8 * TM, col = t % 8 * TN;  // first of this thread's rows and columns in the tile
    auto start = [&](int stage, int k0, int n) {   // copies 0 to 3 are of A, 4 to 7 of B
        if (n < 4) {
            const int i = t / 8 + n * 8, k = t % 8;
            copy(&As[stage][k][i], &A[size_t(block_row + i) * lda + k0 + k], block_row + i < M && k0 + k < K);
        } else {
            const int k = t / 32 + (n - 4) * 2, j = t % 32;
            copy(&Bs[stage][k][j], &B[size_t(k0 + k) * ldb + block_col + j], k0 + k < K && block_col + j < N);
        }
    };

    float sum[TM][TN] = {};
    //[solution
    for (int s = 0; s < STAGES - 1; s++) {
        for (int n = 0; n < 8; n++) start(s, s * BK, n);
        commit();
    }
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int now = k0 / BK % STAGES, ahead = k0 + (STAGES - 1) * BK;
        wait<STAGES - 2>();
        __syncthreads();
        for (int k = 0; k < BK; k++) {
            start(ahead / BK % STAGES, ahead, k);
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += As[now][k][row + i] * Bs[now][k][col + j];
        }
        commit();
    }
    //[starter
    //|// Yours: the first groups, and the loop over the tiles. It adds to sum.
    //]

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
