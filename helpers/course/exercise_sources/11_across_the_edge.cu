//! kind: diagnose
//! title: Across the edge, too early
//! task: Fragments are read one k ahead, across the tile's edge too. The wait and the barrier still stand between
//!     two steps, and check() has a finding. Say which read comes too early, and repair it without
//!     another barrier. The first k of a tile is still read one k ahead, so that a warp never executes more than the 3
//!     shared loads of one k without a multiply-add after them; and the newest copies stay under way over the wait: at
//!     least 400 multiply-adds, on average, lie between a copy and its wait.
//! hint: In the last turn of the loop over k, from which stage does read() take its values? What is known about that
//!     stage at this place?
//! hint: The next tile must have arrived, for all threads, before its first k is read: that is one k before the step
//!     ends.
//! hint: Move the two lines from the end of the step into the loop over k, in front of the read, under if (k == BK -
//!     1).
//! expect: barriers per warp <= 1/8 K + 1
//! expect: shared loads at a time <= 3
//! expect: multiply-adds between a copy and its wait >= 400
//! expect: shared stores per result == 0
//! expect: global loads per result <= 1/32 K
//! after: Too early was the read of the next tile's first k. Now wait and barrier stand before it, and the multiply-adds
//!     of the last k behind it: they are what a warp does while it waits for the values from the next tile.
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
    across_the_edge(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
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

    float a[2][TM], b[2][TN];  // fragments: this k's and the next one's
    auto read = [&](int stage, int k) {
        for (int i = 0; i < TM; i++) a[k % 2][i] = As[stage][k][row + i / 4 * GROUP_M + i % 4];
        for (int j = 0; j < TN; j++) b[k % 2][j] = Bs[stage][k][col + j];
    };

    for (int s = 0; s < STAGES - 1; s++) {
        fetch(s, s * BK);
        commit();
    }
    wait<STAGES - 2>();
    __syncthreads();
    read(0, 0);
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        fetch((stage + STAGES - 1) % STAGES, k0 + (STAGES - 1) * BK);
        commit();
        for (int k = 0; k < BK; k++) {
            //[solution
            if (k == BK - 1) {
                wait<STAGES - 2>();
                __syncthreads();
            }
            //[starter
            //]
            if (k + 1 < BK) read(stage, k + 1);
            else read((stage + 1) % STAGES, 0);  // the first k of the next tile
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[k % 2][i] * b[k % 2][j];
        }
        //[solution
        //[starter
        //|wait<STAGES - 2>();
        //|__syncthreads();
        //]
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
