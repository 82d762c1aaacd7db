//! kind: diagnose
//! title: What is left to check
//! task: Copies beyond the last row or column repeat it, and nobody keeps those results. Somebody has done the same
//!     with k. Which sizes come out wrong, and why is k another matter? Repair it, also for numbers that are infinite.
//! hint: A result of a row beyond the edge is never stored. Where does a product of a k beyond the edge go?
//! hint: Every k of the tile is added to every result. What must stand there so that it changes nothing?
//! hint: copy() writes zeros where its last argument is false: give it k < K, for A and for B.
//! infinity: in the last k
//! after: Wrong are all sizes whose K is no multiple of 8. Rows and columns decide where a result goes, k decides
//!     what is in it. So the loop has to check k, and k alone. On numbers, zeros in one of the two tiles are enough.
//!     But 0 times infinity is NaN, and so is 0 times NaN: with zeros in both tiles it does not matter what stands in
//!     the last row of B or the last column of A.
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
    what_is_left(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
            float* C, int ldc) {
    __shared__ __align__(16) float As[STAGES][BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[STAGES][BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane / 16 * 2 + lane % 2, lane_col = lane / 2 % 8;  // in pairs of rows
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3

    // Beyond the last row and column, copies repeat it: nobody keeps those results.
    auto fetch = [&](int stage, int k0) {
        for (int i = t; i < BM * BK; i += THREADS) {
            const int r = min(block_row + i / BK, M - 1), k = k0 + i % BK;
            //[solution
            copy(&As[stage][i % BK][i / BK], &A[size_t(r) * lda + k], k < K);
            //[starter
            //|copy(&As[stage][i % BK][i / BK], &A[size_t(r) * lda + min(k, K - 1)], K > 0);
            //]
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = k0 + i / BN, c = min(block_col + i % BN, N - 1);
            //[solution
            copy(&Bs[stage][i / BN][i % BN], &B[size_t(k) * ldb + c], k < K);
            //[starter
            //|copy(&Bs[stage][i / BN][i % BN], &B[size_t(min(k, K - 1)) * ldb + c], K > 0);
            //]
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
        fetch((stage + STAGES - 1) % STAGES, k0 + (STAGES - 1) * BK);
        commit();
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
