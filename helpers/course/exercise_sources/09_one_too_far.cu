//! kind: diagnose
//! title: One tile too far
//! task: Prefetching looks ahead, and the last step looks too far. The result is right: the tile that should not
//!     have been fetched is never used. Find out what check() objects to, and repair it.
//! hint: Which tile does the last turn of the loop fetch? Where is its first row of B?
//! hint: A has a guard for K in its load. B has none.
//! hint: Either guard the load, k < left, or do not fetch in the last turn. The guard is needed anyway where K is
//!     no multiple of BK.
//! expect: global loads per result <= 1/32 K
//! expect: barriers per fill of shared memory <= 1
//! expect: multiply-adds behind a tile's loads >= 128
//! after: A load whose value nobody uses is a load all the same. If its address is not yours, a GPU may stop the
//!     kernel for it.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 32, WN = 32;          // tile of C per warp
constexpr int TM = 8, TN = 4;            // tile of C per thread
constexpr int PAD = 4;                   // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP_M = WM / (TM / 4);   // distance between a thread's two groups of four rows

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    one_too_far(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                float* C, int ldc) {
    __shared__ __align__(16) float As[2][BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[2][BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane / 16 * 2 + lane % 2, lane_col = lane / 2 % 8;  // in pairs of rows
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3

    float a_next[BM * BK / THREADS], b_next[BK * BN / THREADS];  // on the way from global to shared memory
    auto fetch = [&](int k0) {
        const int left = K - k0;  // how much of A and B there is from k0 on
        for (int i = 0; i < BM * BK / THREADS; i++) {
            const int r = (t + i * THREADS) / BK, k = (t + i * THREADS) % BK;
            a_next[i] = block_row + r < M && k < left ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = 0; i < BK * BN / THREADS; i++) {
            const int k = (t + i * THREADS) / BN, c = (t + i * THREADS) % BN;
            //[solution
            b_next[i] = k < left && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
            //[starter
            //|b_next[i] = block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
            //]
        }
    };
    auto store = [&](int buffer) {
        for (int i = 0; i < BM * BK / THREADS; i++)
            As[buffer][(t + i * THREADS) % BK][(t + i * THREADS) / BK] = a_next[i];
        for (int i = 0; i < BK * BN / THREADS; i++)
            Bs[buffer][(t + i * THREADS) / BN][(t + i * THREADS) % BN] = b_next[i];
    };

    float sum[TM][TN] = {};
    int buffer = 0;
    fetch(0);
    store(0);
    __syncthreads();
    for (int k0 = 0; k0 < K; k0 += BK) {
        fetch(k0 + BK);
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i++) a[i] = As[buffer][k][row + i / 4 * GROUP_M + i % 4];
            for (int j = 0; j < TN; j++) b[j] = Bs[buffer][k][col + j];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        buffer ^= 1;
        store(buffer);
        __syncthreads();
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
