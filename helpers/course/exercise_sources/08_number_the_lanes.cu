//! kind: change
//! title: Same tile, other numbers
//! task: The warp computes a 32 x 32 tile and its lanes are numbered down columns. Each load of A takes four
//!     wavefronts, each load of B two. Renumber the lanes, so that every load takes two. Nothing else
//!     changes: not the tile, not the loads. The check has the average of one load of A and two of B, which is 8/3.
//! hint: Shared memory serves a 128-bit load one half-warp at a time: lanes 0 to 15, then 16 to 31. How many
//!     different rows do lanes 0 to 15 have now?
//! hint: All 8 of them, each twice, but the two that read the same 16 bytes are lanes 0 and 8. They share a
//!     wavefront only if they are neighbours: lane numbers that differ in bit 0 or in bit 1.
//! hint: Number along pairs of columns: lane 0 beside lane 1, lane 2 beside lane 3. Then lane % 2 is the column within the
//!     pair, and lane / 16 the pair.
//! given: block and tile
//! expect: wavefronts per shared load <= 2
//! expect: global loads per result <= 1/32 K
//! expect: shared loads per result <= 3/32 K
//! after: A warp is free to number its lanes as it likes. Only the addresses that a half-warp asks for together
//!     matter.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 32, WN = 32;          // tile of C per warp
constexpr int TM = 4, TN = 8;            // tile of C per thread
constexpr int PAD = 4;                   // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP_N = WN / (TN / 4);   // distance between a thread's two groups of four columns

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    number_the_lanes(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                     float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    const int lane_row = lane / 2 % 8, lane_col = lane / 16 * 2 + lane % 2;
    //[starter
    //|const int lane_row = lane % 8, lane_col = lane / 8;
    //]
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3, and the same GROUP_N further right

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
            for (int i = 0; i < TM; i++) a[i] = As[k][row + i];
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j / 4 * GROUP_N + j % 4];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j / 4 * GROUP_N + j % 4;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
