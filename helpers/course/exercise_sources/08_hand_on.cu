//! kind: change
//! title: Hand it on
//! task: The tile of a warp has 16 rows here, and a warp has 32 lanes: enough for the values of A of two k. Let one load bring both, and let the
//!     lanes hand them on with __shfl_sync. The loads of B stay as they are: at most 3/32 K shared loads per result instead of 1/8 K. The block
//!     keeps its threads and its tile, so that each has 16 results: without shuffles two loads of 128 bits for each k is the least.
//! hint: Go through k in pairs. Lanes 0 to 15 load the 16 rows of the first k, lanes 16 to 31 those of the second, all from different banks.
//! hint: __shfl_sync(0xffffffff, mine, source) gives every lane the `mine` of lane `source`, and each lane may name
//!     another source. All 32 lanes must take part.
//! hint: For the first k, register a[i] wants row lane_row * 4 + i of the warp's tile, and that is the number of the lane that has it. For the
//!     second k it is 16 more.
//! given: block and tile
//! expect: shared loads per result <= 3/32 K
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result <= 1/32 K
//! after: Fewer loads, and four shuffles for each k, which go through the same unit. As the lesson's count shows,
//!     this trade loses; shuffles win where data would otherwise not be in shared memory at all.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 16, WN = 32;          // tile of C per warp
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int PAD = 16;                  // floats: two rows of As begin in different halves of the banks
constexpr int THREADS = BM / WM * (BN / WN) * 32;

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
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3
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

        //[solution
        for (int k = 0; k < BK; k += 2) {
            const float mine = As[k + lane / 16][warp / (BN / WN) * WM + lane % 16];
            for (int half = 0; half < 2; half++) {
                float a[TM];
                for (int i = 0; i < TM; i++) a[i] = __shfl_sync(0xffffffff, mine, half * 16 + lane_row * 4 + i);
                for (int i = 0; i < TM; i++)
                    for (int j = 0; j < TN; j++) sum[i][j] += a[i] * Bs[k + half][col + j];
            }
        }
        //[starter
        //|for (int k = 0; k < BK; k++)
        //|    for (int i = 0; i < TM; i++)
        //|        for (int j = 0; j < TN; j++) sum[i][j] += As[k][row + i] * Bs[k][col + j];
        //]
        __syncthreads();
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
