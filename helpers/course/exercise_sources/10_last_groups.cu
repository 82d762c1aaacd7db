//! kind: diagnose
//! title: The last tiles
//! task: There is nothing to fetch in the last turns of the loop, and somebody has saved the empty fetch and the
//!     empty group. Now check() objects, but not for every K. From which K on, and why? Repair it,
//!     and let copies stay under way as long as they do now: during the 512 multiply-adds of two turns. Those of the last
//!     turns may have fewer, so that 400 on average are enough.
//! hint: wait<1>() waits for all groups but the last one. In the last turn, how many groups are under way, and
//!     which one is the last?
//! hint: It counts groups, not tiles. Where no new group is committed, the last one is the very one that this step
//!     needs.
//! hint: Commit in every turn, fetched or not: an empty group is complete at once, and keeps the count right.
//! expect: global loads per result <= 1/32 K
//! expect: shared stores per result == 0
//! expect: barriers per warp <= 1/8 K
//! expect: multiply-adds between a copy and its wait >= 400
//! expect: FFMA instructions of each warp <= 40 K
//! after: From K = 9 on, where there are two turns: in the last one no group is committed behind its own, so that the wait
//!     leaves out the very copies it should wait for. An empty group costs one instruction. The other way out, another
//!     wait count for the last turns, costs a branch.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 32, WN = 32;          // tile of C per warp
constexpr int TM = 8, TN = 4;            // tile of C per thread
constexpr int PAD = 4;                   // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int STAGES = 3;                // pairs of tiles in shared memory
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP_M = WM / (TM / 4);   // distance between a thread's two groups of four rows

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
    last_groups(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                float* C, int ldc) {
    __shared__ __align__(16) float As[STAGES][BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[STAGES][BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane / 16 * 2 + lane % 2, lane_col = lane / 2 % 8;  // in pairs of rows
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3

    auto fetch = [&](int stage, int k0) {
        for (int i = t; i < BM * BK; i += THREADS) {
            const int r = i / BK, k = i % BK;
            copy(&As[stage][k][r], &A[size_t(block_row + r) * lda + k0 + k], block_row + r < M && k0 + k < K);
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = i / BN, c = i % BN;
            copy(&Bs[stage][k][c], &B[size_t(k0 + k) * ldb + block_col + c], k0 + k < K && block_col + c < N);
        }
    };

    for (int s = 0; s < STAGES - 1; s++) {
        fetch(s, s * BK);
        commit();
    }
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        wait<STAGES - 2>();
        __syncthreads();
        //[solution
        if (k0 + (STAGES - 1) * BK < K) fetch((stage + STAGES - 1) % STAGES, k0 + (STAGES - 1) * BK);
        commit();
        //[starter
        //|if (k0 + (STAGES - 1) * BK < K) {
        //|    fetch((stage + STAGES - 1) % STAGES, k0 + (STAGES - 1) * BK);
        //|    commit();
        //|}
        //]
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i++) a[i] = As[stage][k][row + i / 4 * GROUP_M + i % 4];
            for (int j = 0; j < TN; j++) b[j] = Bs[stage][k][col + j];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
