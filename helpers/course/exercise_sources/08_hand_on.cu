//! title: Hand it on
//! task: A warp needs 32 values of A for each k: as many as it has lanes. Let every lane load one of them, and let
//!     it hand its value to those who need it with __shfl_sync. The loads of B stay as they are.
//! hint: Lane l loads row l of the warp's tile: As[k][first row of the warp + l]. That is one load of 4 bytes for
//!     each lane, all 32 from different banks.
//! hint: __shfl_sync(0xffffffff, mine, source) gives every lane the `mine` of lane `source`, and each lane may name
//!     another source. All 32 lanes must take part.
//! hint: Register a[i] wants row lane_row * 4 + i / 4 * GROUP_M + i % 4 of the warp's tile, and that is the number
//!     of the lane that has it.
//! expect: shared loads per result <= 1/16 K
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result <= 1/32 K
//! after: Fewer loads, and eight shuffles for each k, which go through the same unit. As the lesson's count shows,
//!     this trade loses; shuffles win where data would otherwise not be in shared memory at all.
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
    hand_on(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
            float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane / 16 * 2 + lane % 2, lane_col = lane / 2 % 8;  // in pairs of rows
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = t; i < BM * BK; i += THREADS) {
            const int r = i / BK, k = i % BK;
            As[k][r] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
        }
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            //[solution
            const float mine = As[k][warp / (BN / WN) * WM + lane];
            for (int i = 0; i < TM; i++)
                a[i] = __shfl_sync(0xffffffff, mine, lane_row * 4 + i / 4 * GROUP_M + i % 4);
            //[starter
            //|for (int i = 0; i < TM; i++) a[i] = As[k][row + i / 4 * GROUP_M + i % 4];
            //]
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
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
